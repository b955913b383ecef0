"""What Snakemake's own executor for Slurm takes, asa does, or names what it uses in its place, once."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from snakemake_noted import FORMER, NEWEST, workflow
from snakemake_runs import CHAIN, INSTALLED, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

TABLE = tomllib.loads((Path(__file__).parents[1] / "data" / "snakemake_slurm.toml").read_text())
RESOURCES, OPTIONS = TABLE["resources"], TABLE["options"]
ASK = """
import dataclasses, json, snakemake_executor_plugin_slurm as plugin
print(json.dumps([field.name for field in dataclasses.fields(plugin.ExecutorSettings)]))
"""


def of_version(table, version):
    return {name: row for name, row in table.items() if row.get("since", 1) <= version}


@pytest.mark.parametrize(("plugin", "version"), [(NEWEST, 2), (FORMER, 1)])
def test_the_table_has_all_that_the_executor_reads(plugin, version):
    """Its options by its own settings; the resources that its source asks a job for."""
    if not (plugin / ".installed").exists():
        pytest.skip(f"no plug-in in {plugin}: install it with tests/snakemake/install.sh")
    env = dict(os.environ) | {"PYTHONPATH": f"{INSTALLED}:{plugin}"}
    told = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=True)
    assert set(json.loads(told.stdout)) == set(of_version(OPTIONS, version))
    files = [*(plugin / "snakemake_executor_plugin_slurm").glob("*.py")]
    source = "".join(file.read_text() for file in files)
    read = set(re.findall(r'resources\.get\(\s*"(\w+)"', source)) | set(
        re.findall(r"resources\.([a-z]\w+)\b(?!\()", source)
    )
    assert read - {"get"} <= set(RESOURCES), read - set(RESOURCES)


def test_each_resource_is_in_the_job(noting):
    """As the table says it. Nothing is said of any."""
    rules = {name: (1, {name: row["example"]} | row.get("with", {})) for name, row in RESOURCES.items()}
    noted = noting.asa(workflow(rules), partitions="normal:long")
    assert noted.jobs.keys() == RESOURCES.keys(), noted.said
    wrong = {
        name: (row["sbatch"], noted.jobs[name])
        for name, row in RESOURCES.items()
        if not _has(noted.jobs[name], row["sbatch"])
    }
    assert not wrong
    assert "In place of" not in noted.said


def _has(job, options):
    return options.items() <= {name: value or "" for name, value in job.items()}.items()


PROFILE = """executor: slurm
jobs: 2000
default-resources:
  slurm_account: ours
{sent}  runtime: 30
set-resources:
  large:
    mem_mb: 3000
    slurm_extra: "'--nice=150'"
"""


@pytest.mark.parametrize("plugin", [None, NEWEST, FORMER])
def test_a_profile_for_that_executor_holds_as_a_whole(noting, tmp_path, plugin):
    """With its newest version installed, its former one, and without it."""
    options = of_version(OPTIONS, 1 if plugin == FORMER else 2)
    options = {name: row for name, row in options.items() if name not in {"no_requeue", "no_account"}}
    file = tmp_path / "partitions.yaml"
    file.write_text("partitions:\n  small: {max_mem_mb: 100}\n  long: {max_mem_mb: 4000}\n")
    values = {name: row.get("value", True) for name, row in options.items()} | {"partition_config": str(file)}
    profile = tmp_path / "profile"
    profile.mkdir()
    lines = [f"slurm-{name.replace('_', '-')}: {json.dumps(values[name])}\n" for name in options]
    sent = "" if "partition_config" in options else "  slurm_partition: long\n"
    (profile / "config.yaml").write_text(PROFILE.format(sent=sent) + "".join(lines))
    noted = noting.asa(
        workflow({"large": (1, {}), "other": (2, {"qos": "high"})}),
        "--profile",
        profile,
        plugin=plugin,
        partitions="normal:long:small",
    )
    assert len(noted.jobs) == 2, noted.said
    for job in noted.jobs.values():
        assert _has(job, {"account": "ours", "partition": "long", "time": "30"})
        for row in options.values():
            assert _has(job, row.get("sbatch", {}))
    assert _has(noted.jobs["large"], {"nice": "150", "mem": 3000})
    notes = [line for line in noted.said.splitlines() if line.startswith("In place of")]
    for name, row in options.items():
        about = [line for line in notes if re.search(rf"--slurm-{name.replace('_', '-')}[,:]", line)]
        assert len(about) == ("instead" in row), (name, notes)
        assert all(row["instead"] in line for line in about)


def test_a_variable_names_the_file_of_partitions_and_an_option_another(noting, tmp_path, monkeypatch):
    """The option counts. A file that is none is refused, with its place."""
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"partitions: {{{name}: {{max_runtime: 2h}}}}")
    monkeypatch.setenv("SNAKEMAKE_SLURM_PARTITIONS", str(tmp_path / "one"))
    text, known = workflow({"rule1": (1, {"runtime": 60})}), "normal:one:two"
    assert noting.asa(text, partitions=known).jobs["rule1"]["partition"] == "one"
    given = ("--slurm-partition-config", tmp_path / "two")
    assert noting.asa(text, *given, partitions=known).jobs["rule1"]["partition"] == "two"
    for limits, said in (
        ("max_runtimes: 2h", "no limit is called 'max_runtimes'"),
        ("max_mem_mb: 64GB", "two: max_mem_mb: '64GB' is no number"),
    ):
        (tmp_path / "two").write_text(f"partitions: {{two: {{{limits}}}}}")
        refused = noting.asa(text, *given, partitions=known)
        assert not refused.jobs
        assert said in refused.said


def test_a_partition_may_list_its_only_model_of_gpus_as_a_text(noting, tmp_path):
    """As with that executor."""
    (tmp_path / "file").write_text("partitions: {one: {max_gpu: 2, available_gpu_models: a100}, two: {max_gpu: 8}}")
    rules = {f"rule{n}": (1, {"gpu": 2, "gpu_model": model}) for n, model in ((1, "a100"), (2, "h100"))}
    noted = noting.asa(workflow(rules), "--slurm-partition-config", tmp_path / "file", partitions="normal:one:two")
    assert {name: job["partition"] for name, job in noted.jobs.items()} == {"rule1": "one", "rule2": "two"}


def test_tasks_of_a_node_are_for_mpi_and_a_rule_without_is_told_so_once(noting):
    """As with that executor, which says nothing of it."""
    rules = {name: (1, {"tasks_per_node": 2, "nodes": 2}) for name in ("one", "two")}
    noted = noting.asa(workflow(rules))
    assert noted.said.count("In place of tasks_per_node: a rule without `mpi` has one task") == 1
    assert all(_has(job, {"nodes": "2", "ntasks": "1"}) for job in noted.jobs.values())


def test_a_flag_that_is_the_opposite_of_another(noting):
    """They have their effect alone, and are refused together."""
    text = workflow({"one": (1, {"slurm_account": "ours"})})
    noted = noting.asa(text, "--slurm-no-requeue", "--slurm-no-account")
    assert _has(noted.jobs["one"], {"no-requeue": ""})
    assert "account" not in noted.jobs["one"]
    both = noting.asa(text, "--slurm-no-requeue", "--slurm-requeue")
    assert not both.jobs
    assert "--slurm-requeue and --slurm-no-requeue" in both.said


@pytest.mark.parametrize("text", [
    "-C foo --mail-type ALL",
    "-Cfoo --mail-type=ALL",
    "'-C foo --mail-type=ALL'",
    "\"--constraint='foo' --mail-type 'ALL'\"",
    '--constraint="foo"   --mail-type=ALL',
])  # fmt: skip
def test_further_options_in_any_spelling(noting, text):
    """Short or long, with a blank or =, in quotes or not."""
    noted = noting.asa(workflow({"one": (1, {"slurm_extra": text})}))
    assert _has(noted.jobs["one"], {"constraint": "foo", "mail-type": "ALL"}), noted.said


def test_further_options_that_asa_decides_itself_are_named_once(noting):
    """Where a job is sent is heeded; as on sbatch's command line, the last one counts."""
    extra = "--comment=mine{n} -J own --output=x.log -p long --account=theirs --nice=5 --clusters=here"
    rules = {f"r{n}": (1, {"slurm_extra": extra.format(n=n), "slurm_account": "ours"}) for n in range(2)}
    noted = noting.asa(workflow(rules), partitions="normal:long")
    assert len(noted.jobs) == 2, noted.said
    for job in noted.jobs.values():
        assert _has(job, {"nice": "5", "partition": "long", "account": "theirs"})
    assert noted.said.count("In place of --comment in slurm_extra: rule and wildcards are in") == 1
    assert noted.said.count("In place of --job-name in slurm_extra: jobs are named after") == 1
    assert noted.said.count("In place of --output in slurm_extra: all outputs") == 1


@pytest.mark.parametrize(("resources", "words"), [
    ({"slurm_extra": "--mail-user 'ann"}, "Close its quotes"),
    ({"slurm_extra": "nice=5"}, "is no option of sbatch"),
    ({"slurm_extra": "--begin=now+1hour"}, "asa decides when a job may begin"),
    ({"cluster": "there"}, "asks for cluster 'there', and this one is 'here': the setting `cluster` names another"),
    ({"slurm_extra": "-M there"}, "asks for cluster 'there', and this one is 'here'"),
])  # fmt: skip
def test_what_cannot_be_had_is_refused_before_anything_is_submitted(noting, resources, words):
    """With what to do."""
    noted = noting.asa(workflow({"one": (1, resources), "two": (1, {})}))
    assert not noted.jobs
    assert words in noted.said


@pytest.mark.parametrize("lower", [("--cores", "64"), ("--max-threads", "64"), ("--set-threads", "large=64")])
def test_more_threads_than_a_node_has_are_refused_with_the_options_that_lower_them(noting, lower):
    """Each of which does so."""
    text = workflow({"large": (100, {}), "other": (1, {})})
    refused = noting.asa(text)
    assert not refused.jobs
    assert "asks for 100 cores of a node for each task in partition 'normal', which gives at most 64" in refused.said
    assert lower[0] in refused.said
    assert _has(noting.asa(text, *lower).jobs["large"], {"cpus-per-task": "64"})


def test_this_computer_has_as_many_threads_as_it_has_cores(project):
    """As with Snakemake's own local executor: rules with more are scaled down, in what they run as well."""
    text = 'rule all:\n    output: "1.txt"\n    threads: 99\n    shell: "echo {threads} > {output}"\n'
    ours = project(text)
    ours.run()
    assert (ours.folder / "1.txt").read_text() == "4\n"


def test_this_computer_names_what_it_does_not_heed(project):
    """Options as well as resources, once."""
    ours = project(CHAIN.format(then="true").replace('"2.txt"', '"2.txt"\n    resources: gpu=1, mem_mb=100', 1))
    said = ours.run("--slurm-qos", "high")
    assert said.count("not what rules say of: --slurm-qos, gpu, mem_mb.") == 1
