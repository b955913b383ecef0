"""``asa walltimes --shape``, as a user types it."""

import json
import math
import re
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from asa.cli.advise import advise
from asa.errors import AsaError
from asa.estimators.store import WaitStore
from asa.estimators.stored import WaitRecord
from asa.runtimes import RunTime, RunTimes
from asa.waits import QueuedJob, exactly

FLOW = """
name = "turbulence"
[[stage]]
name = "moments"
cores = [28, 7, 56, 112, 1024]
expected = { 7 = "6h", 28 = "95min", 112 = "40min" }
walltime = "3h"
command = "mpirun -n $ASA_CORES ./moments"
[[stage]]
name = "solve"
cores = 28
walltime = "8h"
after = ["moments"]
command = "solve"
[[stage]]
name = "plot"
cores = 1
walltime = "10min"
after = ["solve"]
command = "plot"
[[stage]]
name = "fetch"
local = true
cores = 1
walltime = "10min"
command = "fetch"
"""
COMMAND = ("--cores", "28,56,112", "--expected", "28=95min,56=60min,112=45min")


def asa(*arguments, code=0, columns=80):
    """Run the command in this process, which is faster than a new one."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(advise)
    env = {"COLUMNS": str(columns), "PATH": "/nowhere"}
    done = CliRunner().invoke(app, [*map(str, arguments)], env=env)
    if isinstance(done.exception, AsaError):
        assert done.exception.exit_code == code, done.exception
        return SimpleNamespace(stdout=done.stdout, stderr=str(done.exception))
    assert done.exit_code == code, done.output
    return done


def waits(folder, wait_s, system="north", partition="batch"):
    """Fill a bank with jobs of each width, which waited about as long as given."""
    with WaitStore(folder, durable=False) as store:
        store.extend(
            WaitRecord(
                QueuedJob(30_000.0 * number + 10 * cores, cores, walltime_s, "ada", system, partition),
                exactly(wait_s(cores) * math.exp(0.2 * math.sin(number))),
            )
            for number in range(60)
            for cores in (7, 14, 28, 56, 112, 224)
            for walltime_s in (3600.0, 4 * 3600.0, 12 * 3600.0)
        )


def ran(stage, cores, times, system="north"):
    return [
        RunTime(
            "turbulence", stage, cores, float(run_s), float(number), system, None, "exact", f"{stage}{cores}{number}"
        )
        for number, run_s in enumerate(times)
    ]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A workflow, and a bank of a system on which wide jobs wait no longer than narrow ones."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "flow.toml").write_text(FLOW)
    waits(tmp_path / "bank", lambda _: 300.0)
    log = RunTimes(tmp_path / "bank")
    log.observe(ran("moments", 28, [5600, 5700, 5800, 5750]))
    log.observe(ran("solve", 28, [7000, 7200, 7400, 7100, 7300]))
    log.observe(ran("solve", 56, [4000, 4100]))
    return SimpleNamespace(
        flow=tmp_path / "flow.toml", bank=("--bank", tmp_path / "bank", "--bank-only"), root=tmp_path
    )


def told(place, *arguments, code=0):
    return json.loads(asa(*arguments, "--shape", *place.bank, "--output", "json", code=code).stdout)


def rows(text):
    """Return the cells of each line of a table: those from cores to core-hours."""
    lines = [line.split() for line in text.splitlines()]
    return [cells for cells in lines if re.fullmatch(r"((now|ask|keep) )?\d+ .* [\d,]+\.\d", " ".join(cells))]


def test_each_width_that_a_stage_may_have_or_ran_at(place):
    """Each row has the source of its run time, wait, end and core-hours; the current request is marked."""
    text = asa(place.flow, "--shape", *place.bank).stdout
    assert text.startswith("turbulence on north")
    assert max(map(len, text.splitlines())) <= 80
    table = rows(text)
    assert [cells[:3] for cells in table[:4]] == [
        ["7", "given", "6h00m"],
        ["now", "28", "4"],
        ["56", "between", "1h01m"],
        ["ask", "112", "given"],
    ]
    assert [cells[:4] for cells in table[4:]] == [["now", "28", "5", "runs"], ["ask", "56", "2", "runs"]]
    flat = " ".join(text.split())
    assert "Ask for 112 cores in place of 28 cores: half of such jobs end within" in flat
    assert re.search(r"for 30\.\d core-hours more", flat)
    assert "Left out: 1024 cores: its run time there is not known." in flat
    assert "plot Its run time is not known." in flat
    assert "fetch" not in text


def test_as_json(place):
    """The document has the table's values, with ranges."""
    found = told(place, place.flow)
    assert (found["schema"], found["workflow"], found["system"]) == (1, "turbulence", "north")
    moments, solve, plot = found["stages"]
    assert [one["width"] for one in moments["shapes"]] == [7, 28, 56, 112]
    assert [one["runs"] for one in moments["shapes"]] == [0, 4, 0, 0]
    assert (moments["asked"], moments["best"]) == (1, 3)
    assert moments["shapes"][3]["ends_before_best"] is None
    for one in (*moments["shapes"], *solve["shapes"]):
        for times_s in (one["run_s"], one["wait_s"], one["end_in_s"]):
            assert times_s["p10"] <= times_s["p50"] <= times_s["p90"]
        assert one["core_hours"] == pytest.approx(one["cores"] * one["run_s"]["p50"] / 3600)
        assert one["end_in_s"]["p50"] == pytest.approx(one["wait_s"]["p50"] + one["run_s"]["p50"], rel=0.1)
    assert solve["shapes"][1]["run_s"]["p10"] < 4000
    assert solve["shapes"][1]["run_s"]["p90"] > 4100
    assert (plot["shapes"], plot["best"], plot["trial"]) == ([], None, None)


def test_a_further_width_that_is_worth_one_trial_is_named_with_what_it_tells(place):
    """The stage ran 1.76 times as fast on twice as many cores, and wide jobs wait no longer."""
    [_, solve, _] = told(place, place.flow)["stages"]
    trial = solve["trial"]
    assert (trial["width"], trial["is_worth_it"]) == (112, True)
    assert trial["run_s"]["p10"] < trial["best_up_to_run_s"] < 4050
    assert 0.5 < trial["probability_best"] < 1
    assert trial["core_hours"]["p10"] == pytest.approx(112 * trial["run_s"]["p10"] / 3600)
    flat = " ".join(asa(place.flow, "--shape", *place.bank).stdout.split())
    assert "Worth a try: 112 cores, which is better if it runs there for at most" in flat
    assert "of perfect scaling); probability" in flat


def test_one_width_known_and_no_law_offers_no_other_but_says_which_is_worth_trying(place):
    found = told(place, "--cores", 28, "--expected", "10h")["stages"][0]
    assert [one["width"] for one in found["shapes"]] == [28]
    assert (found["trial"]["width"], found["trial"]["is_worth_it"]) == (56, True)


def test_nothing_wider_than_what_can_run_is_named(place):
    """The bank knows no job wider than 224 cores, so waits for 448 cores cannot be predicted."""
    found = told(place, "--cores", 224, "--expected", "10h")["stages"][0]
    assert found["trial"] is None or found["trial"]["width"] == 112


def test_a_long_queue_for_wide_jobs_turns_the_advice(tmp_path, place):
    waits(tmp_path / "other", lambda cores: 300.0 if cores <= 28 else 90_000.0)
    bank = ("--bank", tmp_path / "other", "--bank-only", "--output", "json")
    found = json.loads(asa("--shape", *COMMAND, *bank).stdout)["stages"][0]
    assert (found["shapes"][found["best"]]["width"], found["asked"]) == (28, None)
    kept = json.loads(asa("--shape", *COMMAND, "--now", 28, *bank).stdout)["stages"][0]
    assert kept["asked"] == kept["best"] == 0
    assert kept["why"].startswith("Keep 28 cores: half of such jobs end within")


def test_a_command_without_a_workflow(place):
    text = asa("--shape", *COMMAND, "--scaling", "amdahl", "--walltime", "2h", *place.bank).stdout
    assert text.startswith("Command on north")
    assert [cells[-1] for cells in rows(text)] == ["44.3", "56.0", "84.0"]
    found = told(place, *COMMAND, "--walltime", "2h")["stages"][0]
    assert found["shapes"][0]["walltime_s"] == 7200
    assert found["shapes"][1]["walltime_s"] == pytest.approx(7200 * 60 / 95)
    by_width = told(place, *COMMAND, "--walltime", "28=2h,112=50min")["stages"][0]
    assert [by_width["shapes"][place]["walltime_s"] for place in (0, 2)] == [7200, 3000]
    named = told(place, "--cores", "7..112", "--expected", "7=6h", "--scaling", "amdahl=0.99")["stages"][0]
    assert [one["width"] for one in named["shapes"]] == [7, 14, 28, 56, 112]


def test_where_no_waits_are_known_the_run_times_are_told_and_no_advice_is_given(place, tmp_path):
    done = asa("--shape", *COMMAND, "--bank", tmp_path / "none", "--bank-only")
    assert [cells[0] for cells in rows(done.stdout)] == ["28", "56", "112"]
    flat = " ".join(done.stdout.split())
    assert "Waits are not known, so no width is advised." in flat
    assert "asa learn" in flat
    assert "Ask for" not in flat


def test_several_partitions_are_compared(place):
    waits(place.root / "bank", lambda _: 40_000.0, partition="slow")
    text = asa("--shape", *COMMAND, "--partition", "slow,batch", *place.bank).stdout
    assert len(rows(text)) == 6
    assert max(map(len, text.splitlines())) <= 80
    assert "in partition batch" in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--cores", "0", "--expected", "1h"), "'0' is not a number of cores"),
        (("--cores", "7,7", "--expected", "7=1h"), "7 is there twice"),
        (("--cores", "28..7", "--expected", "7=1h"), "ends before it begins"),
        (("--expected", "7=1h"), "--cores: is missing"),
        (("--cores", "7,14"), "no run time is known"),
        (("--cores", "7,14", "--expected", "1h"), "one run time for 2 numbers of cores"),
        (("--cores", "7,14", "--expected", "28=1h"), "28 cores, which are none of 7, 14"),
        (("--cores", "7,14", "--expected", "7=0s"), "not a duration"),
        (("--cores", "7,14", "--expected", "7=1h,2h"), "does not say on how many cores"),
        (("--cores", "7,14", "--expected", "7=1h,7=2h"), "7 cores twice"),
        (("--cores", "7,14", "--expected", ","), "names nothing"),
        (("--cores", "7,14", "--expected", "7=1h", "--scaling", "moore"), "not a scaling law"),
        (("--cores", "7,14", "--expected", "7=1h", "--scaling", "amdahl=x"), "'x' is no number"),
        (("--cores", "7,14", "--expected", "7=1h", "--scaling", "downey=3"), "one of parallelism and variance"),
        (("--cores", "7,14", "--expected", "7=1h", "--walltime", "30min"), "within a walltime"),
        (("--cores", "7,14", "--expected", "7=1h", "--now", "28"), "28 is not one of 7, 14"),
        (("--cores", "7,14", "--expected", "7=1h", "--now", "14"), "no run time is known on 14 cores"),
        (("--cores", "7,448", "--expected", "7=6h,448=20min"), "no job of more than 224 cores is known"),
        (("--cores", "7", "--expected", "1h", "--partition", "gpu"), "no partition 'gpu'"),
        (("--cores", "7", "--expected", "1h", "--system", "south"), "no system 'south'"),
        (("--cores", "7", "--expected", "1h", "--site", "x"), "does not go with --bank-only"),
        (("--cores", "7", "--expected", "1h", "--forget", "x"), "does not go with --shape"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(place, arguments, words):
    assert words in asa("--shape", *arguments, *place.bank, code=2).stderr


def test_options_that_contradict_each_other_are_refused(place):
    assert "needs --shape" in asa(*COMMAND, "--bank", place.root / "bank", code=2).stderr
    assert "needs --shape" in asa(place.flow, *place.bank, code=2).stderr
    refused = asa(place.flow, "--shape", "--now", 7, *place.bank, code=2).stderr
    assert "in a workflow file each stage has its own" in refused


def test_a_workflow_of_which_no_run_time_is_known_is_refused(place):
    path = place.root / "new.toml"
    path.write_text('name = "new"\n[[stage]]\nname = "a"\ncores = 4\nwalltime = "1h"\ncommand = "a"\n')
    refused = asa(path, "--shape", *place.bank, code=2).stderr
    assert "its run time is not known" in refused


def test_runs_elsewhere_do_not_take_the_place_of_what_the_file_says(place):
    waits(place.root / "bank", lambda _: 300.0, system="south")
    found = told(place, place.flow, "--system", "south")
    moments, solve, _ = found["stages"]
    assert [one["from"] for one in moments["shapes"]] == ["given", "given", "between", "given"]
    assert [(one["width"], one["from"]) for one in solve["shapes"]] == [(28, "a guess")]
    assert solve["trial"] is None, "how long it runs there is to be known before"


def test_where_a_batch_system_is_at_hand_its_queue_and_its_limits_count(place):
    """The system's limits apply to nodes, too: their number and their cores are known."""
    path = place.root / "nodes.toml"
    path.write_text(
        'name = "n"\n[[stage]]\nname = "a"\nnodes = [2, 4, 2048]\n'
        'expected = { 2 = "3h", 4 = "100min", 2048 = "10min" }\n'
        'walltime = "6h"\ncommand = "a"\n'
    )
    on = ("--bank", place.root / "empty", "--backend", "simulated", "--set", "system=hpc2n")
    [stage] = json.loads(asa(path, "--shape", *on, "--output", "json").stdout)["stages"]
    assert [(one["width"], one["cores"]) for one in stage["shapes"]] == [(2, 56), (4, 112)]
    assert stage["unit"] == "nodes"
    assert len(stage["left_out"]) == 1
    assert stage["best"] is not None
    text = asa(path, "--shape", *on).stdout
    assert "As of now: " in text
    assert "4 nodes" in text
    blind = asa(path, "--shape", *place.bank, code=2).stderr
    assert "it asks for nodes" in blind


@pytest.mark.usefixtures("own_home")
def test_waits_on_this_machine_say_nothing_of_a_batch_system(tmp_path, monkeypatch):
    """A user has tried workflows on this machine: run times are shown, and no width is recommended."""
    monkeypatch.setattr("platform.node", lambda: "laptop.home")
    waits(tmp_path / "bank", lambda _: 0.0, system="laptop", partition="")
    bank = ("--bank", tmp_path / "bank")
    words = " ".join(asa("--shape", *COMMAND, "--now", 112, *bank, "--bank-only").stdout.split())
    assert "1h35m" in words
    assert "no width is advised." in words
    assert "knows only waits of jobs on this computer" in words
    assert "Ask for" in asa("--shape", *COMMAND, *bank, "--system", "laptop").stdout, "who names it gets it"


def test_no_trial_of_more_cores_is_proposed_for_a_program_of_one(place):
    (place.root / "one.toml").write_text(
        "name = 'turbulence'\n[[stage]]\nname = 'plot'\ncores = 1\ncommand = 'plot'\n"
        "expected = '9h'\nwalltime = '10h'\n"
    )
    assert told(place, place.root / "one.toml")["stages"][0]["trial"] is None


def test_what_an_hour_sooner_is_worth_decides(place):
    """112 cores end half an hour sooner than 28, for some 30 core-hours more."""
    for price, cores in (("1 h = 200 core-hours", 112), ("1 h = 20 core-hours", 28), ("0", 112)):
        found = told(place, place.flow, "--price", price)
        moments = found["stages"][0]
        assert moments["shapes"][moments["best"]]["width"] == cores
        assert found["price_from"] == "--price"
    text = asa(place.flow, "--shape", *place.bank, "--price", "1 h = 200 core-hours").stdout
    assert "Core-hours count as --price says: 1 h = 200 core-hours." in text
    assert told(place, place.flow)["price_s_per_core_hour"] is None
    assert "no price of time" in asa(place.flow, "--shape", *place.bank, "--price", "much", code=2).stderr
    assert "needs --shape" in asa(place.flow, "--price", "1 h = 20 core-hours", code=2).stderr
