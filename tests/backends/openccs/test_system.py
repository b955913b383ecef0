"""Descriptions of clusters: the paper's own, and those read from a file."""

from collections import Counter

import pytest
from asa.backends.openccs.cluster import PlannedCluster
from asa.backends.openccs.requests import RequestKind, ResourceRequest
from asa.backends.openccs.system import Admission, CcsSystem, Node, Reserve, load_system, oculus

from asa.errors import InputError

GIB = 1 << 30

GOOD = """
name = "mine"
walltime = "2h"

[licences]
g03 = 4

[[nodes]]
name = "thin"
count = 12
resources = { ncpus = 16, mem = "64G" }
properties = { arch = "linux", ssd = true, rack = 8 }

[[nodes]]
name = "fat"
priority = 2
resources = { ncpus = 32, mem = "1T", scratch = "10G", gpus = 2 }
admits = [{ mem = "66G" }, { ncpus = 17, walltime = "3d" }, { walltime = "12h" }]

[[reserves]]
resource = "gpus"
keeps = { ncpus = 2 }
"""

NODE = '[[nodes]]\nname = "n"\n'
CORES = f"{NODE}resources = {{ ncpus = 4 }}\n"


def read(folder, text):
    path = folder / "system.toml"
    path.write_text(text, encoding="utf-8")
    return load_system(path)


def test_the_papers_cluster_has_what_the_paper_says():
    system = oculus()
    sums = Counter()
    for node in system.nodes:
        sums.update(node.resources)
    assert (len(system.nodes), sums["ncpus"], sums["gpus"], sums["phis"]) == (616, 9920, 32, 8)
    assert {node.resources["mem"] for node in system.nodes} == {64 * GIB, 256 * GIB, 1024 * GIB}
    assert sum("gpus" in node.resources for node in system.nodes) == 32
    assert len({node.name for node in system.nodes}) == 616
    assert dict(zip(system.resources, system.items().sum(axis=0).tolist(), strict=True)) == sums


def test_the_papers_dear_nodes_are_dear():
    system = oculus()
    by_weight = [system.nodes[place].name[:3] for place in system.weights().argsort(kind="stable").tolist()]
    order = list(dict.fromkeys(by_weight))
    assert order[0] == "nor"
    assert set(order[-3:]) == {"smp", "gpu", "phi"}


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ((Node("a", {"ncpus": 6}), Node("b", {"ncpus": 2})), [6, 2]),
        ((Node("a", {"ncpus": 6, "mem": 1}), Node("b", {"ncpus": 2, "mem": 3})), [6, 6]),
        ((Node("a", {"ncpus": 6}, priority=1), Node("b", {"ncpus": 2, "gpus": 0})), [14, 2]),
        ((Node("a", {"mem": 6}), Node("b", {"ncpus": 2, "mem": 2}, priority=-1)), [1.5, 0]),
    ],
)
def test_a_node_weighs_its_largest_share_of_anything_and_its_priority(nodes, weights):
    """Section 5.2: both times the cores of the system."""
    assert CcsSystem("s", nodes).weights().tolist() == weights


def test_a_file_says_all_of_a_cluster(tmp_path):
    system = read(tmp_path, GOOD)
    thin = {"ncpus": 16, "mem": 64 * GIB}
    properties = {"arch": "linux", "ssd": "true", "rack": "8"}
    fat = {"ncpus": 32, "mem": 1024 * GIB, "scratch": 10 * GIB, "gpus": 2}
    admits = (
        Admission({"mem": 66 * GIB}),
        Admission({"ncpus": 17}, 3 * 86400),
        Admission(at_most_s=12 * 3600),
    )
    names = [f"thin{number:02}" for number in range(1, 13)]
    assert system.nodes == (*(Node(name, thin, properties) for name in names), Node("fat", fat, {}, 2, admits))
    assert (system.name, system.walltime_s, system.licences) == ("mine", 7200, {"g03": 4})
    assert system.reserves == (Reserve("gpus", {"ncpus": 2}),)
    kinds = [system.kinds[name] for name in ("ncpus", "mem", "scratch", "g03", "ssd", "rack")]
    assert kinds == [
        RequestKind.COUNT,
        RequestKind.SIZE,
        RequestKind.SIZE,
        RequestKind.COUNT,
        RequestKind.PROPERTY,
        RequestKind.PROPERTY,
    ]


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("ncpus=16:ssd=true:mem=64g", "thin01"),
        ("ncpus=16:rack=8:arch=linux", "thin01"),
        ("ncpus=1:scratch=10g,walltime=1h", "fat"),
        ("ncpus=32:gpus=1,place=excl", "fat"),
    ],
)
def test_requests_for_a_cluster_of_a_file_find_what_they_name(tmp_path, text, node):
    cluster = PlannedCluster(read(tmp_path, GOOD))
    ask = cluster.prepare(ResourceRequest.parse(f"rset={text}", cluster.system.kinds))
    assert cluster.names_of(cluster.find(ask, 1000)) == [node]


def test_little_need_be_said(tmp_path):
    system = read(tmp_path, CORES)
    assert (system.name, system.nodes, system.walltime_s) == ("system", (Node("n", {"ncpus": 4}),), 3600)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name = ", "cannot be read"),
        ("", "nodes"),
        ("nodes = []", "nodes"),
        ("nodes = 3", "is no system"),
        ("nodes = ['n']", "is no system"),
        ("[nodes]\nname = 'n'", "is no system"),
        (NODE, "resources"),
        ("[[nodes]]\nresources = { ncpus = 4 }", "name"),
        (f"{NODE}resources = {{}}", "no resources"),
        (f"{NODE}resources = {{ ncpus = -4 }}", "cannot be that many: ncpus"),
        (f"{NODE}resources = {{ ncpus = {1 << 60} }}", "cannot be that many: ncpus"),
        (f"{NODE}resources = {{ ncpus = true }}", "no whole number"),
        (f"{NODE}resources = {{ ncpus = 1.5 }}", "no whole number"),
        (f"{NODE}resources = {{ ncpus = 'four' }}", "four"),
        (f"{NODE}resources = {{ walltime = 4 }}", "walltime is a word of requests"),
        (f"{CORES}count = 1.5", "count"),
        (f"{CORES}count = 'many'", "count"),
        (f"{CORES}count = 0\n[[nodes]]\nname = 'm'\nresources = {{ ncpus = 4 }}", "count"),
        (f"{CORES}priority = 'high'", "priority"),
        (f"{CORES}colour = 'red'", "colour"),
        (f"{CORES}properties = ['fast']", "is no system"),
        (f"{CORES}properties = {{ ncpus = 'fast' }}", "ncpus is counted, and a property"),
        (f"{CORES}admits = [{{ memm = '66G' }}]", "no node has memm"),
        (f"{CORES}admits = [{{ walltime = 'lots' }}]", "lots"),
        (f"{CORES}{CORES}", "names that differ"),
        (f"{CORES}[[reserves]]\nresource = 'gpus'\nkeeps = {{ ncpus = 1 }}", "no node has gpus"),
        (f"{CORES}[[reserves]]\nresource = 'ncpus'\nkeeps = {{ ncpu = 1 }}", "no node has ncpu"),
        (f"{CORES}[[reserves]]\nresource = 'ncpus'\nkeeps = {{ ncpus = -2 }}", "ncpus"),
        (f"{CORES}[[reserves]]\nresource = 'ncpus'", "keeps"),
        (f"{CORES}[[reserves]]\nresource = 'ncpus'\nkeeps = {{ ncpus = 1 }}\nmore = 1", "more"),
        (f"{CORES}[licences]\nncpus = 4", "ncpus belongs to nodes, and to none"),
        (f"{CORES}[licences]\ng03 = -4", "cannot be that many: g03"),
        (f"colour = 'red'\n{CORES}", "colour"),
        (f"walltime = 'lots'\n{CORES}", "lots"),
        (f"walltime = '0'\n{CORES}", "a second at least"),
        (f"walltime = '0.4s'\n{CORES}", "a second at least"),
    ],
)
def test_what_means_nothing_is_said_with_the_name_of_the_file(tmp_path, text, why):
    with pytest.raises(InputError, match=why) as told:
        read(tmp_path, text)
    assert str(tmp_path / "system.toml") in str(told.value)
    assert told.value.hint


def test_a_file_that_is_not_there_or_is_no_text_is_said(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.toml: cannot be read"):
        load_system(tmp_path / "nothing.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"binary\.toml: cannot be read"):
        load_system(path)
