"""The bank of learners."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError, StateError
from asa.estimators import WaitBank
from asa.geometry import JobGeometry

WIDE = JobGeometry.of(cores=112, walltime_s=3600)
NARROW = JobGeometry.of(cores=1, walltime_s=600)


def taught(seed=0):
    bank = WaitBank(seed=seed)
    for wait in (20.0, 700.0, 700.0, 30_000.0, 700.0):
        bank.observe(WIDE, wait, bank.predict(WIDE))
        bank.observe(NARROW, 10.0, bank.predict(NARROW))
    return bank


def test_a_bank_continues_bit_for_bit_after_a_restart(tmp_path):
    """Saved, loaded, and asked the same."""
    bank = taught()
    bank.save(tmp_path / "bank.json")
    twin = WaitBank.load(tmp_path / "bank.json")
    assert list(twin) == list(bank) == sorted([WIDE, NARROW])
    for wait in (5.0, 50.0, 500.0) * 10:
        for geometry in (WIDE, NARROW, JobGeometry.of(cores=7, walltime_s=60)):
            assert twin.predict(geometry) == bank.predict(geometry)
            twin.observe(geometry, wait)
            bank.observe(geometry, wait)
    twin.save(tmp_path / "twin.json")
    bank.save(tmp_path / "bank.json")
    assert (tmp_path / "twin.json").read_text() == (tmp_path / "bank.json").read_text()


@given(st.permutations([WIDE, NARROW, JobGeometry.of(cores=640, walltime_s=60)]))
def test_what_one_geometry_sees_never_changes_another(order):
    """Each learner has its own generator, whatever the order of first use."""
    bank = WaitBank(seed=5)
    for geometry in order:
        bank.predict(geometry)
    alone = WaitBank(seed=5)
    alone.predict(NARROW)
    assert [bank.predict(NARROW) for _ in range(5)] == [alone.predict(NARROW) for _ in range(5)]


def test_the_seed_matters():
    """Different seeds, different draws."""
    draws = {tuple(WaitBank(seed=seed).predict(WIDE).wait_s for _ in range(8)) for seed in range(5)}
    assert len(draws) == 5


def test_learners_come_on_demand():
    """Asking is enough."""
    bank = WaitBank()
    assert len(bank) == 0
    assert bank.distribution(WIDE).probabilities.sum() == pytest.approx(1)
    assert len(bank) == 1


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    """Written beside, then renamed."""
    path = tmp_path / "bank.json"
    taught().save(path)
    before = path.read_text()
    monkeypatch.setattr(json, "dump", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        taught(1).save(path)
    assert path.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["bank.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[]", "no bank"),
        ('{"format": "asa-bank", "version": 99}', "version 99"),
        ('{"format": "asa-bank", "version": 1}', "lacks"),
        (
            '{"format": "asa-bank", "version": 1, "policy": "tuned", "repetitions": 1, "seed": 0, "learners": [{}]}',
            "lacks",
        ),
        (
            (
                '{"format": "asa-bank", "version": 1, "policy": "tuned", "repetitions": 1, "seed": 0, "learners":'
                '[{"geometry": {"size_class": 1, "walltime_class": 1}, "state": {}}]}'
            ),
            "no state",
        ),
        (
            '{"format": "asa-bank", "version": 1, "policy": "eager", "repetitions": 1, "seed": 0, "learners": []}',
            "policy",
        ),
        (
            (
                '{"format": "asa-bank", "version": 1, "policy": "tuned", "repetitions": 1, "seed": 0, "learners":'
                '[{"geometry": {"size_class": "x", "walltime_class": 1}, "state": {}}]}'
            ),
            "no job geometry",
        ),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, text, message):
    """With the file in the message."""
    path = tmp_path / "bank.json"
    path.write_text(text)
    with pytest.raises(StateError, match=message) as caught:
        WaitBank.load(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_an_unwritable_place_are_refused(tmp_path):
    """Not a traceback of the operating system's."""
    with pytest.raises(StateError, match="cannot be read"):
        WaitBank.load(tmp_path / "none.json")
    with pytest.raises(StateError, match="cannot be written"):
        WaitBank().save(tmp_path / "no" / "folder.json")


def test_an_unknown_policy_is_refused_at_once():
    """Not at the first prediction."""
    with pytest.raises(InputError, match="Known"):
        WaitBank("eager")


def test_a_saved_bank_is_as_readable_as_any_file(tmp_path):
    """Others of a project may share it; permissions that were set stay."""
    path, plain = tmp_path / "bank.json", tmp_path / "plain"
    plain.touch()
    WaitBank().save(path)
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o640)
    WaitBank().save(path)
    assert path.stat().st_mode & 0o777 == 0o640
