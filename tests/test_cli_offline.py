"""Previews of submissions where there is no batch system."""

import json

import pytest
from forked import asa

FLOW = """
name = "flow"
[defaults]
walltime = "1h"
[[stage]]
name = "solve"
cores = 128
cpus_per_task = 4
modules = ["gcc/12.2"]
launcher = "srun"
command = "./solve it"
partition = "batch"
options = ["--constraint=haswell"]
environment = { SECRET = "hush" }
[[stage]]
name = "plot"
after = ["solve"]
cores = 1
command = "plot out"
"""


@pytest.fixture
def there(tmp_path):
    """A folder with a workflow, and a PATH without any batch system's commands."""
    (tmp_path / "flow.toml").write_text(FLOW)
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "ASA_SITES": str(tmp_path / "sites"), "COLUMNS": "100"}

    def there(*words, command="run", code=0, **more):
        return asa(command, "flow.toml", *words, cwd=tmp_path, env={**environment, **more}, code=code)

    return there


def test_headers_environment_and_payload_are_seen_without_a_cluster(there, tmp_path):
    done = there("--dry-run", "--scripts", "--offline", "--strategy", "per-stage")
    for words in (
        "--partition=batch", "--constraint=haswell", "--cpus-per-task=4", "--time=60", "asa_modules=gcc/12.2",
        "srun --ntasks=32 --cpus-per-task=4", "./solve it",
    ):  # fmt: skip
        assert words in done.stdout
    assert (
        "Slurm is not asked, so that its partitions and limits are not known; nodes are taken to have 64" in done.stderr
    )
    assert not (tmp_path / "asa-runs").exists()


def test_a_dry_run_is_a_table_then_why_each_in_the_width_of_the_terminal(there, tmp_path):
    """An option shows what is sent; an array has the same cores as in `show` and `plan`; a warning takes one line."""
    stages = "".join(
        f'[[stage]]\nname = "{name}"\nwalltime = "1h"\n{keys}\n'
        for name, keys in (
            ("first", 'cores = 1\ncommand = "./nowhere/program"'),
            ("sweep", 'after = ["first"]\ncores = 2\narray = "1-12%3"\ncommand = "true"'),
            ("solve", 'after = ["sweep"]\nnodes = 1\ncommand = "true"'),
        )
    )
    (tmp_path / "flow.toml").write_text(f'name = "small"\n{stages}')
    where = ("--backend", "slurm", "--option", "offline=yes")
    shown = {
        "run": there("--dry-run", "--offline", COLUMNS="80"),
        "plan": there(*where, COLUMNS="80", command="plan"),
        "show": there(COLUMNS="80", command="show"),
    }
    for done in shown.values():
        assert max(map(len, done.stdout.splitlines())) <= 80
        assert "12x2" in next(line for line in done.stdout.splitlines() if "sweep " in line and "1h00m" in line)
    dry = shown["run"]
    head, *rows = dry.stdout.partition("\n\n")[2].splitlines()
    assert head.split() == ["Job", "of", "Cores", "Walltime", "Submit", "After", "Wait", "p50", "p90"]
    assert rows[1].split() == ["sweep", "12x2", "1h00m", "at", "once", "first", "unknown"]
    assert "14 jobs" in dry.stdout
    assert "sbatch" not in dry.stdout
    assert "sweep, solve: waits are not known here yet" in dry.stdout
    warned = [line for line in dry.stderr.splitlines() if line.startswith("Warning: ")]
    assert [line.endswith("./nowhere/program: no such file in " + str(tmp_path)) for line in warned] == [True]
    assert "What to do about it: asa check flow.toml" in dry.stderr
    assert "1 node " in shown["show"].stdout
    whole = there("--dry-run", "--offline", "--scripts").stdout
    assert whole.index("Nothing was submitted.") < whole.index("sweep: command") < whole.index("--array=1-12%3")


def test_a_site_of_its_own_may_be_named(there, tmp_path):
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "far.toml").write_text('backend = "slurm-cli"\ncores_per_node = 28\npartition = "long"\n')
    told = there("--dry-run", "--offline", "--site", "far", "--output", "json", "--strategy", "chained")
    job, *_ = json.loads(told.stdout)["jobs"]
    assert job["cores"] == 128
    assert "nodes are taken" not in told.stderr


def test_nothing_runs_offline(there):
    assert "needs --dry-run" in there("--offline", code=2).stderr
    done = there("--backend", "slurm-cli", "--set", "offline=yes", "--strategy", "per-stage", code=2)
    assert "nothing is submitted offline" in done.stderr


def test_a_backend_that_must_be_asked_says_so(there):
    assert "goes with slurm-cli" in there("--dry-run", "--offline", "--backend", "local", code=2).stderr
