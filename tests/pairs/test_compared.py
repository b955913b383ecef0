"""Any file that `asa check` accepts is compared, or refused with a reason: each kind of stage, and other keys."""

from random import Random

import pytest
from asa.backends.simulated import Machine, SimulatedSite, WorkloadModel

from asa.cli.compare import _named, _possible, workflow_of
from asa.errors import AsaError
from asa.studies.compare.study import Comparison, compare
from pairs.kinds import KINDS
from pairs.rows import Row

MORE = {
    "MPI": 'ntasks = 16\ncpus_per_task = 2\nlauncher = "srun"\ncommand = "./a.out"',
    "MPI on nodes": 'nodes = 2\nntasks = 8\nlauncher = "mpirun"\ncommand = "./a.out"',
    "GPUs of nodes": 'nodes = 2\ngpus = 4\ncommand = "true"',
    "modules": 'cores = 4\nmodules = ["gcc/13", "openmpi"]\ncommand = "true"',
    "conda": 'cores = 4\nconda = "tools"\ncommand = "true"',
    "container": 'cores = 4\ncontainer = "image.sif"\nbinds = ["/data"]\ncommand = "true"',
    "secrets": 'cores = 4\nsecrets = ["TOKEN"]\nenvironment = { A = "1" }\ncommand = "true"',
    "elsewhere": 'cores = 4\npartition = "gpu"\naccount = "us"\nreservation = "course"\nnice = 10\ncommand = "true"',
    "options": 'cores = 4\noptions = ["--tmp=1G", "--constraint=fast"]\ncommand = "true"',
    "burst buffer": 'cores = 4\nburst_buffer = "1T"\ncommand = "true"',
    "shapes of nodes": 'nodes = [1, 2]\nexpected = { 1 = "400s", 2 = "220s" }\ncommand = "true"',
    "a law of shapes": 'cores = [4, 8]\nexpected = "200s"\nscaling = "amdahl"\ncommand = "true"',
    "learned": 'cores = 4\nexpected = "learn"\ncommand = "true"',
    "after its start": 'cores = 4\nafter_start = ["a"]\nstart_delay = "1min"\ncommand = "true"',
    "after any end": 'cores = 4\nafter_any = ["a"]\ncommand = "true"',
    "requested": 'request = ["--nodes=2", "--ntasks-per-node=4", "--mem=8G"]\ncommand = "true"',
    "wider than the centre": 'cores = 4096\ncommand = "true"',
    "more nodes than the centre": 'nodes = 200\ncommand = "true"',
}
"""What a stage may say that is no kind of its own."""
REFUSED = {"wider than the centre", "more nodes than the centre"}


@pytest.fixture(scope="module")
def site():
    model = WorkloadModel(Machine("small", 8, 16), load=0.7, log2_widest=6.0)
    made = SimulatedSite(model=model, age_accrues=False)
    made.prepare([0])
    return made


@pytest.fixture(autouse=True)
def nothing_known(tmp_path, monkeypatch):
    for name in ("ASA_BANK", "ASA_SITES"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr("shutil.which", lambda *_args, **_how: None)  # no accounting is asked


def text_of(name):
    """Write a workflow in which the stage is between two others."""
    if name in KINDS:
        return Row("", (name,), behind="one").text
    said = MORE[name]
    has_time = any(line.startswith("expected") for line in said.splitlines())
    ends = 'cores = 1\nwalltime = "10min"\nexpected = "200s"\ncommand = "true"\n'
    time = "" if has_time else 'expected = "200s"\n'
    tried = f'name = "t0"\nafter = ["a"]\nwalltime = "10min"\n{time}{said}\n'
    return f'name = "row"\n[[stage]]\nname = "a"\n{ends}[[stage]]\n{tried}[[stage]]\nname = "x"\nafter = ["t0"]\n{ends}'


def outcome(name, site, folder):
    """Compare all strategies in a workflow with the stage; say why not, if it is refused."""
    for stage in ("a", "t0", "x"):
        (folder / f"{stage}.sh").write_text("#!/bin/sh\ntrue\n")
        (folder / f"{stage}.tasks").write_text("true\n" * 6)
    (folder / "row.toml").write_text(text_of(name))
    try:
        make, cores = workflow_of(str(folder / "row.toml"), None, None, {}, site)
        made = _possible(Comparison(make, site, cores, _named(None, make(cores[0])), (0,), history=50))
        runs = compare(made, jobs=1)
    except AsaError as error:
        return f"refused: {error.message}"
    assert [run.strategy for run in runs] == list(made.strategies)
    assert len(made.strategies) >= 4
    return "".join(f"{run.strategy}: {run.reason}; " for run in runs if run.metrics is None)


def check(names, site, folder):
    wrong = {}
    for name in names:
        refusal = outcome(name, site, folder)
        if name in REFUSED:
            assert "larger than 'small', which has 128" in refusal
        elif refusal:
            wrong[name] = refusal
    assert wrong == {}


def test_what_a_stage_may_say_can_be_compared(site, tmp_path):
    check(MORE, site, tmp_path)


@pytest.mark.full
def test_each_kind_of_stage_can_be_compared(site, tmp_path):
    check(KINDS, site, tmp_path)


def test_some_kinds_of_stages_can_be_compared(site, tmp_path):
    check(Random(49).sample(list(KINDS), 6), site, tmp_path)
