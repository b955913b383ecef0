"""Agents are kept in files that are safe to read, and refused where they do not fit."""

import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from asa.backends.dras.network import NetworkSize, initial
from asa.backends.dras.patient import Patient
from asa.backends.dras.ranking import first_ranks
from asa.backends.dras.rivals import dras
from asa.backends.dras.scheduler import OneLevel, TwoLevels
from asa.backends.dras.weights import Agent, Ranked, load_agent, read_file, save_agent, shipped, write_file
from asa.backends.simulated.cluster import Cluster, Load
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.policies import scheduler as by_name
from asa.backends.simulated.table import NEVER, JobTable

from asa.errors import InputError, StateError

SHAPE = NetworkSize("pg", 16, 4, (8, 6))


@pytest.fixture
def agent():
    parameters = initial(SHAPE, np.random.default_rng(0))
    command = "asa dras train mine.swf --seed 1"
    return Agent(SHAPE, parameters, 3600, 2, "Capability()", command, "mine.swf: days 1 to 9", 12, "c0ffee", 0.9)


@pytest.fixture
def file(agent, tmp_path):
    save_agent(agent, tmp_path / "agent.npz")
    return tmp_path / "agent.npz"


def test_an_agent_is_read_as_it_was_written(agent, file):
    """Numbers and words."""
    read = load_agent(file, nodes=16)
    assert (read.shape, read.scale_s, read.levels) == (agent.shape, agent.scale_s, agent.levels)
    for name in ("reward", "command", "source", "seen_days", "seen", "discount"):
        assert getattr(read, name) == getattr(agent, name)
    for name, array in agent.parameters.items():
        np.testing.assert_array_equal(read.parameters[name], array)
    assert [path.name for path in file.parent.iterdir()] == ["agent.npz"]


def test_another_machine_is_refused_with_what_to_do(file):
    """Both numbers are told."""
    with pytest.raises(StateError, match=r"agent.npz: was trained for 16 nodes, and there are 32\n.*for 32 nodes"):
        load_agent(file, nodes=32)


def change(file, *, header=None, arrays=None, compressed=False, pickled=False):
    """Write a file again with something else in it."""
    with np.load(file) as kept:
        held = {name: kept[name] for name in kept.files}
    told = json.loads(held["header"].tobytes()) | (header or {})
    held["header"] = np.frombuffer(json.dumps(told).encode(), dtype=np.uint8)
    held |= arrays or {}
    if pickled:
        held["last"] = np.array([{"a": 1}], dtype=object)
    (np.savez_compressed if compressed else np.savez)(file, **held)


def test_a_file_of_before_its_discount_was_written_is_read(file):
    """Its discount is unknown."""
    header, arrays = read_file(file)
    del header["discount"]
    write_file(file, header, arrays)
    assert load_agent(file).discount is None


def lying(file):
    """An array whose header claims a larger size."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)})
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("more.npy", stream.getvalue() + bytes(8))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda file: change(file, header={"version": 2}), r"version 2, and this program reads 1\n.*train anew"),
        (lambda file: change(file, header={"format": "other"}), "no file of an agent"),
        (lambda file: change(file, header={"content": "training"}), r"no trained agent\n.*best\.npz"),
        (lambda file: change(file, header={"nodes": 17}), r"other numbers than its header says\n.*another copy"),
        (lambda file: change(file, header={"nodes": 1 << 40}), "header that makes no sense"),
        (lambda file: change(file, header={"kind": "ppo"}), "header that makes no sense"),
        (lambda file: change(file, header={"more": 1}), "header that makes no sense"),
        (lambda file: change(file, arrays={"last_bias": np.full(4, np.nan, dtype=np.float32)}), "other numbers"),
        (lambda file: change(file, arrays={"last_bias": np.zeros(4)}), "other numbers"),
        (lambda file: change(file, arrays={"more": np.zeros(4, dtype=np.float32)}), "other numbers"),
        (lambda file: change(file, compressed=True), "no file of an agent"),
        (lambda file: change(file, pickled=True), "is not what it says"),
        (lying, "is not what it says"),
        (lambda file: file.write_bytes(file.read_bytes()[:300]), "no file of an agent"),
        (lambda file: file.write_bytes(b"GARBAGE" * 99), "no file of an agent"),
        (lambda file: file.unlink(), r"cannot be read: No such file or directory\nCheck the path"),
        (lambda file: (file.unlink(), file.mkdir()), "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_to_do(file, harm, words):
    """Nothing that could run is in a file, nor anything larger than it."""
    harm(file)
    with pytest.raises(StateError, match=words) as refusal:
        load_agent(file)
    assert refusal.value.hint


def test_what_cannot_be_written_is_told(agent, tmp_path):
    """With its place."""
    with pytest.raises(StateError, match="cannot be written"):
        save_agent(agent, tmp_path / "nowhere" / "agent.npz")


def test_an_agent_schedules_by_name(agent, file, tmp_path):
    """On as many levels as it was trained for."""
    rng = np.random.default_rng(1)
    table = JobTable(
        np.sort(rng.integers(0, 900, 80)), *[rng.integers(1, 99, 80) for _ in range(2)], rng.integers(1, 17, 80)
    )
    scheduler = dras(weights=str(file))
    assert isinstance(scheduler, TwoLevels)
    core = GeneralCore(Load(table, Cluster({"cores": 16})), scheduler)
    core.run(NEVER - 1)
    assert (core.start >= 0).all()
    one = Agent(agent.shape, agent.parameters, agent.scale_s, levels=1)
    save_agent(one, tmp_path / "one.npz")
    assert isinstance(dras(weights=str(tmp_path / "one.npz")), OneLevel)
    other = GeneralCore(Load(table, Cluster({"cores": 20})), dras(weights=str(file)))
    with pytest.raises(InputError, match="trained for 16 nodes, and there are 20"):
        other.run(NEVER - 1)


@pytest.mark.parametrize(("kind", "given"), [("pg", {"seed": 1}), ("dql", {"sample": True}), ("dql", {"seed": 1})])
def test_settings_that_mean_nothing_to_an_agent_of_a_file_are_refused(kind, given, tmp_path):
    """Draws, where none are made."""
    shape = NetworkSize(kind, 16, 4, (8, 6))
    save_agent(Agent(shape, initial(shape, np.random.default_rng(0))), tmp_path / "agent.npz")
    with pytest.raises(InputError, match=r"means nothing for .*agent\.npz, which draws nothing\nLeave it out"):
        dras(weights=str(tmp_path / "agent.npz"), **given)


@pytest.mark.parametrize(("given", "which"), [({"sample": "true"}, "sample"), ({"seed": "3"}, "seed")])
def test_settings_that_mean_nothing_to_the_agent_of_the_package_are_refused(given, which):
    """By name, as on the command line."""
    with pytest.raises(InputError, match=rf"dras, {which}: means nothing for the agent that comes with the package"):
        by_name("dras", given)


def test_an_agent_that_draws_does_so_if_asked_to(file):
    """The same seed gives the same draws."""
    rng = np.random.default_rng(1)
    runs = rng.integers(1, 99, 80)
    table = JobTable(np.sort(rng.integers(0, 900, 80)), runs, runs, rng.integers(1, 17, 80))
    starts = []
    for seed in ("1", "1", "2"):
        settings = {"weights": str(file), "sample": "true", "seed": seed}
        core = GeneralCore(Load(table, Cluster({"cores": 16})), by_name("dras", settings))
        core.run(NEVER - 1)
        starts.append(core.start.tolist())
    assert starts[0] == starts[1] != starts[2]


@pytest.fixture
def judge(tmp_path):
    ranked = Ranked(
        first_ranks(np.random.default_rng(0)),
        0.3,
        40,
        3600,
        "Waiting()",
        "asa dras train mine.swf",
        "mine.swf: days 1 to 9",
        12,
        "c0ffee",
    )
    save_agent(ranked, tmp_path / "judge.npz")
    return ranked, tmp_path / "judge.npz"


def test_a_judge_is_read_as_it_was_written_and_is_for_any_machine(judge):
    """Numbers and words; on 16 nodes and on 1600."""
    ranked, path = judge
    read = load_agent(path, nodes=1600)
    assert isinstance(read, Ranked)
    for name, array in ranked.parameters.items():
        np.testing.assert_array_equal(read.parameters[name], array)
    for name in ("patience", "window", "usual_s", "cost", "command", "source", "seen_days", "seen"):
        assert getattr(read, name) == getattr(ranked, name)
    scheduler = dras(weights=str(path))
    assert isinstance(scheduler, Patient)
    assert (scheduler.patience, scheduler.window, scheduler.usual_s) == (0.3, 40, 3600)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"header": {"columns": ["the weather"]}}, "look at jobs in another way\n.*Train anew"),
        ({"header": {"patience": -1.0}}, "header that makes no sense"),
        ({"header": {"version": 9}}, "version 9"),
        ({"arrays": {"rank": np.zeros((3, 1), dtype=np.float32)}}, "other numbers than its header"),
        ({"arrays": {"value": np.full((32, 1), np.nan, dtype=np.float32)}}, "other numbers than its header"),
    ],
)
def test_a_judge_that_does_not_fit_is_refused(judge, changed, said):
    """With its place."""
    change(judge[1], **changed)
    with pytest.raises(StateError, match=said):
        load_agent(judge[1])


def test_the_agent_that_comes_with_the_package_is_small_and_says_how_it_was_made():
    """It is what the scheduler of that name takes, if no other is named."""
    agent = shipped()
    assert sum(array.nbytes for array in agent.parameters.values()) < 200_000
    assert agent.command.startswith("asa dras train ")
    assert "built-in workload model" in agent.source
    scheduler = dras()
    assert isinstance(scheduler, Patient)
    assert scheduler.patience == agent.patience


def test_acting_needs_no_pytorch_and_learning_says_what_it_needs(file):
    """Nor does importing anything load it."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np, asa, asa.studies.dras.training\n"
        "from asa.backends.dras.weights import load_agent\n"
        "from asa.backends.dras.scoring import score\n"
        "from asa.studies.dras.learners import learner\n"
        "from asa.backends.simulated.table import JobTable\n"
        "from asa.errors import MissingExtraError\n"
        f"agent = load_agent({str(file)!r})\n"
        "ten = np.arange(1, 11)\n"
        "print(score(JobTable(ten, ten, ten, ten), 16, agent.scheduler()).max_wait_s >= 0)\n"
        "try: learner(agent.shape)\n"
        "except MissingExtraError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "True",
        "learning needs PyTorch, which is not installed",
        "pip install 'asa-client[dras]'",
    ]


def test_importing_loads_no_pytorch():
    """`asa --help` stays quick."""
    pytest.importorskip("torch")
    code = "import sys, asa.studies.dras.training, asa.backends.dras.rivals; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
