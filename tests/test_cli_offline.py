"""What would be submitted, seen where there is no batch system."""

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
    return lambda *words, **how: asa("run", "flow.toml", *words, cwd=tmp_path, env=environment, **how)


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


def test_a_site_of_its_own_may_be_named(there, tmp_path):
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "far.toml").write_text('backend = "slurm-cli"\ncores_per_node = 28\npartition = "long"\n')
    told = there("--dry-run", "--offline", "--site", "far", "--output", "json", "--strategy", "big-job")
    (job,) = json.loads(told.stdout)["jobs"]
    assert job["cores"] == 128
    assert "nodes are taken" not in told.stderr


def test_nothing_runs_offline(there):
    assert "needs --dry-run" in there("--offline", code=2).stderr
    done = there("--backend", "slurm-cli", "--set", "offline=yes", "--strategy", "per-stage", code=2)
    assert "nothing is submitted offline" in done.stderr


def test_a_backend_that_must_be_asked_says_so(there):
    assert "goes with slurm-cli" in there("--dry-run", "--offline", "--backend", "local", code=2).stderr
