"""``asa walltimes``, and what `asa run` makes of run times, as a user types it."""

import json
from types import SimpleNamespace

import pytest
import typer
from this_machine import Place
from typer.testing import CliRunner

from asa.cli.advise import advise
from asa.errors import AsaError
from asa.estimators.store import WaitStore
from asa.estimators.stored import WaitRecord
from asa.runtimes import RunTime, RunTimes
from asa.waits import QueuedJob, exactly

STAGES = """
name = "blast"
[[stage]]
name = "search"
cores = 112
walltime = "2:00:00"
command = "search"
[[stage]]
name = "merge"
cores = 1
walltime = "10min"
after = ["search"]
command = "merge"
[[stage]]
name = "plot"
cores = 1
walltime = "10min"
after = ["merge"]
command = "plot"
"""


def asa(*arguments, code=0):
    """Run the command in this process, which is faster than a new one."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(advise)
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "100"})
    if isinstance(done.exception, AsaError):
        assert done.exception.exit_code == code, done.exception
        return SimpleNamespace(stdout=done.stdout, stderr=str(done.exception))
    assert done.exit_code == code, done.output
    return done


def ran(stage, times, cores=1, system="hpc2n", kind="exact"):
    return [
        RunTime("blast", stage, cores, float(run_s), float(i), system, None, kind, f"{stage}-{system}-{i}")
        for i, run_s in enumerate(times)
    ]


@pytest.fixture
def place(tmp_path):
    """Return a workflow whose search requests too much and whose merge too little, and a bank of their run times."""
    (tmp_path / "flow.toml").write_text(STAGES)
    log = RunTimes(tmp_path / "bank")
    log.observe(ran("search", [800 + 3 * i for i in range(14)], cores=112))
    log.observe(ran("merge", [500, 510, 520, 530, 540, 550]))
    return SimpleNamespace(flow=tmp_path / "flow.toml", bank=("--bank", tmp_path / "bank"), folder=tmp_path / "bank")


def row(text, name):
    return next(line.split() for line in text.splitlines() if line.startswith(f"{name} "))


def test_advice_on_each_stage(place):
    """Each stage has its request, a sufficient walltime, and the reason."""
    text = asa(place.flow, *place.bank).stdout
    assert "blast on hpc2n" in text
    assert row(text, "search")[1:4] == ["112", "14", "13m51s"]
    assert row(text, "search")[-2:] == ["2h00m", "20m00s"]
    assert row(text, "merge")[-2:] == ["10m00s", "20m00s"]
    assert row(text, "plot")[-2:] == ["10m00s", "?"]
    flat = " ".join(text.split())
    assert "search asks for 2h00m; the longest of 14 runs took " in flat
    assert "20m00s would do. The bank knows too few waits to tell how much less it would wait." in flat
    assert "merge is close to its walltime of 10m00s" in flat
    assert "plot: has not run yet" in flat


def test_the_bank_tells_how_much_less_it_would_wait(place):
    """The bank has seen enough jobs with both walltimes."""
    with WaitStore(place.folder, durable=False) as store:
        store.extend(
            WaitRecord(QueuedJob(600.0 * i, 112, walltime_s, "ada", "hpc2n", "batch"), exactly(wait_s))
            for i in range(60)
            for walltime_s, wait_s in ((7200.0, 3600.0 + i), (1200.0, 300.0 + i))
        )
    assert "less, by the waits in the bank" in " ".join(asa(place.flow, *place.bank).stdout.split())
    [search, *_] = json.loads(asa(place.flow, *place.bank, "--output", "json").stdout)["stages"]
    assert search["wait_s"] - search["suggested_wait_s"] > 1800


def test_as_json(place):
    """The document has the version of its schema."""
    told = json.loads(asa(place.flow, *place.bank, "--output", "json").stdout)
    assert (told["schema"], told["workflow"], told["system"]) == (1, "blast", "hpc2n")
    assert [stage["verdict"] for stage in told["stages"]] == ["less", "more", "unknown"]
    search, _, plot = told["stages"]
    assert (search["walltime_s"], search["suggested_s"], search["run"]["count"]) == (7200, 1200, 14)
    assert (plot["run"], search["wait_s"]) == (None, None)


def test_a_run_that_was_cut_off_is_told_of(place):
    """The number of interrupted runs does not matter."""
    RunTimes(place.folder).observe(ran("plot", [600], kind="at_least"))
    assert "plot was killed at its walltime of 10m00s" in " ".join(asa(place.flow, *place.bank).stdout.split())


def test_another_system_is_a_guess(place):
    """The answer names the system of the runs, and gives no advice."""
    RunTimes(place.folder).observe(ran("merge", [100], system="theta"))
    assert "It also ran on: theta." in asa(place.flow, *place.bank).stdout
    text = " ".join(asa(place.flow, *place.bank, "--system", "theta").stdout.split())
    assert "blast on theta" in text
    assert "merge: from 1 run: too few to advise on" in text
    assert "search: from 14 runs, on hpc2n, a guess for theta: too far off to advise on" in text


def test_nothing_known_says_how_it_comes_to_be(tmp_path):
    """Unknown run times are no error, with a file or without one."""
    (tmp_path / "flow.toml").write_text(STAGES)
    for arguments in ((), (tmp_path / "flow.toml",)):
        text = " ".join(asa(*arguments, "--bank", tmp_path / "bank").stdout.split())
        assert "known yet" in text
        assert "Each `asa run` notes in the bank how long its stages ran" in text
    assert json.loads(asa("--bank", tmp_path / "bank", "--output", "json").stdout) == {"schema": 1, "stages": []}
    assert not (tmp_path / "bank").exists()


def test_all_that_is_known_is_shown_without_a_file(place):
    """The table has each stage on each system and width."""
    RunTimes(place.folder).observe(ran("merge", [100], system="theta"))
    lines = [line.split()[:5] for line in asa(*place.bank).stdout.splitlines() if line.startswith("blast")]
    assert lines == [
        ["blast", "merge", "hpc2n", "1", "6"],
        ["blast", "merge", "theta", "1", "1"],
        ["blast", "search", "hpc2n", "112", "14"],
    ]
    assert len(json.loads(asa(*place.bank, "--output", "json").stdout)["stages"]) == 3


def test_run_times_are_forgotten(place):
    """First one stage is forgotten, then all stages."""
    assert "6 run times of blast/merge deleted" in asa(*place.bank, "--forget", "blast/merge").stderr
    assert {run.stage for run in RunTimes(place.folder).read()} == {"search"}
    assert "14 run times" in asa(*place.bank, "--forget", "blast").stderr
    assert "0 run times" in asa(*place.bank, "--forget", "blast").stderr
    assert "names no workflow" in asa(*place.bank, "--forget", "/merge", code=2).stderr
    assert "does not go with a file" in asa(place.flow, *place.bank, "--forget", "blast", code=2).stderr


# ---------------------------------------------------------------------- of real runs


@pytest.fixture
def machine(tmp_path):
    made = Place(tmp_path)
    yield made
    made.close()


def test_runs_learn_how_long_stages_run(machine):
    """The first run expects its file's run times, the next one the measured ones; a resumed run adds nothing twice."""
    flow = 'name = "flow"\n' + "".join(
        f'[[stage]]\nname = "{name}"\ncores = 1\nwalltime = "2h"\nexpected = {expected}\ncommand = "sleep {s}"\n'
        for name, expected, s in (("a", '"learn"', 2), ("b", '"5min"', 0))
    )
    (machine.root / "flow.toml").write_text(flow)
    first = machine.asa("run", "flow.toml", *machine.on)
    assert "a: expected 2h00m, its run time is not known yet" in first.stderr
    log = RunTimes(machine.root / "bank")
    [a] = log.of("flow", "a")
    assert (a.cores, a.kind) == (1, "exact")
    assert 1 <= a.run_s <= 30
    assert len(log.read()) == 2
    machine.asa("resume", machine.runs()[0])
    shown = machine.asa("run", "flow.toml", *machine.on, "--dry-run")
    assert ", from 1 run\n" in shown.stderr
    assert "b:" not in shown.stderr
    assert len(log.read()) == 2
    log.observe([RunTime("flow", "a", 1, 2.0, float(i), a.system, id=str(i)) for i in range(6)])
    second = machine.asa("run", "flow.toml", *machine.on)
    assert "a: expected 2s, from 7 runs" in second.stderr
    assert "a asks for 2h00m; the longest of 8 runs took" in second.stderr
    assert "may start sooner. More on this: asa walltimes flow.toml" in second.stderr
    [plan] = [json.loads((run / "run.json").read_text()) for run in machine.runs()[1:]]
    assert [stage["expected_run_s"] for stage in plan["stages"]] == [2.0, 300.0]


def test_elements_of_an_array_learn_how_long_one_runs(machine):
    """Here they take turns, two at a time; each sleeps for as many seconds as its number."""
    (machine.root / "flow.toml").write_text(
        'name = "flow"\n[[stage]]\nname = "a"\ncores = 1\nwalltime = "5min"\narray = "0-2"\n'
        'expected = "learn"\ncommand = "sleep $SLURM_ARRAY_TASK_ID"\n'
    )
    machine.asa("run", "flow.toml", *machine.on)
    [a] = RunTimes(machine.root / "bank").of("flow", "a")
    assert (a.cores, a.kind) == (1, "exact")
    assert 2 <= a.run_s < 2.9, "the longest, not two in turn"
    assert "a: expected 2s, from 1 run\n" in machine.asa("run", "flow.toml", *machine.on, "--dry-run").stderr


def test_an_old_run_does_not_bring_back_what_was_forgotten(machine):
    """The old run is resumed, and would report its run times again; only stages that run again are learned."""
    machine.asa("run", machine.flow(("a", "", "true"), ("b", "a", "test -e mended")), *machine.on, code=1)
    log = RunTimes(machine.root / "bank")
    assert [run.stage for run in log.read()] == ["a"]
    machine.asa("advise", "--forget", "flow")
    (machine.root / "mended").touch()
    machine.asa("resume", "--retry", machine.runs()[0])
    assert [run.stage for run in log.read()] == ["b"]
    machine.asa("resume", "--from", "a", machine.runs()[0])
    assert sorted(run.stage for run in log.read()) == ["a", "b", "b"]


@pytest.mark.full
def test_a_failed_run_tells_of_what_completed(machine):
    """Nothing is learned from failed stages; without a bank, nothing is kept."""
    chain = (("a", "", "sleep 1"), ("b", "a", "sleep 1; exit 3"))
    machine.asa("run", machine.flow(*chain), *machine.on, "--bank", "none", code=1)
    assert not (machine.root / "bank").exists()
    machine.asa("run", machine.flow(*chain), *machine.on, code=1)
    assert [run.stage for run in RunTimes(machine.root / "bank").read()] == ["a"]
