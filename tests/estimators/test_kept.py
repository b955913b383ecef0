"""Estimators learned from a bank are cached between processes, and deleted records never remain in them."""

import json
import os

import numpy as np
import pytest

from asa.estimators import kept
from asa.estimators.contextual import ContextualAsa
from asa.estimators.queue_aware import QueueAwareAsa, queue_aware_asa
from asa.estimators.store import WaitStore
from asa.estimators.stored import WaitRecord
from asa.waits import QueuedJob, Surroundings, at_least, exactly


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def records(count, begin=0, system="x"):
    rng = np.random.default_rng(begin)
    for place in range(begin, begin + count):
        wait = float(10 ** rng.normal(2.5, 0.7))
        job = QueuedJob(100.0 * place, int(rng.choice([1, 16])), 3600.0, f"u{place % 5}", system, "batch")
        yield WaitRecord(job, exactly(wait) if place % 9 else at_least(wait), run_s=float(rng.integers(10, 900)))


def filled(folder, count=600):
    store = WaitStore(folder, durable=False)
    store.extend(records(count))
    store.close()
    return folder


def learned(folder, until_s=None, make=ContextualAsa, settings="s", system="x"):
    store = WaitStore(folder, create=False)
    file = kept.file_of(folder, "test")
    queue = make is not ContextualAsa
    from_state = QueueAwareAsa.from_state if queue else ContextualAsa.from_state
    return kept.learn(store, file, lambda _: (system, settings, make), from_state, until_s), file


def asked(one, at_s=1e6):
    return one.estimator.predict(QueuedJob(at_s, 16, 3600.0, "u1", "x", "batch"))


@pytest.mark.parametrize("make", [ContextualAsa, lambda: queue_aware_asa(Surroundings(0, 64))])
def test_a_second_look_answers_alike_and_reads_nothing(tmp_path, monkeypatch, make):
    folder = filled(tmp_path / "bank")
    first, file = learned(folder, 1e6, make)
    assert file.is_file()
    monkeypatch.setattr(WaitStore, "read", lambda *_: pytest.fail("the whole bank was read"))
    second, _ = learned(folder, 1e6, make)
    assert asked(second) == asked(first)
    assert second.count == first.count == 600
    assert second.outcomes == first.outcomes
    assert second.digests == first.digests
    assert second.kinds == first.kinds


def test_what_came_meanwhile_is_learned_and_once(tmp_path):
    folder = filled(tmp_path / "bank")
    learned(folder)
    with WaitStore(folder, durable=False) as other:
        other.extend(records(300, 600))
    second, _ = learned(folder)
    third, _ = learned(folder)
    assert second.digests["x"].count == third.digests["x"].count == 900
    assert second.count == third.count
    assert 850 < second.count <= 900
    assert asked(third) == asked(second)


def test_step_by_step_or_at_once_is_the_same(tmp_path):
    """A log that is learned in two parts gives the same estimator."""
    every = [
        WaitRecord(QueuedJob(1e4 * i, 4, 600.0, "u", "x"), exactly(float(60 + i % 7)), id=f"r{i:04}")
        for i in range(500)
    ]
    with WaitStore(tmp_path / "parts", durable=False) as store:
        store.extend(every[:400])
    learned(tmp_path / "parts")
    with WaitStore(tmp_path / "parts", durable=False) as store:
        store.extend(every[400:])
    with WaitStore(tmp_path / "whole", durable=False) as store:
        store.extend(every)
    parts, whole = learned(tmp_path / "parts")[0], learned(tmp_path / "whole")[0]
    assert asked(parts, 6e6) == asked(whole, 6e6)
    assert parts.outcomes == whole.outcomes


def test_what_is_forgotten_is_not_remembered(tmp_path):
    folder = filled(tmp_path / "bank")
    first, file = learned(folder)
    with WaitStore(folder) as store:
        store.forget(lambda record: record.job.cores == 16)
    second, _ = learned(folder)
    assert second.digests["x"].count < first.digests["x"].count
    assert second.digests["x"].widest == {"batch": 1}
    kept.drop(folder)
    assert not file.exists()


def test_what_is_forgotten_while_its_writer_lives_is_not_remembered(tmp_path):
    """Its file stays where it is, but is no longer read."""
    folder = filled(tmp_path / "bank", 300)
    with WaitStore(folder, durable=False) as writer:
        for record in records(60, 300):
            writer.append(record)
        first, _ = learned(folder)
        assert first.digests["x"].count == 360
        WaitStore(folder).forget(lambda record: record.job.cores == 16)
        second, _ = learned(folder)
    assert second.digests["x"].widest == {"batch": 1}


def test_after_merging_nothing_is_counted_twice(tmp_path):
    folder = filled(tmp_path / "bank")
    with WaitStore(folder, durable=False) as other:
        other.extend(records(300, 600))
    first, _ = learned(folder)
    with WaitStore(folder) as store:
        assert store.compact() == 2
    second, _ = learned(folder)
    assert second.digests == first.digests
    assert asked(second) == asked(first)


def test_a_record_that_comes_twice_does_not_matter(tmp_path):
    """As after segments were copied by hand."""
    folder = filled(tmp_path / "bank")
    learned(folder)
    with WaitStore(folder) as store:
        again = store.read()[-30:]
    (tmp_path / "other").mkdir()
    with WaitStore(tmp_path / "other", durable=False) as other:
        other.extend([*again, *records(60, 600)])
    for segment in (tmp_path / "other").glob("*.jsonl"):
        (folder / segment.name).write_bytes(segment.read_bytes())
    assert learned(folder)[0].count > 600


def test_much_that_is_new_is_learned_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "max_records", lambda: 300)
    folder = filled(tmp_path / "bank", 300)
    learned(folder)
    with WaitStore(folder, durable=False) as store:
        store.extend(records(400, 300))
    second, file = learned(folder)
    file.unlink()
    assert asked(second) == asked(learned(folder)[0])


def test_other_settings_are_learned_anew(tmp_path):
    folder = filled(tmp_path / "bank")
    with WaitStore(folder, durable=False) as store:
        store.extend(records(250, system="y"))
    learned(folder)
    blind, _ = learned(folder, settings="other", make=lambda: ContextualAsa(without=("users",)))
    assert blind.estimator.without == ("users",)
    elsewhere, _ = learned(folder, system="y")
    assert elsewhere.system == "y"
    assert elsewhere.digests["x"].count == 600
    assert 200 < elsewhere.count <= 250


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"version": 1}', "null"])
def test_a_damaged_file_does_not_matter(tmp_path, damage):
    folder = filled(tmp_path / "bank")
    first, file = learned(folder)
    file.write_text(damage)
    assert asked(learned(folder)[0]) == asked(first)


def test_any_missing_part_does_not_matter(tmp_path):
    folder = filled(tmp_path / "bank", 300)
    first, file = learned(folder)
    whole = json.loads(file.read_text())
    for key in whole:
        file.write_text(json.dumps({name: value for name, value in whole.items() if name != key}))
        assert asked(learned(folder)[0]) == asked(first)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_where_nothing_can_be_kept_it_is_answered_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert learned(filled(tmp_path / "bank"))[0].count > 500


def test_a_bank_that_holds_nothing(tmp_path):
    folder = tmp_path / "bank"
    folder.mkdir()
    assert learned(folder)[0] is None


def test_a_store_goes_on_only_where_what_was_read_still_is(tmp_path):
    folder = filled(tmp_path / "bank", 50)
    one = WaitStore(folder)
    one.read()
    position = one.position()
    two = WaitStore(folder)
    assert two.resume(position)
    assert two.news() == []
    assert not WaitStore(folder).resume({**position, "gone": 5})
    assert not WaitStore(folder).resume({token: end + 1 for token, end in position.items()})
