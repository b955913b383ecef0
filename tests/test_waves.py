"""The stages of a job that run at the same time, and the jobs that are combined."""

from itertools import pairwise

import pytest
from asa.backends.simulated.machine import Machine
from hypothesis import given
from hypothesis import strategies as st

from asa.backend import Capabilities, PartitionLimits
from asa.runner.packing import packed
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.strategies.base import Keep, PlannedJob
from asa.waves import is_small, waves_of
from asa.workflow import Stage, Workflow

WHOLE = Capabilities("x", 112, 28, age_accrues=False, whole_nodes=True)
SHARED = Capabilities("x", 112, 28, age_accrues=False)


@st.composite
def graphs(draw):
    """Stages in an order that keeps to what they follow, some of them small."""
    count = draw(st.integers(1, 12))
    stages = []
    for number in range(count):
        after = draw(st.sets(st.sampled_from(range(number)), max_size=3)) if number else set()
        cores, together = draw(st.integers(1, 40)), draw(st.booleans())
        stages.append(
            Stage(
                f"s{number}",
                cores=cores,
                cpus_per_task=cores if together else 1,
                after=tuple(f"s{one}" for one in after),
                memory_bytes=draw(st.integers(0, 4)) << 30,
                walltime_s=draw(st.integers(1, 9)) * 60.0,
                command="true",
            )
        )
    return stages


@given(graphs(), st.booleans(), st.sampled_from([0, 6 << 30]))
def test_waves_keep_what_they_promise(stages, is_whole, memory_bytes):
    limits = {"p": PartitionLimits(memory_per_node_bytes=memory_bytes, whole_nodes=is_whole)}
    site = Capabilities("x", 112, 28, age_accrues=False, partition="p", partitions=limits)
    waves = waves_of(stages, site)
    place = {stage.name: number for number, wave in enumerate(waves) for stage in wave}
    assert sorted(place) == sorted(stage.name for stage in stages)
    assert sum(map(len, waves)) == len(stages)
    for stage in stages:
        assert all(place[before] < place[stage.name] for before in stage.after)
    most = max(stage.cores for stage in stages)
    for wave in waves:
        if len(wave) > 1:
            assert all(map(is_small, wave))
            assert sum(stage.cores for stage in wave) <= (28 if is_whole else most) <= 28
            assert not memory_bytes or sum(stage.memory_bytes for stage in wave) <= memory_bytes
    if all(len(wave) == 1 for wave in waves):
        assert [wave[0] for wave in waves] == list(stages), "as they were before"


@pytest.mark.parametrize(
    "changes",
    [
        {"cores": 2},
        {"cores": None, "nodes": 1},
        {"gpus": 1},
        {"exclusive": True},
        {"local": True},
        {"command": "srun ./a"},
        {"script": "#!/bin/sh\nmpirun ./a\n", "command": ""},
    ],
)
def test_what_is_not_small_is_by_itself(changes):
    stage = Stage("a", **{"cores": 1, "command": "true", **changes})
    assert not is_small(stage)


def test_a_site_that_takes_single_cores_back_has_no_waves():
    stages = [Stage(name, cores=1, command="true") for name in "abc"]
    site = Capabilities("x", 112, 28, age_accrues=False, whole_nodes=True, shrink_by=1)
    assert len(waves_of(stages, site)) == 3
    assert len(waves_of(stages, WHOLE)) == 1


def fan(count, *, cores=1, site=WHOLE, max_jobs=None):
    parts = [
        Stage(f"p{n}", cores=cores, cpus_per_task=cores, command="true", walltime_s=600.0 + n, after=("split",))
        for n in range(count)
    ]
    stages = [Stage("split", cores=1, command="true"), *parts, Stage("join", cores=1, after=("p0",), command="true")]
    state = RunState("run", Workflow("fan", stages), site, "abcd12345678")
    state.host.max_jobs = max_jobs
    return state


def planned(*names, keep=Keep.NOTHING, **changes):
    return PlannedJob(names, 0.0, keep, "why", **changes)


def test_a_job_of_waves_asks_for_the_widest_wave_and_the_longest_stage_of_each():
    state = fan(4)
    spec = spec_of(state, planned("split", "p0", "p1", "p2", "p3"))
    assert (spec.cores, spec.cpus_per_task) == (4, 4), "on one node"
    assert spec.walltime_s == 3600 + 603
    assert [step.beside for step in spec.steps] == [False, False, True, True, True]
    assert [step.slot_s[0] for step in spec.steps] == [0, 3600, 3600, 3600, 3600]


def test_what_jobs_need_at_the_same_time_is_added():
    stages = [Stage(name, cores=1, command="true", memory_bytes=2 << 30) for name in "abc"]
    state = RunState("run", Workflow("w", stages), WHOLE, "abcd12345678")
    assert spec_of(state, planned("a", "b", "c")).memory_bytes == 6 << 30
    apart = RunState("run", Workflow("w", stages), SHARED, "abcd12345678")
    assert spec_of(apart, planned("a", "b", "c")).memory_bytes == 2 << 30


def test_ready_jobs_share_a_node_where_nodes_are_given_whole():
    jobs = [planned(f"p{n}") for n in range(30)]
    found = packed(fan(30), jobs, 0.0)
    assert sorted(len(job.stages) for job in found) == [2, 28]
    assert {name for job in found for name in job.stages} == {f"p{n}" for n in range(30)}
    short = min(found, key=lambda job: len(job.stages))
    assert set(short.stages) == {"p0", "p1"}, "the shortest are left over, so that no node waits for a long one"
    assert packed(fan(30, site=SHARED), jobs, 0.0) == jobs


def test_one_long_stage_is_not_in_each_pack():
    state = fan(56)
    waves = [{state.stages[name].stage.walltime_s for name in job.stages} for job in packed(
        state, [planned(f"p{n}") for n in range(56)], 0.0
    )]  # fmt: skip
    longest = sorted(max(wave) for wave in waves)
    assert longest == [627.0, 655.0]


def test_jobs_that_differ_or_are_not_due_or_are_kept_back_otherwise_stay_apart():
    state = fan(4)
    later = PlannedJob(("p0",), 60.0, Keep.NOTHING, "why")
    held = planned("p1", keep=Keep.DEPENDENCY)
    assert packed(state, [later, held, planned("p2")], 0.0) == [later, held, planned("p2")]
    assert len(packed(state, [planned("p0", keep=Keep.DEPENDENCY), held], 0.0)) == 1, "both follow the same stage"
    assert len(packed(state, [planned("split"), planned("p0", keep=Keep.DEPENDENCY)], 0.0)) == 2


def test_no_more_share_a_job_than_their_host_hands_over():
    found = packed(fan(9, max_jobs=4), [planned(f"p{n}") for n in range(9)], 0.0)
    assert sorted(len(job.stages) for job in found) == [1, 4, 4]


def test_wide_stages_share_no_node():
    jobs = [planned(f"p{n}") for n in range(3)]
    assert packed(fan(3, cores=20), jobs, 0.0) == jobs
    assert len(packed(fan(3, cores=14), jobs, 0.0)) == 2


def test_a_walltime_is_asked_for_the_waves_though_all_stages_are_in_the_job():
    """Unless the whole has a walltime of its own."""
    stages = [Stage(name, cores=1, command="true", walltime_s=3600.0) for name in "abcd"]
    job = planned(*"abcd")
    assert spec_of(RunState("run", Workflow("w", stages), WHOLE, "abcd12345678"), job).walltime_s == 3600
    of_its_own = Workflow("w", stages, walltime_s=9000.0)
    assert spec_of(RunState("run", of_its_own, WHOLE, "abcd12345678"), job).walltime_s == 9000


def test_waves_follow_each_other():
    stages = [Stage(f"s{n}", cores=1, command="true", expected_run_s=60.0) for n in range(60)]
    state = RunState("run", Workflow("w", stages), WHOLE, "abcd12345678")
    slots = state.layout(planned(*(stage.name for stage in stages)))
    starts = sorted({slot.start_s for slot in slots})
    assert starts == [0.0, 60.0, 120.0]
    assert all(b - a == 60.0 for a, b in pairwise(starts))


def test_machine_is_known():
    assert Machine("m", nodes=4, cores_per_node=28, whole_nodes=True).allocated(1) == WHOLE.paid_cores(1) == 28
