"""``asa plan``: what the optimiser would do, shown before anything is submitted."""

import json
import shlex
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from asa.backend import Capabilities
from asa.cli.plan import plan
from asa.cli.run import run
from asa.errors import AsaError
from asa.report.frontier import PlanAmongOthers, frontier_letters
from asa.runner import RunPlan
from asa.runner.outlook import plan_of
from asa.strategies.base import ForecastKind, Keep, Phase, Plan, PlannedJob
from asa.strategies.planning import Sketch
from asa.workflow import Stage

app = typer.Typer()
app.command("plan")(plan)
app.command("run")(run)

STAGES = (("fetch", "", 1), ("project", "fetch", 48), ("fit", "project", 1), ("add", "fit", 48), ("show", "add", 1))


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Return the log of a machine of 64 cores on which jobs always wait."""
    rng = np.random.default_rng(3)
    submit = np.cumsum(rng.exponential(500.0, 900)).astype(int)
    cores, runs = rng.choice([1, 8, 32, 64], 900), rng.lognormal(6.5, 0.7, 900).astype(int) + 1
    lines = ["; MaxProcs: 64"]
    lines += [
        f"{i + 1} {submit[i]} -1 {runs[i]} {cores[i]} -1 -1 {cores[i]} {2 * runs[i]} -1 1 {i % 9} 1 1 1 1 -1 -1"
        for i in range(900)
    ]
    path = tmp_path_factory.mktemp("log") / "north.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def place(tmp_path, monkeypatch, log):
    """Return a folder with a workflow, and a function that runs commands there."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, STAGES)
    where = ["--backend", "simulated", "--set", f"trace={log}", "--set", "age_accrues=no", "--bank", "none"]
    return lambda *arguments, **more: asa("plan", "flow.toml", *where, *arguments, **more)


def asa(*arguments, code=0, columns=80):
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": str(columns)})
    if isinstance(done.exception, AsaError):
        assert done.exception.exit_code == code, done.exception
        return SimpleNamespace(stdout=done.stdout, stderr=str(done.exception))
    assert done.exit_code == code, (done.output, done.exception)
    return done


def write(folder, stages, more=""):
    text = f'name = "flow"\n[defaults]\nwalltime = "30min"\nexpected = "5min"\ncommand = "true"\n{more}'
    for name, after, cores in stages:
        text += f'[[stage]]\nname = "{name}"\nafter = {json.dumps(after.split())}\ncores = {cores}\n'
    (folder / "flow.toml").write_text(text)


def told(place, *arguments):
    return json.loads(place(*arguments, "--output", "json").stdout)


def chosen(document):
    [one] = [candidate for candidate in document["candidates"] if candidate["chosen"]]
    return one


def test_candidates_jobs_and_reasons_fit_into_a_narrow_terminal(place, tmp_path):
    """The chosen plan is marked and drawn, each of its jobs has a reason; the command to run it comes last."""
    for columns in (80, 120):
        shown = place(columns=columns).stdout
        *lines, command = shown.splitlines()
        assert max(map(len, lines)) <= columns
        assert command.startswith("  asa run flow.toml --backend simulated")
        assert command.endswith("--strategy asa-plan")
        heads = [line.split("  ")[0] for line in lines]
        assert [heads.count(mark) for mark in "BPC*"] == [1, 1, 1, 2], "the chosen one is also on the frontier"
        assert any("│" in line and "*" in line for line in lines)
        words = " ".join(shown.split())
        assert "1. submit fetch" in words
        assert "On average it starts" in words
        assert "Nothing was submitted" in words
    assert [path.name for path in tmp_path.iterdir()] == ["flow.toml"]


def test_the_document_has_what_the_tables_have(place):
    """Numbers have their units; along the frontier, plans that take more core-hours end sooner."""
    document = told(place)
    by_name = {candidate["name"]: candidate for candidate in document["candidates"]}
    assert document["schema"] == 1
    assert document["informed"]
    assert by_name["Per-Stage"]["times_per_stage"] == pytest.approx(1.0)
    assert by_name["Per-Stage"]["core_hours"] == pytest.approx((3 * 1 + 2 * 48) * 300 / 3600)
    assert document["per_stage"]["core_hours"] == pytest.approx(by_name["Per-Stage"]["core_hours"])
    assert by_name["Big Job"]["core_hours"] == pytest.approx(5 * 48 * 300 / 3600)
    assert [job["stages"] for job in by_name["Big Job"]["jobs"]] == [[name for name, *_ in STAGES]]
    assert {job["mode"] for job in by_name["Chained"]["jobs"][1:]} == {"dependency"}
    for candidate in document["candidates"]:
        times = candidate["makespan_s"]
        assert 1500 <= times["p10"] <= times["p50"] <= times["p90"]
        assert [name for job in candidate["jobs"] for name in job["stages"]] == [name for name, *_ in STAGES]
    best = sorted((one for one in document["candidates"] if one["on_frontier"]), key=lambda one: one["core_hours"])
    assert len(best) > 1
    spans = [one["makespan_s"]["mean"] for one in best]
    assert spans == sorted(spans, reverse=True)
    assert document["jobs"] == chosen(document)["jobs"]
    assert document["jobs"][0]["submit_in_s"] == 0
    for before, after in zip(document["jobs"], document["jobs"][1:], strict=False):
        assert before["start_in_s"]["mean"] < after["start_in_s"]["mean"]


@pytest.mark.full
def test_what_is_wanted_decides(place):
    """The goal is a price, a budget or a deadline; one that cannot be met is named."""
    free, expensive = chosen(told(place, "--price", 0)), chosen(told(place, "--price", 1e7))
    assert free["makespan_s"]["mean"] < expensive["makespan_s"]["mean"]
    assert free["core_hours"] > expensive["core_hours"]
    assert chosen(told(place, "--at-most", 1.0))["times_per_stage"] <= 1.0 + 1e-9
    late = told(place, "--deadline", "300d")
    assert chosen(late)["core_hours"] == pytest.approx(expensive["core_hours"])
    assert late["deadline_s"] == pytest.approx(late["now_s"] + 300 * 86_400, abs=1)
    early = " ".join(place("--deadline", "1min").stdout.split())
    assert "No plan ends by" in early
    assert "Chosen: the fastest plan. The probability that it ends by" in early
    both = " ".join(place("--deadline", "300d", "--at-most", 1.0).stdout.split())
    assert "with a probability of at least 90 % and takes at most 1 times Per-Stage's core-hours" in both
    assert f"--strategy asa-plan:deadline={late['now_s'] + 60:.0f}" in early
    assert "Chosen: the plan with the fewest." in " ".join(place("--at-most", 0.1).stdout.split())
    assert chosen(told(place, "--price", 0, "--at-most", 1.0))["times_per_stage"] <= 1.0 + 1e-9


WIDE = 'cores = [4, 8, 16, 64]\nexpected = { 4 = "4h", 8 = "130min", 16 = "75min", 64 = "40min" }\nwalltime = "5h"\n'


def write_wide(folder):
    (folder / "flow.toml").write_text(
        f'name = "flow"\n[defaults]\ncommand = "true"\n[[stage]]\nname = "a"\n{WIDE}'
        f'[[stage]]\nname = "b"\nafter = ["a"]\n{WIDE}'
    )


def test_the_frontier_shows_what_an_hour_sooner_costs_and_the_choice_on_it(place, tmp_path):
    """At a price, the choice has the least hours x price + core-hours, in the document and in the table."""
    write_wide(tmp_path)
    chosen_hours = []
    for worth in (0.5, 20, 2000):
        document = told(place, "--price", f"1 h = {worth} core-hours")
        assert document["price_core_hours_per_hour"] == pytest.approx(worth)
        assert document["price_from"] == "--price"
        rows = document["frontier"]
        costs = [row["time_s"] / 3600 * worth + row["core_hours"] for row in rows]
        [mine] = [number for number, row in enumerate(rows) if row["chosen"]]
        assert costs[mine] == min(costs)
        assert rows[mine]["core_hours"] == pytest.approx(chosen(document)["core_hours"])
        assert rows[mine]["cores"] == [job["cores"] for job in document["jobs"]]
        assert rows[0]["hour_sooner_core_hours"] is None
        chosen_hours.append(rows[mine]["core_hours"])
    assert chosen_hours == sorted(chosen_hours)
    assert chosen_hours[0] < chosen_hours[-1]
    shown = place("--price", "1 h = 20 core-hours").stdout
    table = shown.partition("Time against core-hours")[2].partition("\n\n")[0].splitlines()
    assert sum(line.startswith("*") for line in table) == 1
    words = " ".join(shown.split())
    assert "the lowest cost, if 1 h = 20 core-hours (a core-hour is worth 3m00s)." in words
    assert "*: of these the least hours x 20 + core-hours." in words
    assert shown.rstrip().endswith("--strategy 'asa-plan:price=1 h = 20 core-hours'")


def test_the_commands_for_a_run_and_its_plan_have_what_predicts_its_waits(place, tmp_path):
    """With no past jobs requests race: a command without that would show, or run, another plan."""
    write_wide(tmp_path)
    given = ("--estimator", "asa", "--history", "0", "--seed", "3")
    [_, *run_words] = shlex.split(place(*given, columns=500).stdout.splitlines()[-1])
    dry = asa(*run_words, "--dry-run", columns=500)
    assert "others may race with it" in " ".join(dry.stdout.split())
    assert "or in several shapes while waits are not known" in dry.stderr
    assert "several shapes" not in asa(*run_words, "--dry-run", "--no-races", columns=500).stderr
    [_, *plan_words] = shlex.split(dry.stderr.splitlines()[0].partition("why: ")[2])
    assert asa(*plan_words, columns=500).stdout == place(*given, columns=500).stdout


@pytest.mark.parametrize("price", [(), ("--price", "1 h = 1 core-hours")])
def test_where_the_cheapest_plan_is_not_chosen_the_sentence_says_why(place, tmp_path, price):
    write(tmp_path, [("a", "", 48), ("b", "a", 48), ("c", "b", 1)])
    accrues = ("--set", "age_accrues=yes", *price)
    document = told(place, *accrues)
    each_s = document["price_s_per_core_hour"]
    costs_s = {c["name"]: c["makespan_s"]["mean"] + each_s * c["core_hours"] for c in document["candidates"]}
    assert costs_s[chosen(document)["name"]] > min(costs_s.values()) + 1
    words = " ".join(place(*accrues).stdout.split())
    assert "Chosen: one job per stage. No plan of lower expected cost ends before it in 90% of the sampled" in words


def test_a_price_is_kept_in_a_site_file(place, tmp_path, log):
    """The price is valid for plans and runs; a command's own price comes first, and so does a budget."""
    write_wide(tmp_path)
    site = tmp_path / "here.toml"
    settings = f'backend = "simulated"\ntrace = "{log}"\nage_accrues = false\n'
    site.write_text(f'price = "1 h = 2000 core-hours"\n{settings}')
    where = ("flow.toml", "--site", site, "--bank", "none", "--output", "json")
    document = json.loads(asa("plan", *where).stdout)
    assert (document["price_core_hours_per_hour"], document["price_from"]) == (2000, f"site file {site}")
    assert document["strategy"] == "asa-plan:price=1 h = 2000 core-hours"
    dry = json.loads(asa("run", *where, "--dry-run").stdout)
    assert dry["strategy"] == document["strategy"]
    assert [job["cores"] for job in dry["jobs"]] == [job["cores"] for job in document["jobs"]]
    assert json.loads(asa("plan", *where, "--price", "3").stdout)["price_s_per_core_hour"] == 3
    assert json.loads(asa("plan", *where, "--at-most", "2").stdout)["strategy"] == "asa-plan:at-most=2"
    named = json.loads(asa("run", *where, "--dry-run", "--strategy", "asa-plan:price=7").stdout)
    assert named["strategy"] == "asa-plan:price=7"
    assert json.loads(asa("run", *where, "--dry-run", "--strategy", "chained").stdout)["strategy"] == "chained"
    site.write_text(f'price = "1 h = many"\n{settings}')
    told_wrong = asa("plan", *where, code=2).stderr
    assert f"{site}:1: '1 h = many' is no price of time" in told_wrong
    assert "1 h = 200 core-hours" in told_wrong


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--price", "1 h = 200"), "--price: '1 h = 200' is no price of time"),
        (("--deadline", "soon"), "--deadline: 'soon' is no time"),
        (("--price", "much"), "price"),
        (("--at-most", "-1"), "at-most"),
        (("--explain", "ad"), "add"),
        (("--picture", "plan.toml"), "--picture"),
    ],
)
def test_what_cannot_be_used_is_named(place, arguments, words):
    """The error suggests the name that was meant."""
    assert words in place(*arguments, code=2).stderr


def test_where_nothing_is_known_it_makes_a_job_a_stage(place, tmp_path):
    """The output says so; there is nothing to compare, explain or draw."""
    nothing = ("--history", 0, "--explain", "fit")
    shown = place(*nothing, "--picture", "plan.png")
    words = " ".join(shown.stdout.split())
    assert "Waits are not known here yet" in words
    assert "one job per stage, in its first shape" in words
    assert "expected" not in words
    assert "No picture was drawn" in shown.stderr
    assert not (tmp_path / "plan.png").exists()
    document = told(place, *nothing)
    assert not document["informed"]
    assert document["candidates"] == []
    assert document["explain"] is None
    assert [job["stages"] for job in document["jobs"]] == [[name] for name, *_ in STAGES]
    assert [job["submit_in_s"] for job in document["jobs"]] == [0] * len(STAGES), "each behind those that it follows"
    assert {job["wait_s"] for job in document["jobs"]} == {None}


def test_where_nothing_is_known_several_shapes_race(place, tmp_path):
    """It shows the jobs that `asa run` would submit, and when; within a budget it is a job a stage."""
    shapes = '[4, 16]\nexpected = { 4 = "20min", 16 = "5min" }'
    write(tmp_path, [("wide", "", shapes), ("last", "wide", 1)])
    nothing = ("--history", 0)
    words = " ".join(place(*nothing).stdout.split())
    assert "asa-plan then requests the same work in several shapes and runs what starts first" in words
    first, *others = told(place, *nothing)["jobs"]
    assert (first["stages"], first["cores"], first["submit_in_s"]) == (["wide", "last"], 16, 0)
    assert {(tuple(job["stages"]), job["cores"]) for job in others} == {
        (("wide",), 16), (("wide", "last"), 4), (("wide",), 4)
    }  # fmt: skip
    assert all(job["submit_in_s"] >= 60 for job in others)
    assert "the job of wide, which has waited" in others[0]["reason"]
    assert [job["stages"] for job in told(place, *nothing, "--at-most", 2)["jobs"]] == [["wide"], ["last"]]


@pytest.mark.full
@pytest.mark.parametrize("stage", ["fetch", "fit", "show"])
def test_a_stage_is_explained_by_what_else_was_weighed(place, stage):
    """Other plans run the stage alone or with its neighbours, in each mode; in a chain none of them costs less."""
    explained = told(place, "--explain", stage)["explain"]
    assert explained["stage"] == stage
    mine = explained["chosen"]
    assert all(stage in other["stages"] for other in [mine, *explained["others"]])
    assert min(other["cost_s"] for other in explained["others"]) >= mine["cost_s"] - 0.5
    sizes = {len(other["stages"]) for other in [mine, *explained["others"]]}
    assert 1 in sizes
    assert len(sizes) > 1
    ways = {other["kept_back"] for other in [mine, *explained["others"]]}
    assert ways == {"nothing"} if stage == "fetch" else {"ready", "dependency", "await"} <= ways
    for other in [mine, *explained["others"]]:
        worth = explained["price_s_per_core_hour"] * other["core_hours"]
        assert other["cost_s"] == pytest.approx(other["makespan_s"] + worth)
    words = " ".join(place("--explain", stage).stdout.split())
    assert f"Alternatives for {stage}" in words
    assert f"Chosen: {stage}" in words
    assert "worse in total" in words


def test_stages_that_cannot_share_a_job_are_told(place, tmp_path):
    """A local stage waits in no queue, and is part of no Big Job."""
    write(tmp_path, STAGES[1:], '[[stage]]\nname = "fetch"\nlocal = true\n')
    shown = " ".join(place("--explain", "fetch").stdout.split())
    assert "Not possible here: Big Job: fetch runs on this computer, in no job." in shown
    assert "1. run fetch on this computer, at once: it does not wait in a queue" in shown
    assert "cannot share a job" in shown


@pytest.mark.parametrize(
    ("of_first", "why"),
    [
        ('account = "astro"', "its stages ask for 2 accounts (the site's own, astro), and share one job."),
        ("retries = 2", "fetch has retries, for which it needs a job of its own."),
        ('memory = "1 GB"', "but for cores and time, and fetch and fit differ in memory."),
        (
            'options = ["--hint=nomultithread"]',
            "ask for --hint=nomultithread and no --hint, and share one job.",
        ),
    ],
)
def test_why_there_is_no_job_for_all_stages_is_told(place, tmp_path, of_first, why):
    first, second = (
        f'[[stage]]\nname = "{name}"\ncommand = "true"\ncores = 1\nwalltime = "1h"\n{more}\n'
        for name, more in (("fetch", of_first), ("fit", 'after = ["fetch"]'))
    )
    (tmp_path / "flow.toml").write_text(f'name = "flow"\n\n{first}\n{second}')
    shown = " ".join(place().stdout.split())
    assert "Not possible here: Big Job:" in shown
    assert why in shown


def test_branches_are_planned_too(place, tmp_path):
    """Each job comes after its predecessors."""
    write(tmp_path, (("a", "", 8), ("b", "a", 32), ("c", "a", 1), ("d", "b c", 1)))
    for stage in "abcd":
        assert told(place, "--explain", stage)["explain"]["others"]
    for candidate in told(place)["candidates"]:
        assert sorted(name for job in candidate["jobs"] for name in job["stages"]) == list("abcd")


def test_the_picture_is_drawn(place, tmp_path, monkeypatch):
    """Drawing needs matplotlib, and the error says so."""
    place("--picture", "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    place("--picture", "plan.svg", "--at-most", "1.1")
    text = (tmp_path / "plan.svg").read_text()
    assert text.count("<!-- Per-Stage -->") == 1
    assert text.count(", chosen -->") == 1
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "asa-client[report]" in place("--picture", "plan.png", code=2).stderr


def sketch(makespan_s, core_hours):
    return Sketch((), np.full(48, float(makespan_s)), core_hours)


def test_letters_stand_where_they_belong():
    """Cheaper plans are further left, faster ones lower; of letters at the same place the chosen plan's comes first."""
    lines = frontier_letters(
        [
            PlanAmongOthers("Per-Stage", "P", sketch(7200, 10.0)),
            PlanAmongOthers("Chained", "C", sketch(7200, 10.0)),
            PlanAmongOthers("Plan 1", "1", sketch(7200, 10.0), is_chosen=True),
            PlanAmongOthers("Big Job", "B", sketch(3600, 20.0)),
            PlanAmongOthers("Plan 2", "2", sketch(5400, 15.0)),
        ],
        width=60,
        height=5,
    )
    assert lines[0] == "    2h00m │*PC"
    assert lines[2].rstrip().endswith("2")
    assert lines[2].index("2") == pytest.approx((lines[0].index("*") + lines[4].rindex("B")) / 2, abs=1)
    assert lines[4].startswith("    1h00m │")
    assert lines[4].rstrip().endswith("B")
    assert max(map(len, lines)) <= 60
    assert "10.0" in lines[-1]
    assert "20.0 core-hours" in lines[-1]


def test_one_plan_alone_can_be_drawn():
    assert any(
        "*" in line for line in frontier_letters([PlanAmongOthers("Plan 1", "1", sketch(60, 0.0), is_chosen=True)])
    )


class FirstThenTogether:
    """A strategy that submits the first stage, and all others in one job when that has ended."""

    forecast = ForecastKind.NONE

    def plan(self, view, forecast):
        first, *others = view.workflow.order
        if view.stages[first].phase is Phase.WAITING:
            return Plan.of([PlannedJob((first,), view.now_s, Keep.NOTHING, "first")])
        if view.is_ready(others[0]) and view.stages[others[0]].phase is Phase.WAITING:
            return Plan.of([PlannedJob(tuple(others), view.now_s, Keep.NOTHING, "then")])
        return Plan()


def test_a_dry_run_shows_which_later_stages_will_share_a_job():
    """The later stages' job is submitted only after others have ended."""
    stages = tuple(Stage(name, cores=n, walltime_s=60, after=after) for name, n, after in (
        ("a", 1, ()), ("b", 4, ("a",)), ("c", 2, ("b",)),
    ))  # fmt: skip
    made = RunPlan("0" * 16, "flow", "flow", stages, "own", "own", Capabilities("site", 8, 4, age_accrues=True))
    jobs = plan_of(made, FirstThenTogether(), SimpleNamespace(now=lambda: 5.0), None)
    assert [job.planned.stages for job in jobs] == [("a",), ("b", "c")]
    assert [job.in_s for job in jobs] == [0.0, None]
    assert [job.spec.cores for job in jobs] == [1, 4]
    assert jobs[1].planned.reason == "when it is due: after a"


def test_a_dry_run_of_the_strategy_shows_the_same_jobs(place, log):
    """The jobs are those of the chosen plan."""
    where = ["--backend", "simulated", "--set", f"trace={log}", "--set", "age_accrues=no", "--bank", "none"]
    dry = asa("run", "flow.toml", *where, "--dry-run", "--strategy", "asa-plan", "--output", "json")
    assert [job["stages"] for job in json.loads(dry.stdout)["jobs"]] == [job["stages"] for job in told(place)["jobs"]]


def test_shapes_of_stages_that_share_a_job_are_shown_together(place, tmp_path):
    """Each stage has the number of cores that it would have of the job's."""
    (tmp_path / "flow.toml").write_text(
        'name = "flow"\n[defaults]\nwalltime = "1h"\ncommand = "true"\n'
        '[[stage]]\nname = "a"\ncores = [4, 8, 16]\nexpected = { 4 = "30min", 8 = "15min", 16 = "8min" }\n'
        '[[stage]]\nname = "b"\nafter = ["a"]\ncores = [4, 8]\nexpected = { 4 = "2min", 8 = "1min" }\n'
    )
    shown = place("--at-most", "1.0", columns=80).stdout
    [job] = told(place, "--at-most", "1.0")["jobs"]
    assert job["stages"] == ["a", "b"]
    assert max(map(len, shown.splitlines()[:-1])) <= 80
    title, heads, *rows = shown.partition("Shapes compared for ")[2].splitlines()
    assert title.startswith("the job of a, b; ")
    assert "for a, b" in heads
    rows = [line.lstrip("* ").split() for line in rows[: rows.index("")]]
    assert ["16", "16,", "8"] in [cells[:3] for cells in rows]
    assert [line for line in shown.splitlines() if line.startswith("*") and f"{job['cores']}" in line.split()]
    explained = told(place, "--at-most", "1.0", "--explain", "b")["explain"]
    for one in (explained["chosen"], *explained["others"]):
        counted = one["makespan_counted_s"] + explained["price_s_per_core_hour"] * one["core_hours"]
        assert one["cost_s"] == pytest.approx(counted), "what is said of each adds up"


def test_stages_whose_turn_depends_on_others_are_named(place, tmp_path):
    """Their successors are named, too; the plan is for the other stages."""
    with (tmp_path / "flow.toml").open("a") as file:
        for name, after, more in (
            ("rescue", "fit", 'when = "failed"'),
            ("watch", "fit", 'after_start = ["fit"]'),
            ("mail", "watch", ""),
        ):
            file.write(f'\n[[stage]]\nname = "{name}"\nafter = ["{after}"]\ncores = 1\nwalltime = "1h"\n')
            file.write(f'command = "x"\n{more}\n')
    said = " ".join(place().stdout.split())
    assert "Not in this plan: rescue, watch, mail. When, and whether, they run depends on how others go." in said
