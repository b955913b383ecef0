"""Jobs that race for the same work, over a simulated machine of 8 cores that outlives a client."""

from dataclasses import replace

import pytest
from mortal_client import Killed, Mortal, Wrong, answer_lost, deferred, go, lost, unavailable
from racing_world import CHAIN, Late, check, machine, ran, refused, stage

from asa.backend import JobSpec, JobState, PartitionLimits
from asa.cli.kinds import unit_standing
from asa.cli.standing import StageStanding
from asa.outcome import JobOutcome
from asa.records import Cancelled, StageEnded, StageStarted, Submitted
from asa.runner import RunPlan, read_journal
from asa.runner.entries import GivingUp, Intended
from asa.runner.forecasts import LearnedForecast, NoForecast
from asa.runner.outlook import jobs_at_first
from asa.runner.state import RunState
from asa.shapes import Moldable, Scaling
from asa.strategies import load_strategy
from asa.strategies.base import Phase
from asa.strategies.racing import Races
from asa.waits import LEVELS, WaitForecast
from asa.workflow import Stage, Workflow

RACING = replace(load_strategy("asa-plan:races=yes"), races=Races(max_racers=4, alone=2, patience=0))
# submit, request, run, cores: what others hold
LEADS = ()
WAITS = ((0, 2000, 2000, 4),)  # the lead would wait until 2000, and one of 4 cores starts at once
AT_ONCE = ((0, 900, 300, 8),)  # several may start at 300
LATE = ((0, 900, 300, 6), (0, 900, 350, 2))


def asked(result):
    return [(r.stages, r.cores, r.time_s) for r in result.records if isinstance(r, Submitted)]


def test_all_that_is_left_is_asked_for_at_the_width_that_still_gains(tmp_path):
    result = go(world := machine(LEADS), tmp_path, RACING, flow=CHAIN)
    check(world, tmp_path, result)
    assert asked(result) == [(("a", "b", "c"), 8, 0)]


def test_the_first_to_start_is_kept_and_the_others_are_withdrawn(tmp_path):
    result = go(world := machine(WAITS), tmp_path, replace(RACING, races=Races(alone=0, patience=0)), flow=CHAIN)
    check(world, tmp_path, result)
    whole = ("a", "b", "c")
    assert asked(result) == [(whole, 8, 0), (whole, 4, 60), (whole, 2, 60)]
    [*ended] = [r.time_s for r in result.records if isinstance(r, StageEnded)]
    assert ended == [260, 460, 660], "on 4 cores from 60 on"
    withdrawn = {r.job_id: r.reason for r in result.records if isinstance(r, Cancelled)}
    assert set(withdrawn) == {"1", "3"}
    assert "job 2, which raced with it for stage 'a', started first" in withdrawn.values()


class Informed(NoForecast):
    """Waits of ten seconds."""

    is_informed = True

    def predict(self, stages, needed_s):
        return WaitForecast((10.0,) * len(LEVELS), 10.0)


@pytest.mark.parametrize(
    ("strategy", "forecast", "races"),
    [
        ("asa-plan", NoForecast(), True),
        ("asa-plan", Informed(), False),
        ("asa-plan:races=yes", Informed(), True),
        ("asa-plan:races=no", NoForecast(), False),
        ("asa-plan:shapes=own", NoForecast(), False),
        ("asa-plan:at-most=2", NoForecast(), False),
    ],
)
def test_requests_race_while_nothing_is_known_of_waits(strategy, forecast, races):
    state = RunState("w", CHAIN, replace(machine(WAITS).capabilities, races=True), "r" * 12, None, "")
    plan = load_strategy(strategy).plan(state.view(0.0), forecast)
    first, *_ = plan.submissions
    is_first_of_a_race = first.racer == 1 and plan.choices.keys() == {"a", "b", "c"} and "race with it" in first.reason
    assert is_first_of_a_race is races


@pytest.mark.parametrize("others", [WAITS, AT_ONCE, LATE])
def test_a_race_ends_well_though_waits_become_known_meanwhile(others, tmp_path, monkeypatch):
    """The first wait that ends, that of a job that started, makes the forecast one to plan with."""
    monkeypatch.setattr(LearnedForecast, "is_informed", property(lambda forecast: forecast.bank.own > 0))
    races = Races(max_racers=4, alone=2, patience=0)
    result = go(world := machine(others), tmp_path, replace(load_strategy("asa-plan"), races=races), flow=CHAIN)
    check(world, tmp_path, result)
    assert any(job_stages == ("a", "b", "c") for job_stages, _, _ in asked(result))
    assert len(asked(result)) > 1


def test_what_runs_longer_is_asked_for_once_the_first_has_waited_as_long(tmp_path):
    """On 8, 4 and 2 cores the three stages take 300, 600 and 1,200 s; on 4 cores one could start at once."""
    result = go(world := machine(WAITS), tmp_path, replace(RACING, races=Races(alone=0)), flow=CHAIN)
    check(world, tmp_path, result)
    whole = ("a", "b", "c")
    assert asked(result) == [(whole, 8, 0), (whole, 4, 300)]
    assert [r.time_s for r in result.records if isinstance(r, StageEnded)] == [500, 700, 900]


def test_what_has_more_to_run_than_the_stage_that_started_stays_pending(tmp_path):
    """The first stage starts alone; when the job for all three starts at 2000, it runs the other two."""
    races = Races(max_racers=1, alone=1)
    first = replace(stage("a"), cores=4, moldable=None)
    others = [replace(stage(name, before), walltime_s=1900) for name, before in ("ba", "cb")]
    flow = Workflow("chain", [first, *others])
    result = go(world := machine(WAITS), tmp_path, replace(RACING, races=races), flow=flow)
    assert result.outcome == "completed"
    whole = ("a", "b", "c")
    assert asked(result)[:3] == [(whole, 8, 0), (("a",), 4, 60), (("b",), 8, 160)]
    assert [len(jobs) for jobs in ran(world, tmp_path).values()] == [1, 1, 1]
    ended = {r.stages[0]: (r.time_s, r.job_id) for r in result.records if isinstance(r, StageEnded)}
    assert ended == {"a": (160, "2"), "b": (2100, "1"), "c": (2200, "1")}


def test_of_two_that_start_in_the_same_second_one_runs(tmp_path):
    result = go(world := machine(AT_ONCE), tmp_path, RACING, flow=CHAIN)
    check(world, tmp_path, result)
    world = machine(())
    both = [world.submit(JobSpec("j", 4, 100.0, run_s=50.0, token=f"t{n}", race="r")) for n in (1, 2)]
    while not all(s.state.is_final for s in world.status(both).values()):
        world.wait(None)
    first, second = world.status(both).values()
    assert (first.state, first.end_s) == (JobState.COMPLETED, 50)
    assert (second.outcome, second.payload_start_s) == (JobOutcome.OUTRUN, None)
    assert second.end_s <= 1


@pytest.mark.full
@pytest.mark.parametrize("others", [WAITS, AT_ONCE, LATE])
@pytest.mark.parametrize("races", [Races(), Races(max_racers=6, alone=2, patience=0)])
def test_a_client_killed_at_any_point_of_a_race_goes_on_where_it_was(others, races, tmp_path):
    strategy, plain = replace(RACING, races=races), Mortal()
    (tmp_path / "plain").mkdir()
    check(world := machine(others), tmp_path / "plain", go(world, tmp_path / "plain", strategy, plain, CHAIN))
    for at in range(plain.count):
        folder = tmp_path / str(at)
        folder.mkdir()
        world = machine(others)
        with pytest.raises(Killed):
            go(world, folder, strategy, Mortal(at), CHAIN)
        if at % 2:
            world.wait(400.0)  # nobody looks for a while
        check(world, folder, go(world, folder, strategy, flow=CHAIN))


@pytest.mark.parametrize("how", [lost, answer_lost, unavailable, deferred])
def test_a_racer_whose_submission_goes_wrong(how, tmp_path):
    for at in range(4):
        folder = tmp_path / str(at)
        folder.mkdir()
        world = machine(AT_ONCE)
        check(world, folder, go(Wrong(world, "submit", at, how), folder, RACING, flow=CHAIN))


# the one of 2 cores that is asked for last begins before it is known, and those of 4 cores start then
EARLY = ((0, 60, 60, 2), (0, 66, 66, 4), (0, 5000, 5000, 2))


@pytest.mark.parametrize("delay_s", [2, 13, 90, 800])
@pytest.mark.parametrize("others", [EARLY, AT_ONCE, LATE])
def test_a_racer_that_turns_up_late_is_one_of_them(delay_s, others, tmp_path):
    """It begins the stages before the other racers, or comes too late."""
    for at in range(5):
        folder = tmp_path / str(at)
        folder.mkdir()
        world = Late(machine(others), at, delay_s)
        check(world, folder, go(world, folder, RACING, flow=CHAIN))


def test_a_racer_that_began_while_it_was_in_doubt_leads(tmp_path):
    """Another racer starts meanwhile and ends as outrun, which proves that this one began: nothing is resubmitted."""
    world = Late(machine(EARLY), 3, 2)
    result = go(world, tmp_path, RACING, flow=CHAIN)
    check(world, tmp_path, result)
    assert len(asked(result)) == 4
    [first] = [r for r in result.records if isinstance(r, StageStarted) and r.stages == ("a",)]
    assert first.time_s == 62


def test_a_client_killed_while_one_is_yet_to_turn_up(tmp_path):
    (plain_folder := tmp_path / "plain").mkdir()
    plain = Mortal()
    go(Late(machine(EARLY), 3, 2), plain_folder, RACING, plain, CHAIN)
    for dies_at in range(0, plain.count, 3):
        (folder := tmp_path / f"{dies_at}").mkdir()
        world = Late(machine(EARLY), 3, 2)
        with pytest.raises(Killed):
            go(world, folder, RACING, Mortal(dies_at), CHAIN)
        check(world, folder, go(world, folder, RACING, flow=CHAIN))


def test_a_racer_that_is_refused_is_no_failure(tmp_path):
    world = machine(AT_ONCE)
    check(world, tmp_path, go(Wrong(world, "submit", 1, refused), tmp_path, RACING, flow=CHAIN))
    intents = [e for e in read_journal(tmp_path / "journal.jsonl")[0] if isinstance(e, Intended)]
    assert len({(e.planned.stages, e.planned.shapes) for e in intents}) == len(intents), "it is not asked for again"


def test_a_racer_that_cannot_be_withdrawn_in_time_runs_nothing(tmp_path):
    """The cancellation fails until the racer starts."""
    for at in range(3):
        folder = tmp_path / str(at)
        folder.mkdir()
        world = machine(AT_ONCE)
        check(world, folder, go(Wrong(world, "cancel", at, unavailable), folder, RACING, flow=CHAIN))


def test_nothing_hangs_on_a_job_that_may_be_withdrawn(tmp_path):
    result = go(world := machine(WAITS), tmp_path, RACING, flow=CHAIN)
    check(world, tmp_path, result)
    intents = [e for e in read_journal(tmp_path / "journal.jsonl")[0] if isinstance(e, Intended)]
    assert not any(e.spec.dependencies for e in intents)
    assert any(isinstance(e, GivingUp) for e in read_journal(tmp_path / "journal.jsonl")[0])


def shown_of(state, name):
    units = unit_standing(state, name, None, 0.0, None)
    return StageStanding(name, "", 8, 200.0, job_id=state.stages[name].job_id, units=units)


def test_commands_show_which_jobs_race_and_why_one_was_withdrawn(tmp_path):
    result = go(machine(WAITS), tmp_path, replace(RACING, races=Races(alone=0, patience=0)), flow=CHAIN)
    assert result.outcome == "completed"
    state = RunState("chain", CHAIN, machine(WAITS).capabilities, "r" * 12, None, "")
    lines, said = [], []
    for entry in read_journal(tmp_path / "journal.jsonl")[0]:
        list(state.apply(entry))
        a, b = (shown_of(state, name) for name in "ab")
        lines += [a.units.line(a, 0.0)] * (a.units.line(a, 0.0) not in lines)
        if state.stages["a"].phase is not Phase.DONE:
            assert not b.units.line(b, 0.0), "it is not its turn"
        said = [*a.units.other_jobs(a)]
    one, two, three = (f"job {job} on {cores} cores for 3 stages" for job, cores in ((1, 8), (2, 4), (3, 2)))
    assert lines == [
        "",
        f"the first to start runs it: {one}, {two}",
        f"the first to start runs it: {one}, {two}, {three}",
        f"{two} started first of 3 that were submitted; still pending: {one}, {three}",
        f"{two} started first of 3 that were submitted; still pending: {three}",
        f"{two} started first of 3 that were submitted",
    ]
    assert said == [
        f"Job {job} for 3 stages raced with it, and was cancelled by asa, since job 2, which raced with it for stage "
        "'a', started first."
        for job in ("1 on 8 cores", "3 on 2 cores")
    ]
    assert [racer["state"] for racer in a.units.documents()["racers"]] == ["withdrawn", "ended", "withdrawn"]


def test_a_dry_run_shows_which_jobs_will_race():
    """With the time after which they are submitted, if the first one has not started: what runs longer comes later."""
    site = machine(WAITS).capabilities
    plan = RunPlan("abcd1234", "w", "w", tuple(CHAIN.stages.values()), "asa-plan", "local", site, created_s=1.7e9)
    jobs = list(jobs_at_first(plan, replace(RACING, races=Races(alone=1, pause_s=90.0))))
    assert [(job.planned.stages, job.spec.cores, job.planned.racer, job.in_s) for job in jobs] == [
        (("a", "b", "c"), 8, 1, 0.0),
        (("a",), 8, 2, 90.0),
        (("a", "b", "c"), 4, 3, 300.0),
        (("a", "b", "c"), 2, 4, 900.0),
    ]


def test_what_does_not_race_is_planned_as_without():
    for changes in ({"tasks": ("t",), "jobs": (2, 2)}, {"local": True}):
        other = replace(stage("a"), **changes, moldable=None)
        state = RunState("w", Workflow("w", [other]), machine(WAITS).capabilities, "r" * 12, None, "")
        assert Races().plan(state.view(0.0)) is None
    state = RunState("w", CHAIN, replace(machine(WAITS).capabilities, races=False), "r" * 12, None, "")
    assert Races().plan(state.view(0.0)) is None


def test_stages_that_may_run_at_once_are_not_put_into_one_job(tmp_path):
    """Two stages after the first fit beside each other; in a job for all that is left they would take turns."""
    halves = [replace(stage(name, "a"), cores=4, moldable=Moldable((4, 2), scaling=Scaling("tasks"))) for name in "bc"]
    result = go(machine(()), tmp_path, load_strategy("asa-plan"), flow=Workflow("fork", [stage("a"), *halves]))
    assert [stages for stages, _, _ in asked(result)] == [("a",), ("b",), ("c",)]
    assert result.records[-1].time_s == 200


@pytest.mark.parametrize(
    ("place", "changes", "first"),
    [
        (2, {"account": "other"}, ("a", "b")),
        (2, {"options": ("--foo",)}, ("a", "b")),
        (2, {"partition": "other"}, ("a", "b")),
        (0, {"retries": 1}, ("a",)),
        (1, {"retries": 1}, ("a",)),
    ],
)
def test_a_job_is_asked_for_as_many_stages_as_can_share_it(place, changes, first, tmp_path):
    stages = list(CHAIN.stages.values())
    stages[place] = replace(stages[place], **changes)
    result = go(machine(WAITS), tmp_path, load_strategy("asa-plan"), flow=Workflow("chain", stages))
    assert result.outcome == "completed", result.reason
    assert asked(result)[0] == (first, 8, 0)
    assert [r.stages for r in result.records if isinstance(r, StageEnded)] == [("a",), ("b",), ("c",)]


@pytest.mark.parametrize(
    ("limit_s", "first", "widths"), [(600, 3, {8}), (1200, 3, {8, 4}), (599, 2, {8}), (200, 1, {8})]
)
def test_no_racer_asks_for_more_time_than_its_partition_gives(limit_s, first, widths, tmp_path):
    """On 8, 4 and 2 cores a stage asks for 200, 400 and 800 s."""
    world = Late(machine(((0, 3000, 3000, 8),)), at=-1, delay_s=0.0)
    world.capabilities = replace(world.capabilities, partition="p", partitions={"p": PartitionLimits(limit_s)})
    result = go(world, tmp_path, load_strategy("asa-plan"), flow=CHAIN)
    check(world, tmp_path, result)
    submitted = [r for r in result.records if isinstance(r, Submitted)]
    assert max(r.walltime_s for r in submitted) <= limit_s
    assert len(submitted[0].stages) == first
    assert {r.cores for r in submitted if len(r.stages) == first and r.time_s < 3000} == widths


def test_what_is_left_is_asked_for_alone_if_its_job_holds_cores_for_what_has_ended(tmp_path):
    """4 of 8 cores are free until 3000, by when the job of both stages could not end, but each alone does."""
    stages = [
        replace(stage("a"), moldable=Moldable((8, 4), scaling=Scaling("tasks"))),
        Stage("b", cores=1, walltime_s=2600, expected_run_s=100, after=("a",)),
    ]
    result = go(machine(((0, 3000, 3000, 4),)), tmp_path, RACING, flow=Workflow("chain", stages))
    ended = {r.stages[0]: r.time_s for r in result.records if isinstance(r, StageEnded)}
    assert ended == {"a": 260, "b": 360}
    assert asked(result)[-1] == (("b",), 1, 260)
