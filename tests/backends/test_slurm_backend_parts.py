"""Parts of Slurm's client: its pace, its estimate of Slurm's clock, its text for dependencies."""

import itertools
import math
import os
import resource
from dataclasses import replace

import pytest
from asa.backends.shell.marks import KeptSubmission, MarksFolder
from asa.backends.shell.script import Payload, batch_script, file_name
from asa.backends.slurm.absence import Inquiry
from asa.backends.slurm.arrays import TrackedArray
from asa.backends.slurm.clock import ClockOffset
from asa.backends.slurm.defaults import JobDefaults
from asa.backends.slurm.dependencies import is_unmet, pass_on
from asa.backends.slurm.link import SlurmRecord
from asa.backends.slurm.pacing import Pacer, interval_s
from asa.backends.slurm.tracking import BY_TASK, TrackedJob
from hypothesis import given
from hypothesis import strategies as st

from asa.backend import Dependency, DependencyType, JobSpec, JobState, JobStatus
from asa.elements import parse_elements
from asa.errors import SubmitRejectedError, UnavailableError

LEAST = st.floats(0.5, 120.0)
MOST = st.floats(0.5, 1000.0)
QUIET = st.floats(-1e6, 1e9)
FAILURES = st.integers(0, 10_000)
NOW = st.floats(1e9, 2e9)


@given(QUIET, FAILURES, LEAST, MOST)
def test_an_interval_is_within_its_bounds(quiet_s, failures, min_s, max_s):
    told_s = interval_s(quiet_s, failures, min_s=min_s, max_s=max_s)
    assert min_s <= told_s <= max(min_s, max_s)


@given(QUIET, QUIET, FAILURES, FAILURES, LEAST, MOST)
def test_the_longer_nothing_happened_the_longer_the_interval(one, other, few, many, min_s, max_s):
    """It also grows with the number of failed looks."""
    bounds = {"min_s": min_s, "max_s": max_s}
    assert interval_s(min(one, other), 0, **bounds) <= interval_s(max(one, other), 0, **bounds)
    if min(few, many) > 0:
        assert interval_s(0.0, min(few, many), **bounds) <= interval_s(0.0, max(few, many), **bounds)


@given(NOW, st.lists(st.tuples(st.floats(0.0, 500.0), st.booleans(), st.booleans()), max_size=30), LEAST, MOST)
def test_looks_are_never_closer_than_the_least(at_s, happenings, min_s, max_s):
    pacer = Pacer(at_s, min_s=min_s, max_s=max_s, seed=1)
    assert pacer.pause_s(at_s) <= 0, "the first look is due at once"
    looked_s = None
    for later_s, heard, changed in happenings:
        at_s += later_s
        if changed:
            pacer.changed(at_s)
        if pacer.pause_s(at_s) <= 0:
            assert pacer.may_look(at_s)
            assert looked_s is None or at_s - looked_s >= min_s - 1e-6
            pacer.looked(looked_s := at_s, heard=heard)
        assert pacer.pause_s(at_s) <= 1.1 * max(min_s, max_s) + 1e-6


def test_many_clients_do_not_look_in_step():
    pauses = set()
    for seed in range(20):
        pacer = Pacer(0.0, min_s=2.0, max_s=60.0, seed=seed)
        pacer.looked(10_000.0, heard=True)
        pauses.add(pacer.pause_s(10_000.0))
    assert len(pauses) == 20
    assert 54 <= min(pauses) < 58
    assert 62 < max(pauses) <= 66


@given(
    st.floats(-8e4, 8e4),
    st.lists(st.tuples(st.floats(0.0, 1e4), st.floats(0.0, 30.0), st.floats(0.0, 1.0)), min_size=1, max_size=20),
)
def test_the_offset_fits_everything_that_was_seen(true_s, submissions):
    """It is the smallest offset that does."""
    offset, at_s = ClockOffset(), 1.7e9
    for pause_s, took_s, share in submissions:
        at_s += pause_s
        dated_s = float(math.floor(at_s + share * took_s + true_s))
        offset.learn(at_s, at_s + took_s, dated_s)
        assert dated_s - (at_s + took_s) - 1e-5 <= offset.offset_s <= dated_s + 1 - at_s + 1e-5
        at_s += took_s
    assert abs(offset.offset_s) <= abs(true_s) + 1e-5
    assert offset.offset_s * true_s >= 0
    if any(took_s < 1.0 for _, took_s, _ in submissions):
        assert abs(offset.offset_s - true_s) <= 2.0


def test_a_clock_that_was_set_is_learned_anew():
    offset = ClockOffset()
    offset.learn(1000.0, 1000.5, 1000.0)
    offset.learn(2000.0, 2000.5, 5600.0)
    assert offset.offset_s == 3599.5


@pytest.mark.parametrize("dated_s", [0.0, 1.7e9 - 90_000, 1.7e9 + 90_000])
def test_a_clock_that_is_days_apart_is_not_believed(dated_s):
    offset = ClockOffset()
    offset.learn(1.7e9, 1.7e9 + 1, dated_s)
    assert offset.offset_s == 0.0


# ---------------------------------------------------------------------- dependencies

STATES = st.sampled_from(JobState)
KINDS = st.sampled_from(DependencyType)


@st.composite
def statuses(draw, job_id="7"):
    """Draw states of a job."""
    state = draw(STATES)
    never = state is JobState.PENDING or (state is JobState.CANCELLED and draw(st.booleans()))
    start_s = None if never else 100.0
    return JobStatus(job_id, state, 50.0, start_s=start_s, end_s=150.0 if state.is_final else None)


@given(statuses(), KINDS, st.sampled_from([0.0, 30.0, 3600.0]), st.sampled_from([None, 10.0, 1e4]))
def test_a_dependency_is_passed_on_met_or_refused(other, kind, delay_s, begin_s):
    dependency = Dependency("7", kind, delay_s)
    spec = JobSpec("b", 1, 60.0, dependencies=(dependency, dependency), begin_s=begin_s)
    now_s = 200.0
    try:
        passed = pass_on(spec, {"7": other}, now_s)
    except SubmitRejectedError:
        assert other.state.is_final
        assert other.state is not JobState.COMPLETED
        return
    begins_s = passed.begin_s or 0
    assert begins_s >= (begin_s or 0) or (begin_s or 0) <= now_s
    if passed.words:
        assert not other.state.is_final, "only who may still change is named to Slurm"
        assert passed.words.count("7") == 1
        assert passed.kept == (dependency,)
    elif kind is DependencyType.AFTER:
        assert other.start_s + delay_s <= max(now_s, begins_s)
    else:
        assert not is_unmet(dependency, other, None, now_s)


def test_words_for_slurm():
    known = {str(i): JobStatus(str(i), JobState.PENDING, 0.0) for i in range(4)}
    delays = [Dependency("0"), Dependency("1", DependencyType.AFTERANY)]
    delays += [Dependency("2", DependencyType.AFTER, 61.0), Dependency("3", DependencyType.AFTER)]
    words = pass_on(JobSpec("b", 1, 60.0, dependencies=tuple(delays)), known, 0.0).words
    assert words == "afterok:0,afterany:1,after:2+2,after:3"


# ---------------------------------------------------------------------- the folder


def test_what_is_kept_of_a_job_is_read_again(tmp_path):
    kept = KeptSubmission("fit.a", "a", True, ("one", "two"), False, math.inf, 12.0)
    MarksFolder(tmp_path).keep_job("5", kept)
    folder = MarksFolder(tmp_path)
    assert folder.kept_job("5") == kept
    assert folder.kept_job("6") is None
    assert folder.job_ids() == {"5"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "x"}', '{"steps": 3}'])
def test_what_cannot_be_read_is_not_known(tmp_path, text):
    folder = MarksFolder(tmp_path)
    (tmp_path / "jobs" / "5").write_text(text)
    assert folder.kept_job("5") is None
    (folder.marks / "a").mkdir()
    (folder.marks / "a" / "ended").write_text(text)
    assert folder.ended("5", "a") is None


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="file"):
        MarksFolder(tmp_path / "file" / "run")


def test_the_environment_goes_along_without_slurms_secrets(monkeypatch):
    for name in ("SLURM_JWT", "SLURM_JOB_ID", "SBATCH_ACCOUNT", "SLURM_CPU_BIND"):
        monkeypatch.setenv(name, "secret")
    for name, value in {"CONDA_PREFIX": "/opt/conda", "BASH_FUNC_f%%": "() { :; }", "MULTI": "a\nb"}.items():
        monkeypatch.setenv(name, value)
    told = JobDefaults(environment={"A": "1", "CONDA_PREFIX": "/mine"}).variables()
    assert "secret" not in told.values()
    assert (told["A"], told["CONDA_PREFIX"]) == ("1", "/mine")
    assert (told["BASH_FUNC_f%%"], told["MULTI"]) == ("() { :; }", "a\nb")
    assert "PATH" in told
    assert JobDefaults(environment={"A": "1"}, inherit=False).variables() == {"A": "1"}
    monkeypatch.delenv("SLURM_JOB_ID")
    told = JobDefaults().variables()
    assert told["SLURM_CPU_BIND"] == told["SBATCH_ACCOUNT"], "of its user, as there is no job around it"
    assert "SLURM_JWT" not in told


def test_a_job_is_told_the_limits_of_its_client_where_it_inherits(monkeypatch, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = os.umask(0o027)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
        told = JobDefaults(folder=tmp_path).submission()
    finally:
        os.umask(before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (told["SLURM_RLIMIT_NOFILE"], told["SLURM_UMASK"]) == (str(soft - 1), "0027")
    assert told["SLURM_SUBMIT_DIR"] == str(tmp_path)
    alone = JobDefaults(folder=tmp_path, inherit=False).submission()
    assert alone.keys() == {"SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST"}


def test_a_variable_that_holds_a_token_stays_behind(monkeypatch):
    monkeypatch.setenv("MY_SITE_LOGIN", "secret")
    assert "MY_SITE_LOGIN" in JobDefaults().variables()
    told = JobDefaults(secrets=["MY_SITE_LOGIN"], environment={"A": "1"}).variables()
    assert "MY_SITE_LOGIN" not in told
    assert told["A"] == "1"


# what Slurm tells of an element that is requeued 4 s after it began, and then runs for 10 s: by its commands, by REST
BY_COMMANDS = [
    (("RUNNING",), 0, 100.0, 100.0),
    (("COMPLETING",), 1, 100.0, 104.0),
    (("COMPLETING",), 1, 100.0, 105.0),
    (("PENDING",), 1, 104.0, None),
    (("RUNNING",), 1, 104.0, 225.0),
    (("COMPLETED",), 1, 104.0, 225.0),
]
BY_REST = [*BY_COMMANDS[:1], (("PENDING", "COMPLETING"), 1, 100.0, None), *BY_COMMANDS[3:]]


@pytest.mark.parametrize("told", [BY_COMMANDS, BY_REST], ids=["commands", "rest"])
@pytest.mark.parametrize("is_same", [True, False], ids=["one client", "a client each look"])
def test_what_an_element_ran_before_it_was_requeued_is_known_whichever_looks_were_missed(tmp_path, told, is_same):
    """If one look saw it run, before or as it was requeued."""
    folder = MarksFolder(tmp_path)
    fresh = KeptSubmission(
        "job.t", "t", awaits=False, steps=(), kept_back=False, walltime_s=600.0, submit_s=100.0, array="3"
    )
    for seen in itertools.product([True, False], repeat=len(told) - 2):
        folder.keep_job("7", fresh)
        array = None
        for states, restarts, submit_s, start_s in itertools.compress(told, [True, *seen, True]):
            if array is None or not is_same:
                kept = folder.kept_job("7")
                array = TrackedArray.of(kept, JobStatus("7", JobState.PENDING, 100.0), heard_s=0.0)
            end_s = 235.0 if "COMPLETED" in states else None
            record = SlurmRecord(
                "8", "job.t", "u", states, submit_s, start_s=start_s, end_s=end_s, restarts=restarts,
                exit_code=0 if end_s else None, array_id="7", elements=parse_elements("3"),
            )  # fmt: skip
            array.hear_all([record], folder, 300.0, 300.0)
            if array.is_to_be_kept():
                folder.keep_job("7", array.kept)
        assert array.status.state is JobState.COMPLETED
        assert array.status.elements.ran_s == 4.0 + 10.0, seen
        assert array.status.elements.longest_s == 10.0, seen


def _told_to_end(folder, *, code=143, signals=1):
    (folder.marks / "t").mkdir(parents=True)
    for name, time_s in (("began", 110), ("ended", 120)):
        text = f"job=7\nhost=n1\ntime={time_s}\ncode={code}\nsignals={signals}\n"
        (folder.marks / "t" / name).write_text(text)


@pytest.mark.parametrize("pending", [True, False])
def test_a_job_that_a_signal_ended_may_be_back_in_the_queue(tmp_path, pending):
    """A requeue, as by a preemption, ends it in this way; that it is not shown for a while is no end."""
    folder = MarksFolder(tmp_path)
    _told_to_end(folder)
    kept = KeptSubmission("job.t", "t", awaits=False, steps=(), kept_back=False, walltime_s=600.0, submit_s=100.0)
    job = TrackedJob(kept, JobStatus("7", JobState.RUNNING, 100.0, start_s=105.0), heard_s=0.0)
    past = SlurmRecord("7", "job.t", "u", ("PENDING",), 121.0) if pending else None
    for now_s in (130.0, 160.0, 185.0):
        job.miss(folder, now_s, now_s, certain=True, past=past, inquiry=Inquiry(lambda _: False, dict))
        assert not job.status.state.is_final
    job.miss(folder, 260.0, 260.0, certain=True, inquiry=Inquiry(lambda _: True, dict))
    assert (job.status.state, job.status.end_s) == (JobState.FAILED, 120.0), "as its mark says, once it is denied"


@pytest.mark.parametrize(("code", "signals", "cancelled_s"), [(3, 0, None), (0, 0, None), (143, 1, 119.0)])
def test_a_job_that_ended_by_itself_has_ended_though_it_is_not_shown(tmp_path, code, signals, cancelled_s):
    folder = MarksFolder(tmp_path)
    _told_to_end(folder, code=code, signals=signals)
    kept = KeptSubmission("job.t", "t", awaits=False, steps=(), kept_back=False, walltime_s=600.0, submit_s=100.0)
    job = TrackedJob(replace(kept, cancelled_s=cancelled_s), JobStatus("7", JobState.RUNNING, 100.0), heard_s=0.0)
    job.miss(folder, 130.0, 130.0, certain=True)
    assert job.status.state.is_final


@pytest.mark.parametrize("code", [0, 3])
def test_of_a_job_that_slurm_has_forgotten_its_marks_tell_the_nodes(tmp_path, code):
    """Otherwise nothing would be known of these nodes after a client was away for a while."""
    folder = MarksFolder(tmp_path)
    (folder.marks / "t").mkdir(parents=True)
    (folder.marks / "t" / "began").write_text("job=7\nhost=x\ntime=110\nnodes=n[1-2]\n")
    kept = KeptSubmission("job.t", "t", awaits=False, steps=(), kept_back=False, walltime_s=600.0, submit_s=100.0)
    job = TrackedJob(kept, JobStatus("7", JobState.PENDING, 100.0), heard_s=0.0)
    job.miss(folder, 130.0, 130.0, certain=True)
    assert (job.status.state, job.status.nodes) == (JobState.RUNNING, ("n1", "n2"))
    (folder.marks / "t" / "ended").write_text(f"job=7\nhost=x\ntime=120\nnodes=n[1-2]\ncode={code}\nsignals=0\n")
    late = TrackedJob(kept, JobStatus("7", JobState.PENDING, 100.0), heard_s=0.0)
    late.miss(folder, 130.0, 130.0, certain=True)
    assert late.status.state.is_final
    assert late.status.nodes == ("n1", "n2")


def test_waiting_elements_that_were_not_shown_for_a_while_are_back_once_they_are(tmp_path):
    folder = MarksFolder(tmp_path)
    kept = KeptSubmission(
        "job.t", "t", awaits=False, steps=(), kept_back=False, walltime_s=600.0, submit_s=100.0, array="1-3"
    )
    array = TrackedArray.of(kept, JobStatus("7", JobState.PENDING, 100.0), heard_s=0.0)
    first = SlurmRecord(
        "8", "job.t", "u", ("RUNNING",), 100.0, start_s=101.0, array_id="7", elements=parse_elements("1")
    )
    waiting = replace(
        first, job_id="7", states=("PENDING",), start_s=None, is_array=True, elements=parse_elements("2-3")
    )
    for now_s, shown in ((110.0, [first, waiting]), (120.0, [first]), (160.0, [first]), (190.0, [first])):
        _, missing = array.hear_all(shown, folder, now_s, now_s)
        array.miss_all(missing, folder, now_s, now_s, certain=True)
    array.hear_all([first, waiting], folder, 200.0, 200.0)
    assert array.left() == {1, 2, 3}
    assert not array.status.state.is_final


@pytest.mark.parametrize("heeds", ["fail", "ignore", BY_TASK])
def test_what_a_job_posts_and_heeds_is_known_by_its_script(tmp_path, heeds):
    """Where its client was killed before it could note that."""
    folder = MarksFolder(tmp_path)
    places = folder.marks, folder.posts
    made = Payload("job.t", "true", "/", *places, token="t", posted=("run/a", "b"), heeds=heeds)
    folder.keep_script("job.t", batch_script(made, "SLURM_JOB_ID"))
    facts = folder.facts("job.t")
    assert (facts["posts"], facts["out_of_memory"]) == ((file_name("run/a"), "b"), heeds)
    assert folder.facts("none.t").keys().isdisjoint({"posts", "out_of_memory"}), "what is usual"


def test_a_node_that_failed_under_an_element_is_named_by_that_element(tmp_path):
    """As for a job; an element that ended by itself is not blamed on its node."""
    kept = KeptSubmission(
        "job.t", "t", awaits=False, steps=(), kept_back=False, walltime_s=600.0, submit_s=100.0, array="1-3"
    )
    array = TrackedArray.of(kept, JobStatus("7", JobState.PENDING, 100.0), heard_s=0.0)
    records = [
        SlurmRecord(
            f"{8 + number}", "job.t", "u", states, 100.0, start_s=110.0, end_s=120.0, node_list=node,
            exit_code=code, array_id="7", elements=parse_elements(str(number)),
        )
        for number, states, node, code in (
            (1, ("NODE_FAIL",), "n2", 0), (2, ("FAILED",), "n2", 1), (3, ("FAILED",), "n2", 1),
        )
    ]  # fmt: skip
    array.hear_all(records, MarksFolder(tmp_path), 300.0, 300.0)
    ended = {str(one.elements): (one.nodes, one.bad_nodes) for one in array.status.elements.ended}
    assert ended == {"1": (("n2",), ("n2",)), "2-3": (("n2",), ())}
    assert array.status.bad_nodes == ("n2",)
