"""Slurm's reasons in words."""

import pytest
from asa.backends.slurm.reasons import advice, kind
from hypothesis import given
from hypothesis import strategies as st

REASONS = {
    "transient": (
        "Resources", "Priority", "BeginTime", "Reservation", "Licenses", "PartitionDown", "PartitionInactive",
        "ReqNodeNotAvail", "ReqNodeNotAvail, UnavailableNodes:n[001-004]",
        "(ReqNodeNotAvail, Reserved for maintenance)",
        "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
        "BurstBufferResources", "BurstBufferStageIn", "Cleaning", "Prolog", "NodeDown", "RequeueExit",
    ),
    "limit": (
        "QOSMaxCpuPerUserLimit", "QOSMaxJobsPerUserLimit", "QOSMaxGRESPerUser", "QOSMaxSubmitJobPerUserLimit",
        "QOSGrpCpuLimit", "QOSGrpCPUMinutesLimit", "QOSGrpNodeRunMinutes", "QOSResourceLimit", "QOSJobLimit",
        "QOSTimeLimit", "QOSUsageThreshold", "AssocGrpCpuLimit", "AssocGrpCPUMinutesLimit", "AssocGrpJobsLimit",
        "AssocGrpWallLimit", "AssocMaxJobsLimit", "AssocMaxSubmitJobLimit", "AssociationJobLimit", "MaxCpuPerAccount",
        "MaxGRESRunMinsPerUser", "MaxSubmitJobsPerAccount", "MaxJobsPerAccount", "JobArrayTaskLimit",
    ),
    "impossible": (
        "PartitionTimeLimit", "PartitionNodeLimit", "PartitionConfig", "BadConstraints", "InvalidAccount", "InvalidQOS",
        "AccountNotAllowed", "QOSNotAllowed", "QOSMaxCpuPerJobLimit", "QOSMaxWallDurationPerJobLimit",
        "QOSMaxCpuMinutesPerJobLimit", "QOSMaxMemoryPerNode", "QOSMinCpuNotSatisfied", "AssocMaxNodePerJobLimit",
        "AssocMaxWallDurationPerJobLimit", "MaxMemPerLimit",
    ),
    "held": (
        "JobHeldUser", "JobHeldAdmin", "ReservationDeleted", "JobHoldMaxRequeue", "launch_failed_requeued_held",
        "launch failed requeued held",
        "job_requeued_in_held_state", "SPECIAL_EXIT", "REQUEUE_HOLD",
    ),
    "dependency": ("Dependency", "DependencyNeverSatisfied"),
    "failed": (
        "NonZeroExitCode", "RaisedSignal:15(Terminated)", "NodeFail", "NODE_FAIL", "OUT_OF_MEMORY", "OutOfMemory",
        "TIMEOUT", "TimeLimit", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "JobLaunchFailure", "LAUNCH_FAILED",
        "SystemFailure", "CANCELLED",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("reason", "called"), [(reason, called) for called in REASONS for reason in REASONS[called]])
def test_a_known_reason_is_explained(reason, called):
    """With its kind and a remedy, and without Slurm's own word."""
    told = advice(reason)
    assert kind(reason) == called
    assert told.meaning.endswith(".")
    assert "{" not in told.meaning
    assert not told.meaning.startswith("Slurm's reason")
    assert told.remedy or reason == "CANCELLED"


@pytest.mark.parametrize(
    ("reason", "what", "whose"),
    [
        ("QOSMaxCpuPerUserLimit", "cores", "its user in this quality of service"),
        ("MaxNodePerAccount", "nodes", "its account in this quality of service"),
        ("AssocGrpMemLimit", "memory", "its user or account"),
        ("QOSGrpGRESMinutes", "GPUs", "its quality of service"),
        ("AssocMaxWallDurationPerJobLimit", "time", "its user or account"),
        ("QOSMaxLicensePerJob", "licences", "its quality of service"),
        ("QOSGrpUnknown", "resources", "its quality of service"),
    ],
)
def test_a_limit_is_told_with_what_and_whose(reason, what, whose):
    told = advice(reason).meaning
    assert what in told
    assert whose in told


def test_a_reason_that_is_not_known_is_told_as_slurm_says_it():
    assert "PlanetaryAlignment: Saturn" in advice("PlanetaryAlignment: Saturn").meaning
    assert kind("PlanetaryAlignment") == "unknown"


@pytest.mark.parametrize("reason", ["", "None", " ", "(None)"])
def test_no_reason_is_no_reason(reason):
    assert advice(reason).meaning == "Slurm gives no reason."
    assert kind(reason) == "unknown"


@given(st.text())
def test_any_text_gets_an_answer(reason):
    assert advice(reason).meaning
    assert kind(reason) in {*REASONS, "unknown"}
