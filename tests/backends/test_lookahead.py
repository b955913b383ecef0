"""The estimator that simulates the visible queue."""

import gzip
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from asa.backends.simulated.lookahead import FACTS, OPINIONS, QueueSimulation, queue_simulation
from asa.backends.simulated.replay import replay
from hypothesis import given
from hypothesis import strategies as st

from asa.core.plugins import load
from asa.errors import InputError, StateError
from asa.testing import check_estimator
from asa.waits import QueuedJob, Surroundings, at_least, at_most, exactly

YEARS_S = 315_360_000.0


def opinion(queue, job, name):
    return queue.opinions(job)[OPINIONS.index(name)]


def fact(queue, job, name):
    return queue.facts(job)[list(FACTS).index(name)]


def run(queue, job):
    """Start a job at once; return its ticket."""
    ticket = queue.submitted(job)
    queue.observe(ticket, exactly(0.0))
    return ticket


def asks(cores, asked_s, at=0.0, user="", partition=""):
    return QueuedJob(float(at), cores, float(asked_s), user, partition=partition)


# ---------------------------------------------------------------------- it is the engine


@st.composite
def queues(draw):
    """Draw a machine with running and pending jobs, their times, and their real run times."""
    capacity = draw(st.integers(1, 12))
    jobs = st.tuples(st.integers(1, capacity), st.integers(1, 60), st.integers(1, 100))
    running, free = [], capacity
    for cores, asked_s, percent in draw(st.lists(jobs, max_size=8)):
        if cores <= free:
            free -= cores
            running.append((cores, asked_s, percent, draw(st.integers(0, asked_s - 1))))
    waiting = [(*job, draw(st.integers(0, 50))) for job in draw(st.lists(jobs, min_size=1, max_size=14))]
    return capacity, running, waiting


NOW_S = 10_000


def visible(capacity, running, waiting):
    """Make an estimator that sees this queue, and knows how much of their requests its users use."""
    queue = QueueSimulation(capacity)
    everybody = [*running, *waiting]
    uses = [max(1, asked_s * percent // 100) for _, asked_s, percent, _ in everybody]
    for number, ((cores, asked_s, _, _), used_s) in enumerate(zip(everybody, uses, strict=True)):
        queue.ended(run(queue, asks(cores, asked_s, 0, f"user{number}")), used_s)
    for number, (cores, asked_s, _, elapsed_s) in enumerate(running):
        run(queue, asks(cores, asked_s, NOW_S - elapsed_s, f"user{number}"))
    return queue, uses


def starts(capacity, running, waiting, uses, order, *, expected):
    """Return the starts of waiting jobs in the engine; running ones are submitted first, and start at once."""
    rows = []
    for (_, asked_s, _, elapsed_s), used_s in zip(running, uses, strict=False):
        left = asked_s - elapsed_s
        outlived = max(60, elapsed_s)
        rows.append(min(left, used_s - elapsed_s if used_s > elapsed_s else outlived) if expected else left)
    asked = [asked_s - elapsed_s for _, asked_s, _, elapsed_s in running] + [waiting[i][1] for i in order]
    runs = rows + [(uses[len(running) + i] if expected else waiting[i][1]) for i in order]
    cores = [job[0] for job in running] + [waiting[i][0] for i in order]
    columns = [np.array(column) for column in ([0] * len(asked), runs, asked, cores)]
    found = replay(*columns, capacity=capacity)[len(running) :].tolist()
    return dict(zip(order, found, strict=True))


@given(queues())
def test_opinions_are_the_starts_of_the_engine(state):
    """For each prefix of the queue, whose last job is predicted; with three orders and two rules for run times."""
    capacity, running, waiting = state
    queue, uses = visible(*state)
    ages = sorted((age for *_, age in waiting), reverse=True)  # in order of submission
    waiting = [(*job[:3], age) for job, age in zip(waiting, [*ages[:-1], 0], strict=True)]
    for last, (cores, asked_s, _, age) in enumerate(waiting):
        # everybody who waits has been waiting for some time, but the predicted job, which is submitted now
        target = asks(cores, asked_s, NOW_S, f"user{len(running) + last}")
        so_far = range(last + 1)

        def urgency(i, last=last):
            waited = waiting[i][3] if i < last else 0
            return -((waited / waiting[i][1]) ** 3) * waiting[i][0]

        orders = {
            "fcfs": list(so_far),
            "shortest": sorted(so_far, key=lambda i: waiting[i][1]),
            "wfp": sorted(so_far, key=urgency),
        }
        for name, order in orders.items():
            for rule in ("requested", "expected"):
                expected = starts(capacity, running, waiting, uses, order, expected=rule == "expected")[last]
                assert opinion(queue, target, f"machine_{name}_{rule}") == expected, (name, rule)
        queue.submitted(asks(cores, asked_s, NOW_S - age, f"user{len(running) + last}"))


@given(queues())
def test_facts_are_what_can_be_counted(state):
    capacity, running, waiting = state
    queue, uses = visible(*state)
    for number, (cores, asked_s, _, age) in enumerate(waiting):
        queue.submitted(asks(cores, asked_s, NOW_S - age, f"user{len(running) + number}"))
    target = asks(2, 30, NOW_S, "user0")
    told = dict(zip(FACTS, queue.facts(target), strict=True))
    free = capacity - sum(cores for cores, *_ in running)
    smaller = [job for job in waiting if job[0] <= min(2, capacity) and job[1] <= 30]
    waiting_uses = uses[len(running) :]
    assert told["free_cores"] == free
    assert told["busy_share"] == pytest.approx(1 - free / capacity)
    assert (told["running_jobs"], told["pending_jobs"]) == (len(running), len(waiting))
    assert told["pending_cores"] == sum(cores for cores, *_ in waiting)
    assert told["pending_work_asked"] == sum(cores * asked_s for cores, asked_s, *_ in waiting)
    work = sum(job[0] * used_s for job, used_s in zip(waiting, waiting_uses, strict=True))
    assert told["pending_work_expected"] == work
    assert told["running_work_asked"] == sum(cores * (asked - since) for cores, asked, _, since in running)
    assert told["pending_jobs_smaller"] == len(smaller)
    assert told["longest_wait_smaller_s"] == max((age for *_, age in smaller), default=0)
    assert told["longest_wait_s"] == max(age for *_, age in waiting)
    assert told["pending_jobs_that_fit"] == sum(cores <= free for cores, *_ in waiting)
    of_user = running[:1] if running else []
    assert told["running_cores_of_user"] == sum(cores for cores, *_ in of_user)
    assert told["pending_jobs_of_user"] == (0 if running else 1)


# ---------------------------------------------------------------------- rules


def test_run_times_are_expected_by_shape_then_user_then_site():
    queue = QueueSimulation(100)
    for used_s in (900.0, 100.0, 300.0):  # the last two count
        queue.ended(run(queue, asks(4, 1000, 0, "ada")), used_s)
    queue.ended(run(queue, asks(8, 1000, 0, "ada")), 800.0)
    assert fact(queue, asks(4, 1000, 9000, "ada"), "expected_run_s") == 200
    assert fact(queue, asks(8, 1000, 9000, "ada"), "expected_run_s") == 800
    assert fact(queue, asks(5, 1000, 9000, "ada"), "expected_run_s") == 550  # the mean of 0.3 and 0.8
    stranger = fact(queue, asks(4, 1000, 9000, "bob"), "expected_run_s")
    assert 900 <= stranger < 1000  # mostly the request as yet: four jobs do not make a site
    nobody = fact(queue, asks(4, 1000, 9000), "expected_run_s")
    assert nobody == stranger  # jobs whose user is unknown are no user's
    for _ in range(1000):
        queue.ended(run(queue, asks(1, 100, 10_000, "eve")), 50.0)
    assert fact(queue, asks(4, 1000, 10_000, "bob"), "expected_run_s") == pytest.approx(500, abs=5)


def test_a_job_that_outlives_its_expectation_is_expected_to_run_as_long_again():
    queue = QueueSimulation(4)
    queue.ended(run(queue, asks(4, 10_000, 0, "ada")), 100.0)
    run(queue, asks(4, 10_000, 1000, "ada"))
    waits = [opinion(queue, asks(1, 60, 1000 + age), "machine_fcfs_expected") for age in (0, 60, 400, 6000)]
    assert waits == [100, 40, 400, 4000]  # at the end the request is nearer


def test_a_job_over_its_request_ends_soon_and_in_the_end_has_ended():
    queue = QueueSimulation(4)
    ticket = run(queue, asks(4, 1000, 0))
    waits = [opinion(queue, asks(1, 60, age), "machine_fcfs_requested") for age in (999, 1001, 1100, 4500)]
    assert waits == [1, 10, 100, 600]
    assert opinion(queue, asks(1, 60, 4601), "machine_fcfs_requested") == 0
    queue.submitted(asks(4, 60, 5000))
    assert fact(queue, asks(1, 60, 5000), "running_jobs") == 0
    queue.ended(ticket, 9000.0)  # told late after all
    assert fact(queue, asks(1, 60, 9000), "free_cores") == 4
    with pytest.raises(InputError):
        queue.ended(ticket, 9000.0)


def test_without_a_number_of_cores_the_machine_is_what_was_seen_in_use():
    queue = QueueSimulation()
    assert opinion(queue, asks(7, 60), "machine_fcfs_requested") == 0
    tickets = [run(queue, asks(5, 1000)) for _ in range(2)]
    assert fact(queue, asks(1, 60), "capacity") == 10
    queue.ended(tickets[0], 10.0)
    assert opinion(queue, asks(5, 60, 20), "machine_fcfs_requested") == 0
    assert opinion(queue, asks(6, 60, 20), "machine_fcfs_requested") == 980
    assert opinion(queue, asks(12, 60, 20), "machine_fcfs_requested") == 980


def test_more_jobs_than_cores_block_until_enough_ended():
    queue = QueueSimulation(10)
    for length in (100, 200, 300):
        run(queue, asks(8, length))
    assert fact(queue, asks(2, 60, 50), "free_cores") == 0
    assert fact(queue, asks(2, 60, 50), "busy_share") == 2.4
    assert opinion(queue, asks(2, 60, 50), "machine_fcfs_requested") == 150
    assert opinion(queue, asks(3, 60, 50), "machine_fcfs_requested") == 250
    assert opinion(queue, asks(99, 60, 50), "machine_fcfs_requested") == 250


def test_held_jobs_do_not_compete_and_tell_of_their_users_limit():
    queue = QueueSimulation(100)
    run(queue, asks(10, 5000, 0, "ada"))
    for _ in range(3):
        queue.submitted(asks(40, 9000, 0, "ada"))
    # they were submitted just now: the next pass may start two of them
    assert opinion(queue, asks(90, 60, 10, "bob"), "unheld_fcfs_requested") > 9000
    # half a minute later they still have not started, though they could
    assert fact(queue, asks(90, 60, 100, "bob"), "held_jobs") == 3
    assert fact(queue, asks(90, 60, 100, "bob"), "user_is_limited") == 0
    assert opinion(queue, asks(90, 60, 100, "bob"), "unheld_fcfs_requested") == 0
    assert opinion(queue, asks(90, 60, 100, "bob"), "machine_fcfs_requested") > 9000
    # and another one of that user waits for those before it
    assert fact(queue, asks(1, 60, 100, "ada"), "user_is_limited") == 1
    assert opinion(queue, asks(1, 60, 100, "ada"), "unheld_shortest_requested") == 4900
    assert opinion(queue, asks(1, 60, 100, "ada"), "unheld_fcfs_requested") == 4900 + 3 * 9000
    assert opinion(queue, asks(1, 60, 100, "ada"), "machine_fcfs_requested") == 0
    # where the machine is full for longer than the user's own jobs need, that counts
    run(queue, asks(50, 60_000, 100, "eve"))
    assert fact(queue, asks(60, 60, 100, "ada"), "user_is_limited") == 1
    assert opinion(queue, asks(60, 60, 100, "ada"), "unheld_shortest_requested") == 60_000


def test_jobs_of_nobody_in_particular_do_not_limit_each_other():
    queue = QueueSimulation(100)
    queue.submitted(asks(40, 9000, 0))
    assert fact(queue, asks(1, 60, 100), "held_jobs") == 1
    assert fact(queue, asks(1, 60, 100), "user_is_limited") == 0
    assert opinion(queue, asks(1, 60, 100), "unheld_fcfs_requested") == 0


def test_a_job_for_which_room_was_made_just_now_is_not_held():
    queue = QueueSimulation(10)
    queue.submitted(asks(5, 9000, 0))
    first = run(queue, asks(8, 1000, 50))
    assert fact(queue, asks(1, 60, 60), "held_jobs") == 0
    queue.ended(first, 500.0)
    assert fact(queue, asks(1, 60, 560), "held_jobs") == 0
    assert fact(queue, asks(1, 60, 600), "held_jobs") == 1


def test_a_job_that_backfilling_keeps_back_is_not_held():
    queue = QueueSimulation(10)
    run(queue, asks(8, 1000, 0))
    queue.submitted(asks(10, 500, 0))  # the head, which reserves second 1000
    queue.submitted(asks(2, 5000, 0))  # fits now, but would delay the head
    assert fact(queue, asks(1, 10, 600), "pending_jobs_that_fit") == 1
    assert fact(queue, asks(1, 10, 600), "held_jobs") == 0


def test_partitions_are_looked_at_apart_once_there_are_two():
    queue = QueueSimulation(100)
    big = run(queue, asks(60, 1000, 0, partition="batch"))
    assert len(set(queue.opinions(asks(1, 60, 5, partition="batch")))) == 1
    run(queue, asks(4, 500, 0, partition="debug"))
    for name, wait in (("machine_fcfs_requested", 0), ("partition_fcfs_requested", 490)):
        assert opinion(queue, asks(2, 60, 10, partition="debug"), name) == wait
    assert fact(queue, asks(2, 60, 10, partition="debug"), "partition_free_cores") == 0
    assert fact(queue, asks(2, 60, 10, partition="batch"), "partition_running_jobs") == 1
    queue.ended(big, 20.0)
    assert opinion(queue, asks(60, 60, 30, partition="batch"), "partition_fcfs_requested") == 0
    # a partition that nobody has seen has nothing to look at apart
    new = queue.opinions(asks(2, 60, 30, partition="new"))
    assert new[:6] == new[6:12]


def test_names_and_numbers_belong_together():
    queue = QueueSimulation(10)
    assert len(OPINIONS) == len(set(OPINIONS)) == len(queue.opinions(asks(1, 60))) == 18
    assert len(FACTS) == len(queue.facts(asks(1, 60)))


# ---------------------------------------------------------------------- tickets and orders of events


def test_a_bound_from_below_leaves_the_queue_and_one_from_above_starts():
    queue = QueueSimulation(10)
    gone, late = queue.submitted(asks(10, 500)), queue.submitted(asks(10, 500))
    assert fact(queue, asks(1, 60), "pending_jobs") == 2
    queue.observe(gone, at_least(20.0))
    assert (fact(queue, asks(1, 60), "pending_jobs"), fact(queue, asks(1, 60), "running_jobs")) == (1, 0)
    queue.observe(late, at_most(30.0))
    assert opinion(queue, asks(1, 60, 100), "machine_fcfs_requested") == 430
    with pytest.raises(InputError, match="ticket 0"):
        queue.ended(gone, 1.0)


def test_tickets_are_answered_once_and_only_those_that_were_given():
    queue = QueueSimulation(10)
    with pytest.raises(InputError, match="ticket 0"):
        queue.observe(0, exactly(1.0))
    with pytest.raises(InputError, match="ticket 0"):
        queue.ended(0, 1.0)
    ticket = run(queue, asks(1, 60))
    with pytest.raises(InputError):
        queue.observe(ticket, exactly(1.0))
    queue.ended(ticket, 5.0)
    with pytest.raises(InputError):
        queue.ended(ticket, 5.0)
    for nonsense in (-1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="cannot be"):
            queue.ended(run(queue, asks(1, 60)), nonsense)


def test_an_end_may_be_told_before_the_start():
    queue = QueueSimulation(10)
    ticket = queue.submitted(asks(10, 500, 0, "ada"))
    queue.ended(ticket, 50.0)
    assert (fact(queue, asks(1, 60, 90), "pending_jobs"), fact(queue, asks(1, 60, 90), "running_jobs")) == (0, 0)
    queue.observe(ticket, exactly(10.0))
    assert fact(queue, asks(1, 60, 90), "free_cores") == 10
    assert fact(queue, asks(10, 500, 90, "ada"), "expected_run_s") == 50
    with pytest.raises(InputError):
        queue.observe(ticket, exactly(10.0))


def test_a_machine_of_less_than_no_cores_is_refused():
    with pytest.raises(InputError, match="-1 cores"):
        QueueSimulation(-1)


# ---------------------------------------------------------------------- what may change what

EVENTS = st.lists(
    st.tuples(
        st.integers(0, 400),  # submitted
        st.integers(0, 300),  # waits
        st.integers(0, 300),  # runs
        st.integers(1, 12),  # cores
        st.integers(1, 300),  # asks for
        st.sampled_from(["", "ada", "bob"]),
        st.sampled_from(["batch", "debug"]),
        st.sampled_from([exactly, at_least, at_most]),
    ),
    min_size=1,
    max_size=25,
)


def lived(queue, jobs, *, until=math.inf, after=-math.inf, tickets=None):
    """Replay a log in order of time; return the predictions at each submission, and the tickets."""
    said, tickets = [], dict(tickets or {})
    moments = []
    for number, (submit, wait, runs, *_) in enumerate(jobs):
        moments += [
            (submit, 1, number),
            (submit + wait, 2, number),
            (submit + wait + runs, 3 if runs == 0 else 0, number),
        ]
    for time, kind, number in sorted(moments):
        if not after < time <= until:
            continue
        submit, wait, runs, cores, asked_s, user, partition, observed = jobs[number]
        if kind == 1:
            job = asks(cores, asked_s, submit, user, partition)
            said.append((time, queue.predict(job), queue.opinions(job), queue.facts(job)))
            tickets[number] = queue.submitted(job)
        elif kind == 2:
            queue.observe(tickets[number], observed(wait))
        elif observed is not at_least:
            queue.ended(tickets[number], runs)
    return said, tickets


@given(EVENTS, EVENTS, st.integers(0, 400))
def test_nothing_that_happens_later_changes_what_was_said(jobs, others, now):
    """If later ends and later jobs are replaced, earlier predictions are the same."""

    def changed(job):
        submit, wait, runs, *rest = job
        if submit + wait > now:
            return (submit, now - submit + 1 + wait % 7, runs // 2, *rest[:-1], exactly)
        return (submit, wait, now - submit - wait + 1 + runs % 5 if submit + wait + runs > now else runs, *rest)

    first = [job for job in jobs if job[0] <= now]
    then = [(job[0] + now + 1, *job[1:]) for job in others]
    one, _ = lived(QueueSimulation(16), first + [job for job in jobs if job[0] > now])
    other, _ = lived(QueueSimulation(16), [changed(job) for job in first] + then)
    assert [said for said in one if said[0] <= now] == [said for said in other if said[0] <= now]


@given(EVENTS, st.integers(0, 600))
def test_an_estimator_continues_from_its_state_as_if_nothing_had_been(jobs, cut):
    queue = QueueSimulation(16)
    _, tickets = lived(queue, jobs, until=cut)
    state = json.loads(json.dumps(queue.state(), allow_nan=False))
    twin = QueueSimulation.from_state(state)
    one, _ = lived(queue, jobs, after=cut, tickets=tickets)
    other, _ = lived(twin, jobs, after=cut, tickets=tickets)
    assert one == other
    assert twin.state() == queue.state()


@given(EVENTS)
def test_asking_changes_nothing(jobs):
    queue, silent = QueueSimulation(16), QueueSimulation(16)
    moments = sorted(enumerate(jobs), key=lambda row: row[1][0])
    for number, (submit, _, _, cores, asked_s, user, partition, _) in moments:
        job = asks(cores, asked_s, submit, user, partition)
        queue.predict(asks(3, 77, submit, f"stranger{number}", "elsewhere"))
        assert queue.predict(job) == queue.predict(job)
        assert queue.submitted(job) == silent.submitted(job)
    assert queue.state() == silent.state()


@given(
    st.lists(
        st.tuples(
            st.floats(-1e12, 1e12),
            st.sampled_from([1, 3, 2**31, 2**49]),
            st.sampled_from([1e-9, 1.0, 2.5, 1e9, 9e14]),
            st.sampled_from([0.0, 1e-9, 1e12, 1e300]),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([0, 1, 10**30]),
)
def test_whatever_happens_answers_are_finite_and_in_order(jobs, machine_cores):
    queue = QueueSimulation(machine_cores)
    for number, (submit_s, cores, asked_s, wait_s) in enumerate(jobs):
        job = QueuedJob(submit_s, cores, asked_s, f"user{number % 2}")
        forecast = queue.predict(job)
        assert all(0 <= q <= YEARS_S * 1.001 for q in forecast.quantiles_s)
        assert list(forecast.quantiles_s) == sorted(forecast.quantiles_s)
        assert all(0 <= wait <= YEARS_S for wait in queue.opinions(job))
        assert all(map(math.isfinite, queue.facts(job)))
        ticket = queue.submitted(job)
        if number % 4 < 3:
            queue.observe(ticket, exactly(wait_s))
    QueueSimulation.from_state(json.loads(json.dumps(queue.state(), allow_nan=False)))


def test_the_contract_is_kept():
    check_estimator(load("asa.estimators", "queue"), QueueSimulation.from_state)
    assert queue_simulation(Surroundings(machine_cores=7)).machine_cores == 7


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("waiting"),
        lambda state: state.update(format=0),
        lambda state: state.update(machine_cores=-1),
        lambda state: state.update(beliefs=[]),
        lambda state: state.update(tickets=0),
        lambda state: state["beliefs"][0].pop(),
        lambda state: state["waiting"][0].__setitem__(5, 99),
        lambda state: state["running"][0].__setitem__(3, -1),
        lambda state: state["running"][0].__setitem__(2, "soon"),
        lambda state: state["users"][0].__setitem__(1, math.nan),
        lambda state: state["advice"]["error"].pop(),
        lambda state: state.update(most_used=[]),
        lambda state: state.update(advice=None),
    ],
)
def test_a_spoiled_state_is_refused(spoil):
    queue = QueueSimulation(10)
    run(queue, asks(3, 60, 0, "ada"))
    queue.submitted(asks(9, 60, 0, "ada"))
    state = json.loads(json.dumps(queue.state()))
    QueueSimulation.from_state(state)
    spoil(state)
    with pytest.raises(StateError):
        QueueSimulation.from_state(state)


# ---------------------------------------------------------------------- learning


def test_it_learns_how_far_off_the_simulation_is():
    """Jobs wait about 2000 s, log-normally, on a machine that seems idle; quantiles cover what they say."""
    rng = np.random.default_rng(4)
    queue = QueueSimulation(1000)
    covered, middle = np.zeros(9), []
    rounds = 3000
    for number in range(rounds):
        job = asks(1, 600, 10_000 * number)
        forecast = queue.predict(job)
        wait_s = float(2000 * 10 ** rng.normal(0, 0.4))
        if number >= 1000:
            covered += wait_s <= np.array(forecast.quantiles_s)
            middle.append(forecast.wait_s)
        ticket = queue.submitted(job)
        queue.observe(ticket, exactly(wait_s))
        queue.ended(ticket, 60.0)
    assert np.abs(covered / (rounds - 1000) - np.arange(1, 10) / 10).max() < 0.05
    assert 1500 < np.median(middle) < 2700


def test_it_follows_the_opinion_that_is_right():
    """On a site that starts the shortest job first, a short job waits for the next end only."""
    rng = np.random.default_rng(7)
    queue, off = QueueSimulation(10), []
    for day in range(250):
        now = 1_000_000 * day
        left_s = int(10 ** rng.uniform(2, 4))
        running = run(queue, asks(10, left_s, now, "eve"))
        pending = [queue.submitted(asks(10, 4000, now, f"user{i}")) for i in range(rng.integers(1, 9))]
        short = asks(10, 100, now, "ada")
        off.append(abs(math.log10(queue.predict(short).wait_s / left_s)))
        ticket = queue.submitted(short)
        queue.ended(running, left_s)
        queue.observe(ticket, exactly(left_s))
        queue.ended(ticket, 100.0)
        for i, other in enumerate(pending):
            queue.observe(other, exactly(left_s + 100.0 + 4000 * i))
            queue.ended(other, 4000.0)
    assert np.mean(off[150:]) < 0.1
    assert np.mean(off[:5]) > 0.5


def test_bounds_teach_only_what_they_say():
    def taught(observation):
        queue = QueueSimulation(10)
        for number in range(300):
            queue.observe(queue.submitted(asks(1, 60, 1000 * number)), observation)
        return queue.predict(asks(1, 60, 10**6)).at(0.5)

    fresh = QueueSimulation(10).predict(asks(1, 60)).at(0.5)
    assert taught(at_least(0.5)) == taught(at_most(1e9)) == fresh
    assert taught(at_least(20_000.0)) > 10_000


def test_a_prediction_without_numba_is_the_same():
    script = """
import sys
if sys.argv[1] == "plain":
    sys.modules["numba"] = None
from asa.backends.simulated.lookahead import QueueSimulation
from asa.core.compiled import COMPILED
from asa.waits import QueuedJob, exactly
queue, said = QueueSimulation(64), []
for i in range(60):
    job = QueuedJob(50.0 * i, 1 + i * i % 40, 300.0 + 700 * (i * 7 % 11), f"user{i % 5}", partition="ab"[i % 7 == 0])
    said += [queue.predict(job), queue.opinions(job), queue.facts(job)]
    ticket = queue.submitted(job)
    if i % 3 == 0:
        queue.observe(ticket, exactly(i % 4))
    if i % 9 == 0:
        queue.ended(ticket, 40.0)
print(COMPILED, said, sep="\\n")
"""
    told = {
        kind: subprocess.run([sys.executable, "-c", script, kind], capture_output=True, text=True, check=True).stdout
        for kind in ("plain", "compiled")
    }
    compiled, plain = told["compiled"].split("\n", 1), told["plain"].split("\n", 1)
    assert plain[0] == "False"
    assert plain[1] == compiled[1]


@pytest.mark.data
def test_it_beats_each_opinion_and_the_middle_of_past_waits_on_a_real_log(data):
    """CTC, the first 6000 jobs, each predicted before anything of it is known; errors in decades, at least 10 s."""
    rows = []
    with gzip.open(data / "swf" / "CTC-SP2-1996-3.1-cln.swf.gz", "rt") as lines:
        for line in lines:
            if not line.startswith(";"):
                rows.append([float(number) for number in line.split()])
            if len(rows) == 6000:
                break
    rows.sort(key=lambda row: row[1])
    jobs = [
        (int(row[1]), row[2], max(row[3], 1.0), int(row[4]), row[8], str(int(row[11])), "", exactly)
        for row in rows
        if min(row[4], row[8]) > 0 <= row[2]
    ]
    waits = np.array([job[1] for job in sorted(jobs, key=lambda job: job[0])])
    said, _ = lived(QueueSimulation(338), jobs)
    truth = np.log10(np.maximum(waits, 10))[1000:]
    opinions = np.log10(np.maximum([opinions for _, _, opinions, _ in said], 10))[1000:]
    forecasts = np.log10(np.maximum([forecast.wait_s for _, forecast, *_ in said], 10))[1000:]
    error = np.abs(forecasts - truth).mean()
    assert error < np.abs(opinions - truth[:, None]).mean(axis=0).min()
    assert error < 0.8 * np.abs(np.median(truth) - truth).mean()
