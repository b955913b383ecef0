"""Whole logs under the conventions of several simulators, compared with schedules of these simulators."""

import csv
import gzip
import importlib.util
import itertools

import numpy as np
import pytest
from asa.backends.simulated import replay as replay_module
from asa.backends.simulated.cores.plain import schedule_short
from asa.backends.simulated.replay import PRESETS, Rules, preset_rules, replay
from asa.backends.simulated.swf import read_swf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from asa.errors import UnknownNameError

CAPACITY = 8
NAMES = {"default": "reference", "pyss": "pyss", "cqsim": "cqsim"}
ALL_RULES = [
    Rules(*options)
    for options in itertools.product(
        ["second", "event"], [True, False], ["all", "least"], ["handled", "expected"], ["request", "run"], [True, False]
    )
]
jobs_of_a_log = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(1, 12), st.integers(1, CAPACITY)),
    min_size=1,
    max_size=25,
).map(lambda jobs: sorted(jobs, key=lambda job: job[0]))


@pytest.fixture(scope="session")
def reference(data):
    """Load a reference implementation by others, if it is installed."""
    path = data.parent / "simulation" / "reference_easy.py"
    if not path.is_file():
        pytest.skip("no reference simulator here")
    spec = importlib.util.spec_from_file_location("reference_easy", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def columns(jobs):
    return [np.array(column, dtype=np.int64) for column in zip(*jobs, strict=True)]


@pytest.mark.data
@settings(max_examples=200)
@given(jobs_of_a_log, st.booleans())
@example([(0, 2, 1, 3), (0, 1, 1, 6), (0, 1, 2, 3), (1, 1, 1, 3)], True)
def test_every_start_equals_the_reference_under_every_rule(reference, jobs, keep):
    """All 64 combinations, with runs within their requests and beyond."""
    if not keep:
        jobs = [(submit, run, max(run, request), cores) for submit, run, request, cores in jobs]
    for rules in ALL_RULES:
        expected = reference.simulate(
            [(i, submit, run, cores, request) for i, (submit, run, request, cores) in enumerate(jobs)],
            CAPACITY,
            mode={"second": "batch", "event": "event"}[rules.passes],
            endfirst=rules.ends_first,
            extra_rule={"all": "all", "least": "min"}[rules.extra],
            freeview={"handled": "actual", "expected": "profile"}[rules.free] if rules.passes == "event" else "actual",
            dur={"request": "req", "run": "run"}[rules.candidates],
            backfill=rules.backfill,
        )
        assert replay(*columns(jobs), CAPACITY, rules).tolist() == expected, rules


@pytest.mark.data
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ["lublin_256", "kth_sp2"])
def test_every_start_of_a_real_trace_equals_the_simulators(data, preset, name):
    """Job by job, under each simulator's preset."""
    folder = data.parent / "simulation"
    if not folder.is_dir():
        pytest.skip("no oracle schedules here")
    with gzip.open(folder / "oracle" / f"{NAMES[preset]}-{name}.csv.gz", "rt") as file:
        expected = [int(row["start"]) for row in csv.DictReader(file)]
    trace = read_swf(folder / "traces" / f"{name}.swf.gz")
    t = trace.table
    starts = replay(t.submit, t.run, t.request, t.cores, trace.cores, preset_rules(preset))
    assert np.count_nonzero(starts != np.array(expected)) == 0


@settings(max_examples=30)
@given(jobs_of_a_log, st.sampled_from(ALL_RULES))
def test_compiled_or_not_it_is_one_function(plain_cores, jobs, rules):
    """The uncompiled source gives the same."""
    plain = plain_cores("fast").schedule_all(columns(jobs), CAPACITY, (*rules.flags, False))
    assert replay(*columns(jobs), CAPACITY, rules).tolist() == plain.tolist()


@settings(max_examples=300)
@given(jobs_of_a_log, st.booleans())
def test_what_plain_python_does_of_a_short_log_is_the_same(jobs, backfill):
    """Plain Python has a loop of its own, without runs beyond their requests."""
    told = columns([(submit, min(run, request), request, cores) for submit, run, request, cores in jobs])
    plain = schedule_short(told, CAPACITY, backfill=backfill, patience=10**6)
    assert plain.tolist() == replay(*told, CAPACITY, Rules(backfill=backfill)).tolist()


@pytest.mark.data
@pytest.mark.parametrize("backfill", [True, False])
@pytest.mark.parametrize("name", ["KTH-SP2-1996-2-unfiltered", "lublin_256", "CTC-SP2-1996-3.1-cln"])
def test_what_plain_python_does_of_a_real_trace_is_the_same(data, name, backfill):
    """Job by job."""
    trace = read_swf(data / "swf" / f"{name}.swf.gz")
    t = trace.table
    told = [t.submit, t.run, t.request, t.cores]
    plain = schedule_short(told, trace.cores, backfill=backfill, patience=10**9)
    assert np.array_equal(plain, replay(*told, trace.cores, Rules(backfill=backfill)))


def test_a_log_that_takes_plain_python_too_long_is_left_to_compiled_code(monkeypatch):
    """As one with a long queue; so is one whose jobs run beyond their requests, which plain Python does not know."""
    jobs = [(number, 50, 60, 6 if number % 3 else 3) for number in range(200)]
    over = [(0, 20, 10, 5), (1, 5, 5, 6), (2, 30, 30, 3)]
    assert schedule_short(columns(jobs), CAPACITY, backfill=True, patience=100) is None
    loops = []
    monkeypatch.setattr(replay_module, "_PATIENCE", 100)
    real = replay_module.schedule_short
    monkeypatch.setattr(replay_module, "schedule_short", lambda *a, **k: loops.append(real(*a, **k)))
    for given_jobs in (jobs, over):
        told = columns(given_jobs)
        assert replay(*told, CAPACITY, once=True).tolist() == replay(*told, CAPACITY).tolist()
    assert loops == [None]


def reservation(jobs, starts, head, now):
    """Return when the head can start, by the requested ends of the jobs that ran before it became head."""
    running = [
        (start + request, cores)
        for other, (start, (_, run, request, cores)) in enumerate(zip(starts, jobs, strict=True))
        if start <= now < start + run and (start < now or other < head)
    ]
    free = CAPACITY - sum(cores for _, cores in running)
    for end, _ in sorted(running):
        if free + sum(cores for other, cores in running if other <= end) >= jobs[head][3]:
            return end
    return now


@settings(max_examples=300)
@given(jobs_of_a_log)
def test_easy_never_delays_the_reservation_that_the_head_was_given(jobs):
    """Checked at each second with an event, for the head-of-queue job of that second."""
    jobs = [(submit, min(run, request), request, cores) for submit, run, request, cores in jobs]
    starts = replay(*columns(jobs), CAPACITY).tolist()
    assert min(starts[i] - job[0] for i, job in enumerate(jobs)) >= 0
    for now in sorted({job[0] for job in jobs} | {start + job[1] for start, job in zip(starts, jobs, strict=True)}):
        waiting = [i for i, job in enumerate(jobs) if job[0] <= now < starts[i]]
        if waiting:
            assert starts[waiting[0]] <= reservation(jobs, starts, waiting[0], now)


@pytest.mark.data
@pytest.mark.parametrize("preset", PRESETS)
def test_no_schedule_of_a_real_trace_takes_more_than_there_is(data, preset):
    """Nobody starts before submission, and the machine's cores suffice at every start."""
    trace = read_swf(data / "swf" / "KTH-SP2-1996-2-unfiltered.swf.gz")
    t = trace.table
    starts = replay(t.submit, t.run, t.request, t.cores, trace.cores, preset_rules(preset))
    assert np.all(starts >= t.submit)
    when = np.concatenate([starts, starts + t.run])
    change = np.concatenate([t.cores, -t.cores])
    order = np.lexsort((change, when))  # ends first
    assert np.cumsum(change[order]).max() <= trace.cores
    assert change.sum() == 0


@pytest.mark.parametrize("cores", [1, 4, 64])
def test_more_may_run_for_a_moment_than_there_is_room_for(cores, plain_cores):
    """Pyss starts jobs on cores that should be free by now before it processes the ends of the jobs that had them."""
    jobs = [(10 * wave, 10, 10, 1) for wave in range(30) for _ in range(cores)]
    starts = replay(*columns(jobs), cores, PRESETS["pyss"])
    assert starts.tolist() == [submit for submit, *_ in jobs]
    plain = plain_cores("fast").schedule_all(columns(jobs), cores, (*PRESETS["pyss"].flags, False))
    assert starts.tolist() == plain.tolist()


def test_an_unknown_preset_is_refused():
    """With the known ones."""
    with pytest.raises(UnknownNameError, match="no preset 'pys'\nDid you mean 'pyss'"):
        preset_rules("pys")
