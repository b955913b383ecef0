"""A node on which jobs fail through no fault of their own costs no stage, and no retry, on real daemons."""

from contextlib import contextmanager

import pytest
from slurm_runs import LINKS, SlurmRun, stage

from asa.cli.standing import standing_of
from asa.elements import parse_array
from asa.records import Cancelled, Retrying, Submitted
from asa.runner import nodes

BAD = "n002"
NAMES = "abcdefgh"


@contextmanager
def blind(slurm, folder, mode="755"):
    slurm.blind(BAD, folder, mode)
    try:
        yield
    finally:
        slurm.blind(BAD)


@pytest.fixture
def hidden(slurm, request):
    """Return a folder that one node does not see."""
    name = "".join(letter for letter in request.node.name if letter.isalnum())
    made = slurm.folder(f"hidden{name[-40:]}")
    for part in ("work", "bin"):
        (made / part).mkdir(mode=0o777)
        (made / part).chmod(0o777)
    (made / "bin" / "program").write_text("#!/bin/sh\nsleep 1\n")
    (made / "bin" / "program").chmod(0o755)
    return made


def whole(slurm, names=NAMES, then="sleep 1", **more):
    """Make stages that take a node each, so that each node gets one."""
    return [stage(name, then=then, cores=slurm.cores_per_node, **more) for name in names]


def retryings(records):
    return [record for record in records if isinstance(record, Retrying)]


def check(run, result):
    """Check that jobs failed on the bad node alone, and that no retry was counted."""
    assert result.outcome == "completed", result.reason
    state, records = run.folder.state()
    assert retryings(records)
    assert all(f"which counts as no retry; now on another node than {BAD}" in r.reason for r in retryings(records))
    assert all(view.attempts == 0 for view in state.stages.values())
    failed = [job for jobs in run.jobs().values() for job in jobs if job["JobState"] == "FAILED"]
    assert {job["NodeList"] for job in failed} == {BAD}
    [bad] = state.nodes.bad(records[-1].time_s)
    assert (bad.name, set(bad.stages)) == (BAD, {name for one in retryings(records) for name in one.stages})


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("what", ["work folder", "run folder"])
def test_a_node_that_lacks_a_folder_costs_no_retry(slurm, link, what, hidden):
    """Without the run's folder Slurm cannot begin the job; without the work folder the job's script ends."""
    of_plan = {"folder": str(hidden / "work")} if what == "work folder" else None
    run = SlurmRun(slurm, whole(slurm), link=link, of_plan=of_plan)
    with blind(slurm, hidden if what == "work folder" else run.place):
        client = run.client()
        client.saw(Retrying)
        standing = standing_of(run.folder, 0.0)
        assert [one.name for one in standing.bad_nodes] == [] if standing.is_over else [BAD]
        check(run, client.result())
    assert run.ran == dict.fromkeys(NAMES, 1)


def test_a_node_that_makes_the_runs_folder_on_a_disk_of_its_own_costs_no_retry(slurm, monkeypatch):
    """Newer versions of Slurm make folders for the output of jobs; nothing is run in such a folder."""
    monkeypatch.setenv("ASA_PATIENCE_S", "2")
    run = SlurmRun(slurm, whole(slurm))
    with blind(slurm, run.place, "777"):
        check(run, run.result())
    assert run.ran == dict.fromkeys(NAMES, 1)


@pytest.mark.parametrize("link", LINKS)
def test_a_command_that_is_not_found_on_one_node_is_run_on_another(slurm, link, hidden):
    run = SlurmRun(slurm, whole(slurm, then=f"{hidden}/bin/program"), link=link)
    with blind(slurm, hidden):
        check(run, run.result())


def test_two_stages_that_fail_soon_on_one_node_make_it_a_bad_one(slurm):
    """Whatever their exit codes; the first failure costs a retry, since nothing was known of the node."""
    then = f'if [ "$SLURMD_NODENAME" = {BAD} ]; then exit 3; fi; sleep 1'
    run = SlurmRun(slurm, whole(slurm, then=then, retries=2))
    result = run.result()
    assert result.outcome == "completed", result.reason
    state, records = run.folder.state()
    counted = [one for one in retryings(records) if "counts as no retry" not in one.reason]
    assert len(counted) <= 2
    assert sum(view.attempts for view in state.stages.values()) == len(counted)
    assert [one.name for one in state.nodes.bad(records[-1].time_s)] == [BAD]
    late = [r for r in records if isinstance(r, Submitted) and r.resubmission][-1]
    assert run.jobs()[late.stages[0]][-1]["NodeList"] != BAD


def test_elements_of_an_array_are_run_elsewhere(slurm, hidden):
    """Only those that did not complete are submitted again, and this counts as no retry of them."""
    [one] = whole(slurm, "a", array=parse_array("1-8"))
    run = SlurmRun(slurm, [one], of_plan={"folder": str(hidden / "work")})
    with blind(slurm, hidden):
        result = run.result()
    assert result.outcome == "completed", result.reason
    assert run.ran == {"a": 8}
    state, records = run.folder.state()
    [retrying] = retryings(records)
    assert f"which counts as no retry; now on another node than {BAD}" in retrying.reason
    assert state.stages["a"].attempts == 0
    assert [one.name for one in state.nodes.bad(records[-1].time_s)] == [BAD]


def test_a_stage_that_fails_on_every_node_fails_after_some_of_them(slurm, hidden):
    """No node has its work folder, so no node is at fault."""
    run = SlurmRun(slurm, whole(slurm, "a"), of_plan={"folder": str(hidden / "work")})
    with blind(slurm, hidden):
        client = run.client(connect=lambda sleep: _without(hidden / "work", run.connect(sleep)))
        result = client.result()
    assert result.outcome == "failed"
    assert run.ran == {}
    assert 2 <= len(run.jobs()["a"]) <= 4
    assert run.folder.state()[0].nodes.bad(0.0) == []


def _without(folder, backend):
    folder.rmdir()
    return backend


@pytest.mark.parametrize("link", LINKS)
def test_a_job_that_avoids_the_only_node_that_is_left_gets_it_once_that_may_be_tried_again(
    slurm, link, hidden, monkeypatch
):
    """The other nodes go down while it is pending, and its submission excludes the last one."""
    monkeypatch.setattr(nodes, "TRIED_AGAIN_S", 12.0)
    run = SlurmRun(slurm, whole(slurm, "a"), strategy="per-stage", link=link, of_plan={"folder": str(hidden / "work")})
    others = [f"n{n:03}" for n in range(1, slurm.nodes + 1) if f"n{n:03}" != BAD]
    slurm.run_as_root("scontrol", "update", f"nodename={','.join(others)}", "state=down", "reason=test")
    with blind(slurm, hidden):
        client = run.client()
        client.saw(Retrying)
    client.saw(Cancelled)
    assert client.result().outcome == "completed"
    assert [job["NodeList"] for job in run.jobs()["a"] if job["JobState"] == "COMPLETED"] == [BAD]
    assert run.ran == {"a": 1}
