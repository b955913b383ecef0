"""The command line, as a user types it."""

import csv
import io
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from forked import ASA, asa
from slurm_testbed import until

LOG = "; MaxProcs: 64\n" + "".join(
    f"{i} {i * 300} -1 {200 + 997 * i % 3000} 8 -1 -1 {1 + 31 * i % 40} {3600} -1 1 1 1 1 1 1 -1 -1\n"
    for i in range(2000)
)
FLOW = """\
name = "tiny"
[[stage]]
name = "wide"
cores = 16
walltime = "10min"
expected = "5min"
[[stage]]
name = "narrow"
cores = 1
walltime = "10min"
expected = "2min"
after = ["wide"]
"""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


@pytest.fixture
def flow(tmp_path):
    path = tmp_path / "flow.toml"
    path.write_text(FLOW)
    return path


def test_help_is_for_someone_who_never_heard_of_it():
    """What it does, a first command, exit codes."""
    text = asa("--help").stdout
    for words in ("ahead of time", "asa init", "Exit codes", "compare", "workload", "list"):
        assert words in text
    assert "In each replication every strategy" in asa("compare", "--help").stdout
    assert asa("--version").stdout.startswith("asa 0.")


def test_list_shows_what_names_stand_for():
    """Each with its first sentence."""
    text = asa("list").stdout
    for name in ("montage", "blast", "statistics", "big-job", "asa-naive-hold", "oracle", "simulated"):
        assert name in text


def test_tables_on_a_log(log, flow):
    """One table a core count, a sentence, averages; nothing else on standard output."""
    options = ("--seeds", 3, "--strategies", "big-job,per-stage,asa,chained", "--jobs", 1)
    done = asa("compare", flow, "--trace", log, *options)
    for words in ("tiny on log", "16 cores", "per-stage", "Makespan", "asa finishes"):
        assert words in done.stdout
    assert "Above the best" not in done.stdout
    done = asa("compare", "blast", "--cores", "8,16", "--trace", log, *options)
    assert "Above the best strategy, averaged over core counts" in done.stdout


def test_what_is_assumed_of_run_times_is_said_once_and_that_jobs_hardly_wait(log, tmp_path):
    """The first before the simulation; a stage of one core never waits on this log."""
    path = tmp_path / "unknown.toml"
    path.write_text('name = "tiny"\n[[stage]]\nname = "one"\ncores = 1\nwalltime = "5min"\ncommand = "true"\n')
    options = ("--seeds", 1, "--strategies", "per-stage,chained", "--jobs", 1)
    done = asa("compare", path, "--trace", log, *options)
    assert done.stderr.count("run times are not known of one") == 1
    assert "run times are not known" not in done.stdout
    assert "jobs like these hardly wait there, for at most 0 % of the makespan" in " ".join(done.stdout.split())


def strategies_of(done):
    return list(dict.fromkeys(run["strategy"] for run in json.loads(done.stdout)))


def test_stages_of_several_shapes_are_compared_with_and_without_a_choice(log, flow, tmp_path):
    """Of a file as of an installed workflow: asa-plan has a row of its own in which it chooses."""
    options = ("--trace", log, "--seeds", 1, "--jobs", 1)
    usual = ["big-job", "per-stage", "asa", "chained", "asa-plan"]
    several = [*usual[:-1], "asa-plan:shapes=own", "asa-plan"]
    path = tmp_path / "several.toml"
    shapes = 'cores = [16, 4]\nexpected = { 16 = "5min", 4 = "20min" }'
    path.write_text(FLOW.replace("cores = 16\n", f"{shapes}\n", 1).replace('expected = "5min"\n', "", 1))
    assert strategies_of(asa("compare", flow, *options, "--output", "json")) == usual
    assert strategies_of(asa("compare", path, *options, "--output", "json")) == several
    blast = ("compare", "blast", "--cores", 16, *options)
    assert strategies_of(asa(*blast, "--output", "json")) == usual
    assert strategies_of(asa(*blast, "--widths", "4,16", "--output", "json")) == several
    assert "asa-plan chooses a shape for each stage" in asa(*blast, "--widths", "4,16").stdout
    assert "--widths" in asa("compare", path, "--widths", 4, code=2).stderr


def test_a_strategy_that_cannot_run_the_workflow_is_left_out_and_refused_by_name(log, flow, tmp_path):
    """Big Job would charge all stages to one account."""
    path, options = tmp_path / "accounts.toml", ("--trace", log, "--seeds", 1, "--jobs", 1)
    path.write_text(FLOW.replace("cores = 16\n", 'cores = 16\naccount = "p"\n', 1))
    done = asa("compare", path, *options, "--output", "json")
    assert strategies_of(done) == ["per-stage", "asa", "chained", "asa-plan"]
    assert "big-job is left out: its stages ask for 2 accounts (the site's own, p)" in done.stderr
    refused = asa("compare", path, *options, "--strategies", "per-stage,big-job", code=2).stderr
    assert "strategy 'big-job': its stages ask for 2 accounts" in refused


def test_json_has_a_record_a_run(log):
    """With the promised fields, and the same numbers for the same seed."""
    arguments = ("compare", "blast", "--trace", log, "--cores", "16,32", "--seeds", 2, "--seed", 5, "--output", "json")
    first = asa(*arguments, "--no-age-accrues", "--jobs", 1).stdout
    assert first == asa(*arguments, "--no-age-accrues", "--jobs", 2).stdout
    runs = json.loads(first)
    assert len(runs) == 2 * 5 * 2
    promised = {
        "workflow", "system", "cores", "strategy", "seed", "age_accrues", "twt_s", "makespan_s", "core_hours",
        "overhead_core_hours", "hits", "misses",
    }  # fmt: skip
    assert all(promised <= set(run) for run in runs)
    assert {run["seed"] for run in runs} == {5, 6}
    assert {run["age_accrues"] for run in runs} == {False}
    for run in runs:
        waits = sum(stage["perceived_wait_s"] for stage in run["stages"])
        assert run["twt_s"] == waits
        assert run["makespan_s"] == pytest.approx(run["twt_s"] + run["execution_s"])


def test_csv_has_a_line_a_run(log, flow):
    """Without the nested stages."""
    done = asa("compare", flow, "--trace", log, "--seeds", 2, "--strategies", "asa", "--csv", "--jobs", 1)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 2
    assert rows[0]["strategy"] == "asa"
    assert float(rows[0]["makespan_s"]) > 0


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_figure_is_drawn(log, flow, tmp_path, suffix):
    """Whole, and said where."""
    target = tmp_path / f"bars.{suffix}"
    options = ("--seeds", 1, "--strategies", "asa,big-job", "--jobs", 1)
    done = asa("compare", flow, "--trace", log, *options, "--plot", target)
    assert str(target) in done.stderr
    start = target.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") or b"<svg" in start or b"<?xml" in start
    assert target.stat().st_size > 5000


def test_a_centre_is_the_default():
    """The busier one, at the paper's sizes; here one of them, narrower."""
    runs = json.loads(
        asa("compare", "blast", "--cores", 28, "--seeds", 1, "--strategies", "per-stage", "--output", "json").stdout
    )
    assert [(run["system"], run["cores"]) for run in runs] == [("uppmax", 28)]


def test_an_odd_log_is_used_and_said_to_be_odd(tmp_path, flow):
    """Each rule with its count."""
    path = tmp_path / "odd.swf"
    path.write_text(LOG + "9 99 -1 0 1 -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1\n9 98 -1 9 1 -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1\n")
    done = asa("compare", flow, "--trace", path, "--seeds", 1, "--strategies", "asa,per-stage", "--jobs", 1)
    assert "1 jobs left out: run time 0 or unknown" in done.stdout
    assert "1 jobs not in order of submission: sorted" in done.stdout


BAD = [
    (["compare", "montaje"], "no workflow 'montaje'", "Did you mean 'montage'"),
    (["compare", "montage", "--system", "hpc2"], "no system 'hpc2'", "Did you mean 'hpc2n'"),
    (["compare", "montage", "--strategies", "asa,perstage"], "no strategy 'perstage'", "Did you mean 'per-stage'"),
    (["compare", "montage", "--strategies", ","], "names nothing", "--strategies"),
    (["compare", "montage", "--seeds", "0"], "--seeds", "1"),
    (["compare", "montage", "--cores", "28,many"], "not numbers of cores", "--cores"),
    (["compare", "montage", "--cores", "0"], "not numbers of cores", "--cores"),
    (["compare", "montage", "--widths", "wide"], "not numbers of cores", "--widths"),
    (
        ["compare", "montage", "--cores", "20000"],
        "a job of 20000 cores is larger than 'uppmax', which has 9720",
        "at most 9720",
    ),
    (["compare", "montage", "--estimator", "asa-tunde"], "no estimator 'asa-tunde'", "Did you mean 'asa-tuned'"),
    (["compare", "montage", "--spread", "7"], "spread", "0 to 1"),
    (["compare", "montage", "--trace", "none.swf"], "none.swf: cannot be read", "Check the path"),
    (
        ["compare", "montage", "--trace", "none.swf", "--system", "hpc2n"],
        "on a simulated centre or on a log",
        "one of them",
    ),
    (["compare", "montage", "--trace-cores", "5"], "needs a log", "--trace"),
    (["compare", "none.toml"], "none.toml: cannot be read", "Check the path"),
    (["compare", "montage", "--plot", "x.tiff2"], "no kind of figure", ".png"),
    (["compare", "montage", "--plot", "no/such/folder/x.png"], "does not exist", "Make the folder"),
    (["compare", "montage", "--plot", "."], "no kind of figure", ".png"),
    (["compare", "montage", "--json", "--csv"], "one format of the output", "one of them"),
    (["compare", "montage", "--seeds", "some"], "Invalid value for '--seeds'", ""),
    (["workload", "check", "hpc3"], "no system 'hpc3'", "hpc2n"),
    (["workload", "calibrate", "hpc3"], "no system 'hpc3'", "hpc2n"),
    (["nonsense"], "No such command 'nonsense'", ""),
]


@pytest.mark.parametrize(("arguments", "message", "remedy"), BAD, ids=[" ".join(bad[0]) for bad in BAD])
def test_bad_input_is_refused_with_a_remedy(arguments, message, remedy, tmp_path):
    """Exit code 2, no traceback, nothing on standard output."""
    done = asa(*arguments, code=2, cwd=tmp_path)
    told = " ".join(done.stderr.replace("│", " ").split())
    assert message in told
    assert remedy in told
    assert done.stdout == ""


def test_broken_files_are_named_with_their_line(tmp_path):
    """A torn log line, a typo in a workflow."""
    log = tmp_path / "torn.swf"
    log.write_text(LOG[:-30])
    done = asa("compare", "montage", "--trace", log, code=2)
    assert f"{log}:2001:" in done.stderr
    flow = tmp_path / "typo.toml"
    flow.write_text(FLOW.replace("walltime", "waltime", 1))
    done = asa("compare", flow, code=2)
    assert f"{flow}:5: " in done.stderr
    assert "there is no key 'waltime'" in done.stderr
    flow.write_text(FLOW)
    assert "--cores" in asa("compare", flow, "--cores", 4, code=2).stderr


def test_runs_that_do_not_complete_give_code_1_and_all_the_others(tmp_path, log):
    """A walltime for the whole that is too short for some of Big Job's runs, as these stray from what is expected."""
    flow = tmp_path / "short.toml"
    flow.write_text(FLOW.replace('name = "tiny"', 'name = "tiny"\nwalltime = "7min"'))
    options = ("--seeds", 4, "--strategies", "big-job,per-stage", "--jobs", 1, "--spread", 0.3)
    done = asa("compare", flow, "--trace", log, *options, code=1)
    assert "did not complete" in done.stderr
    assert "runs of big-job at 16 cores failed" in " ".join(done.stdout.split())
    assert "per-stage" in done.stdout
    flow.write_text(FLOW.replace('name = "tiny"', 'name = "tiny"\nwalltime = "6min"'))
    assert f"{flow}:2: " in asa("compare", flow, "--trace", log, code=2).stderr


def test_a_full_disk_is_told(log, flow):
    """Not with a traceback."""
    command = f"{ASA} compare {flow} --trace {log} --seeds 1 --jobs 1 --json > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("asa: failed: No space left on device\nFree disk space, or write elsewhere.\n")
    assert "Traceback" not in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("after_s", [0.0, 0.7, 2.0])  # it begins its pool, this imports, and is at work
def test_an_interrupt_ends_it_quickly_and_quietly(after_s):
    """Ctrl-C reaches the whole group of processes; exit code 130, no traceback, nothing left behind."""
    command = [ASA, "compare", "montage", "--system", "uppmax", "--seeds", "80", "--jobs", "2"]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    until(children.read_text, what="a process of its pool")
    time.sleep(after_s)
    os.killpg(started.pid, signal.SIGINT)
    _, told = started.communicate(timeout=20)
    assert started.returncode == 130
    assert "Traceback" not in told
    until(lambda: not _is_there(started.pid), within_s=5.0, what="the end of all its processes")


def _is_there(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_closed_pipe_is_no_accident(log, flow):
    """`asa ... | head -1` ends quietly."""
    command = f"{ASA} compare {flow} --trace {log} --seeds 1 --jobs 1 --json | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "[\n"
    assert "Traceback" not in done.stderr


@pytest.mark.data
@pytest.mark.parametrize("name", ["CTC-SP2-1996-3.1-cln", "DOST-ASTI_COARE-Saliksik-2020-cln", "theta_2022"])
def test_real_logs_can_be_replayed(data, name):
    """The main job on a real trace."""
    trace = data / "swf" / f"{name}.swf.gz"
    options = ("--seeds", 1, "--cores", 112, "--strategies", "big-job,asa", "--jobs", 1)
    done = asa("compare", "montage", "--trace", trace, *options, "--output", "json")
    by_strategy = {run["strategy"]: run for run in json.loads(done.stdout)}
    assert by_strategy["big-job"]["core_hours"] == pytest.approx(33.0, abs=0.1)
    assert by_strategy["asa"]["core_hours"] == pytest.approx(20.0, abs=0.1)


def test_whether_jobs_can_grow_is_a_setting_of_comparing():
    """Of the site, not of its scheduler: without it `elastic` is a chain of jobs."""
    arguments = (
        "compare",
        "montage",
        "--cores",
        28,
        "--seeds",
        1,
        "--strategies",
        "elastic",
        "--jobs",
        1,
        "--output",
        "json",
    )
    told = [json.loads(asa(*arguments, "--set", f"grow={word}").stdout)[0] for word in ("yes", "no")]
    assert all(one["outcome"] == "completed" for one in told)
    assert "is neither" in asa(*arguments, "--set", "grow=maybe", code=2).stderr
