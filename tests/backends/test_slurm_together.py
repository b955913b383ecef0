"""Jobs with equal requests that go to Slurm as one array, on a Slurm in memory: each remains a job by itself."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from asa.backends.shell.marks import MarksFolder
from asa.backends.slurm.link import IdentifiedJob, SlurmRecord
from asa.backends.slurm.script import jobs_of
from asa.backends.slurm.together import Groups
from slurm_world import SITE, World

from asa.elements import Elements, parse_array
from asa.errors import SubmitDeferredError, SubmitInDoubtError, SubmitRejectedError, UnavailableError
from asa.exactly_once import AGAIN_S
from asa.records import Cancelled, Deferred, StageEnded, Submitted
from asa.runner import together
from asa.runner.specs import spec_of
from asa.workflow import Stage

TOGETHER = replace(SITE, max_together=100)


def fan(count=6, then="sleep 20", **fields):
    """Make a stage, several that follow it and ask for the same, and one that follows these."""
    names = [f"b{n}" for n in range(count)]
    asked = {"cores": 2, "walltime_s": 600.0}
    return (
        Stage("a", command="sleep 5", **asked),
        *(Stage(name, command=then, after=("a",), **asked, **fields) for name in names),
        Stage("c", command="sleep 5", after=tuple(names), **asked),
    )


def world(tmp_path, stages=None, *, strategy="chained", site=TOGETHER, **link):
    return World(tmp_path / "run", fan() if stages is None else stages, strategy=strategy, site=site, **link)


def ids_of(result):
    return {record.stages[0]: record.job_id for record in result.records if isinstance(record, Submitted)}


@pytest.mark.parametrize("strategy", ["chained", "per-stage", "asa-naive"])
def test_a_fan_is_one_submission(tmp_path, strategy):
    here = world(tmp_path, strategy=strategy)
    result = here.drive()
    assert result.outcome == "completed"
    assert [job.array for job in here.link.submitted] == ["", "0-5", ""]
    ids = ids_of(result)
    array_id = ids["b0"].partition("_")[0]
    assert [ids[f"b{n}"] for n in range(6)] == [f"{array_id}_{n}" for n in range(6)]
    ended = [record.stages[0] for record in result.records if isinstance(record, StageEnded)]
    assert sorted(ended) == ["a", "b0", "b1", "b2", "b3", "b4", "b5", "c"]


def test_more_than_go_together_go_in_several(tmp_path):
    here = world(tmp_path, site=replace(SITE, max_together=4))
    assert here.drive().outcome == "completed"
    assert [job.array for job in here.link.submitted] == ["", "0-3", "0-1", ""]


def test_of_many_that_all_ask_for_something_else_each_request_is_written_a_few_times(tmp_path, monkeypatch):
    written = Counter()

    def counted(state, planned):
        written[planned.stages] += 1
        return spec_of(state, planned)

    monkeypatch.setattr(together, "spec_of", counted)
    ask = {"command": "true", "cores": 2, "walltime_s": 600.0}
    stages = [Stage(f"b{n}", memory_bytes=(n // 2) << 20, **ask) for n in range(20, 40)]
    assert world(tmp_path, tuple(stages)).drive().outcome == "completed"
    assert len(written) == 20
    assert max(written.values()) <= 2


def test_only_those_that_ask_for_the_same_go_together(tmp_path):
    first, b0, b1, b2, last = fan(3)
    stages = (first, b0, replace(b1, walltime_s=700.0), replace(b2, options=("--nice=5",)), last)
    here = world(tmp_path, stages)
    assert here.drive().outcome == "completed"
    assert [job.array for job in here.link.submitted] == [""] * 5


@pytest.mark.parametrize(
    "asks",
    [
        {"command": "scontrol requeue $SLURM_JOB_ID"},
        {"command": "left=$(squeue -h -j $SLURM_JOB_ID -o %L)"},
        {"command": "sh ./first.sh"},
        {"options": ("--mail-type=END",)},
    ],
)
def test_stages_that_could_tell_an_element_from_a_job_go_by_themselves(tmp_path, asks):
    """The last element has the number of the array; and a whole array's mail is one."""
    (tmp_path / "first.sh").write_text("./second.sh\n")
    (tmp_path / "second.sh").write_text("trap 'scancel $SLURM_JOB_ID' USR1\n")
    first, b0, b1, last = fan(2)
    here = world(tmp_path, (first, replace(b0, **asks), replace(b1, **asks), last), works_in=str(tmp_path))
    assert here.drive().outcome == "completed"
    assert [job.array for job in here.link.submitted] == [""] * 4


def test_each_of_another_end_ends_its_own_stage(tmp_path):
    first, b0, b1, b2, last = fan(3, retries=1)
    here = world(tmp_path, (first, b0, replace(b1, command="sleep 1; exit 3"), b2, last))
    result = here.drive()
    assert result.outcome == "failed"
    assert "'b1'" in result.reason
    assert "exit code 3" in result.reason
    asked = [record.job_id for record in result.records if isinstance(record, Submitted) and record.stages == ("b1",)]
    assert len(asked) == 2
    assert "_" in asked[0]
    assert "_" not in asked[1], "a further attempt goes by itself"
    done = {record.stages[0] for record in result.records if isinstance(record, StageEnded)}
    assert done == {"a", "b0", "b2"}


def fans(count=3, pause_s=20):
    """Make as many fans of four as there are letters, one after the other."""
    stages, before = [], ()
    for letter in "abcdef"[:count]:
        names = [f"{letter}{n}" for n in range(4)]
        asked = {"cores": 2, "walltime_s": 600.0, "after": before}
        stages += [Stage(name, command=f"sleep {pause_s}", **asked) for name in names]
        before = tuple(names)
    return tuple(stages)


NO_ARRAYS = SubmitRejectedError("Slurm refuses it: Invalid job array specification")


@pytest.mark.parametrize(
    ("error", "refuses", "tried"),
    [
        (SubmitDeferredError("too many"), 1, [4, 4, 4]),  # a limit on jobs in the queue passes
        (SubmitRejectedError("Slurm refuses it: Invalid qos"), 1, [4, 4, 4]),  # this request is refused, not arrays
        (NO_ARRAYS, 3, [4]),  # none is accepted here
    ],
)
def test_those_that_are_refused_together_go_one_by_one_and_later_ones_as_the_refusal_says(
    tmp_path, error, refuses, tried
):
    here = world(tmp_path, fans(), strategy="per-stage")
    accepts, arrays = here.link.submit, []

    def submit(job):
        if job.array:
            arrays.append(parse_array(job.array).elements)
            if len(arrays) <= refuses:
                raise error
        return accepts(job)

    here.link.submit = submit
    result = here.drive()
    assert result.outcome == "completed"
    assert [len(elements) for elements in arrays] == tried
    assert len([record for record in result.records if isinstance(record, Deferred)]) == 4
    accepted = len(tried) - 1
    assert len(here.link.submitted) == accepted + 4 * (3 - accepted)


def test_as_long_as_they_are_refused_together_pauses_grow(tmp_path):
    here = world(tmp_path, fans(6, pause_s=4), strategy="per-stage")
    accepts, refused_s = here.link.submit, []

    def submit(job):
        if job.array:
            refused_s.append(here.clock())
            raise SubmitDeferredError("too many")
        return accepts(job)

    here.link.submit = submit
    assert here.drive().outcome == "completed"
    assert len(here.link.submitted) == 24, "each by itself"
    assert 1 < len(refused_s) < 6, "some fans are due within the pause"
    pauses_s = [later_s - earlier_s for earlier_s, later_s in pairwise(refused_s)]
    assert all(pause_s >= least_s for pause_s, least_s in zip(pauses_s, AGAIN_S, strict=False)), pauses_s


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (SubmitRejectedError("no"), 0),
        (SubmitDeferredError("not now"), 0),
        (UnavailableError("away"), 0),
        (SubmitInDoubtError("the answer was lost"), 1),
    ],
)
def test_the_script_of_an_array_is_kept_as_long_as_there_may_be_one(tmp_path, error, left):
    """It goes with the run's folder, or at once if no array can have that name."""
    here = world(tmp_path)
    accepts = here.link.submit

    def submit(job):
        if job.array:
            raise error
        return accepts(job)

    here.link.submit = submit
    assert here.drive().outcome == "completed"
    assert len([*here.folder.path.glob("groups/*.sh")]) == left
    asked = here.connect(here.folder)._groups._also_arrays({"flow_b0.abcd12345678-2-0"})
    assert len(asked) == 1 + left, "no array is looked for that there never was"


def test_one_that_was_refused_with_others_is_found_by_itself(tmp_path):
    here = world(tmp_path, latency_s=120.0)
    accepts, tries = here.link.submit, []

    def submit(job):
        if job.array:
            raise SubmitRejectedError("no arrays")
        tries.append(job)
        here.link.in_doubt = len(tries) == 2
        return accepts(job)

    here.link.submit = submit
    result = here.drive()
    assert result.outcome == "completed"
    assert len(ids_of(result)) == 8
    assert len(here.link.submitted) == 8, "none is submitted again"


def test_while_slurm_is_away_nothing_is_lost(tmp_path):
    here = world(tmp_path)
    accepts, tries = here.link.submit, []

    def submit(job):
        tries.append(job)
        if len(tries) == 2:
            raise UnavailableError("away")
        return accepts(job)

    here.link.submit = submit
    assert here.drive().outcome == "completed"
    assert len(here.link.submitted) == 8


@pytest.mark.parametrize("is_accepted", [True, False])
def test_a_lost_answer_is_cleared_up_for_all_of_them(tmp_path, is_accepted):
    here = world(tmp_path)
    accepts, tries = here.link.submit, []

    def submit(job):
        tries.append(job)
        here.link.in_doubt = len(tries) == 2
        if len(tries) == 2 and not is_accepted:
            here.link.all, kept = {**here.link.all}, here.link.all
            try:
                return accepts(job)
            finally:
                here.link.all = kept
        return accepts(job)

    here.link.submit = submit
    result = here.drive()
    assert result.outcome == "completed"
    arrays = [job for job in here.link.submitted if job.array]
    assert len(arrays) == 1
    assert len(here.link.submitted) == (3 if is_accepted else 9)
    ended = [record.stages[0] for record in result.records if isinstance(record, StageEnded)]
    assert len(ended) == len(set(ended)) == 8


def test_one_that_waits_can_be_cancelled(tmp_path):
    """Slurm then forgets it at once, and shows the others."""
    here = world(tmp_path, strategy="per-stage", latency_s=60.0)
    accepts = here.link.submit

    def submit(job):
        job_id = accepts(job)
        if job.array:
            here.clock.nudges.add(here.clock() + 10.0)
            [gone] = [one for one in here.link.all.values() if (one.array_id, one.number) == (job_id, 2)]
            here.link._cancel(gone)
            del here.link.all[gone.job_id]
            here.link.arrays_of[job_id].remove(gone.job_id)
        return job_id

    here.link.submit = submit
    result = here.drive()
    assert result.outcome == "failed"
    assert "'b2'" in result.reason
    assert "cancelled" in result.reason
    done = {record.stages[0] for record in result.records if isinstance(record, StageEnded)}
    assert done == {"a", "b0", "b1", "b3", "b4", "b5"}
    assert not [record for record in result.records if isinstance(record, Cancelled) and record.stages[0] != "c"]


# ---------------------------------------------------------------------- elements as jobs


SCRIPT = "#!/bin/sh\n# Its jobs: flow_x.t1 flow_y.t2 flow_z.t3\n"
WHOLE = SlurmRecord("12", "flow_x+2.t1x3", "me", ("PENDING",), 1.0, comment="asa:t1x3", array_id="12", is_array=True)


class Told:
    """A link that says what it is told to."""

    def __init__(self, *records):
        self.records, self.asked, self.cancelled = list(records), [], []

    def holders(self, numbers):
        self.asked.append(list(numbers))
        return self.records

    def of_anybody(self, number):
        return self.holders([number])

    def named(self, names):
        self.asked.append(names)
        return self.records

    def denies(self, number):
        self.asked.append(number)
        return False

    def cancel(self, jobs):
        self.cancelled += jobs
        return {}


def groups(tmp_path, *records):
    told = Told(*records)
    made = Groups(told, MarksFolder(tmp_path / "run"))
    made.keep("flow_x+2.t1x3", SCRIPT)
    return made, told


def test_each_element_is_shown_as_its_own_job(tmp_path):
    one = replace(WHOLE, job_id="14", states=("RUNNING",), is_array=False, elements=Elements.of([1]))
    rest = replace(WHOLE, elements=Elements.of([0, 2]))
    made, told = groups(tmp_path, one, rest)
    shown = made.jobs(["12_0", "12_1", "12_2", "7"])
    assert told.asked == [["12", "7"]], "one question"
    assert {job_id: (record.name, record.comment, record.states[0]) for job_id, record in shown.items()} == {
        "12_1": ("flow_y.t2", "asa:t2", "RUNNING"),
        "12_0": ("flow_x.t1", "asa:t1", "PENDING"),
        "12_2": ("flow_z.t3", "asa:t3", "PENDING"),
    }
    assert made.denies("12_3"), "it shows the others"
    assert [record.name for record in made.named(["flow_z.t3"])] == ["flow_z.t3"]
    assert told.asked[-1] == {"flow_x+2.t1x3", "flow_z.t3"}, "after a refusal it may be there by itself"


@pytest.mark.parametrize("rest", [WHOLE, replace(WHOLE, array_id="", is_array=False, states=("CANCELLED",))])
def test_those_that_are_not_named_have_the_record_of_the_whole(tmp_path, rest):
    """As in a list that is cut off, or in what is left when all that waited were cancelled."""
    one = replace(WHOLE, job_id="14", states=("RUNNING",), is_array=False, elements=Elements.of([1]))
    made, _ = groups(tmp_path, rest, one)
    assert {job_id: record.states[0] for job_id, record in made.jobs(["12_0", "12_1", "12_2"]).items()} == {
        "12_0": rest.states[0], "12_1": "RUNNING", "12_2": rest.states[0],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "of_each"),
    [
        ("Resources,JobHeldAdmin", "Resources"),
        ("JobHeldUser", "JobHeldUser"),
        ("ReqNodeNotAvail, n1", "ReqNodeNotAvail, n1"),
    ],
)
def test_that_some_are_held_is_not_said_of_each(tmp_path, listed, of_each):
    """Squeue 26.05 lists the reasons of all that wait."""
    made, _ = groups(tmp_path, replace(WHOLE, elements=Elements.of(range(3)), reason=listed))
    assert {record.reason for record in made.jobs(["12_0", "12_1", "12_2"]).values()} == {of_each}


def test_one_expected_start_of_many_is_said_of_none(tmp_path):
    """It is that of the last for which Slurm has planned."""
    one = replace(WHOLE, job_id="14", is_array=False, elements=Elements.of([1]), expected_start_s=50.0)
    rest = replace(WHOLE, elements=Elements.of([0, 2]), expected_start_s=90.0)
    made, _ = groups(tmp_path, one, rest)
    shown = made.jobs(["12_0", "12_1", "12_2"])
    assert [shown[f"12_{n}"].expected_start_s for n in range(3)] == [None, 50.0, None]


def test_a_number_that_is_now_another_s_is_no_job_of_ours(tmp_path):
    other = SlurmRecord("12", "theirs", "them", ("RUNNING",), 9.0)
    made, _ = groups(tmp_path, other)
    assert made.jobs(["12_0"]) == {}
    assert made.of_anybody("12_0") == [other]
    assert not made.denies("12_0")


def test_a_later_client_knows_them(tmp_path):
    groups(tmp_path)
    later = Groups(Told(replace(WHOLE, elements=Elements.of([0]))), MarksFolder(tmp_path / "run"))
    assert [*later.jobs(["12_0"])] == ["12_0"]


def test_elements_are_cancelled_by_number_alone(tmp_path):
    """With a name, scancel of Slurm 22.05 cancels all that wait."""
    made, told = groups(tmp_path)
    made.cancel([IdentifiedJob("12_1", "flow_y.t2"), IdentifiedJob("9", "flow_c.t9")])
    assert told.cancelled == [IdentifiedJob("12_1", ""), IdentifiedJob("9", "flow_c.t9")]


def test_a_script_that_names_no_jobs_is_refused():
    with pytest.raises(ValueError, match="no script"):
        jobs_of("#!/bin/sh\ntrue\n")
