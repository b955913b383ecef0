"""A client's reading of the states that Slurm reports."""

import pytest
from asa.backends.slurm.link import SlurmRecord
from asa.backends.slurm.states import status_of


@pytest.mark.parametrize(
    ("state", "nodes", "bad"),
    [
        ("NODE_FAIL", "n7", ("n7",)), ("BOOT_FAIL", "rack-1.n07", ("rack-1.n07",)),
        ("NODE_FAIL", "n[7-8]", ()), ("NODE_FAIL", "n7,m1", ()), ("NODE_FAIL", "", ()),  # which of them is not said
        ("FAILED", "n7", ()), ("TIMEOUT", "n7", ()), ("COMPLETED", "n7", ()), ("CANCELLED", "n7", ()),
    ],
)  # fmt: skip
def test_only_a_fault_of_the_one_node_of_a_job_makes_it_a_bad_node(state, nodes, bad):
    record = SlurmRecord("1", "a", "me", (state,), 100.0, start_s=110.0, end_s=120.0, node_list=nodes)
    status = status_of(record, 200.0)
    assert status is not None
    assert status.bad_nodes == bad


def test_a_job_that_slurm_has_put_back_has_no_bad_node():
    status = status_of(SlurmRecord("1", "a", "me", ("NODE_FAIL", "REQUEUED"), 100.0, node_list="n7"), 200.0)
    assert status is not None
    assert status.bad_nodes == ()
