"""Job geometries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError
from asa.geometry import JobGeometry


def test_the_papers_six_sizes_are_six_geometries():
    """28, 56, 112, 160, 320 and 640 cores share no learner."""
    assert len({JobGeometry.of(cores=n, walltime_s=3600) for n in (28, 56, 112, 160, 320, 640)}) == 6


def test_alike_jobs_share_a_geometry():
    """110 cores for 58 minutes queue like 112 for an hour."""
    assert JobGeometry.of(cores=110, walltime_s=3480) == JobGeometry.of(cores=112, walltime_s=3600)


def test_places_are_kept_apart():
    """A wait at one centre says nothing of another's."""
    assert JobGeometry.of(cores=1, walltime_s=60, system="a") != JobGeometry.of(cores=1, walltime_s=60, system="b")


@given(st.integers(1, 10**6), st.floats(1, 1e7))
def test_classes_grow_with_the_job(cores, walltime):
    """More cores or more time is never a smaller class."""
    here = JobGeometry.of(cores=cores, walltime_s=walltime)
    more = JobGeometry.of(cores=cores + 1, walltime_s=walltime * 1.1)
    assert here.size_class <= more.size_class <= here.size_class + 1
    assert here.walltime_class <= more.walltime_class
    assert 2 ** (here.size_class - 1) < cores <= 2**here.size_class


@pytest.mark.parametrize(("cores", "walltime"), [(0, 60), (1, 0), (-1, 60), (1, float("nan"))])
def test_nothing_has_no_geometry(cores, walltime):
    """Refused, not classed."""
    with pytest.raises(InputError):
        JobGeometry.of(cores=cores, walltime_s=walltime)


def test_the_label_is_for_people():
    """Width, time, place."""
    assert JobGeometry.of(cores=112, walltime_s=3600, system="hpc2n").label() == "hpc2n 65-128 cores, about 1h08m"
    assert JobGeometry.of(cores=1, walltime_s=256).label() == "1 cores, about 4m16s"
