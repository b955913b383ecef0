"""The estimator that is chosen by default, and the state in which a run begins with it."""

import pytest

from asa import QueuedJob, WaitBank, WaitStore
from asa.estimators import choice
from asa.estimators.choice import choose
from asa.estimators.kept import bank_of
from asa.estimators.stored import WaitRecord, user_in_store
from asa.waits import QueueEvent, exactly


def shown(*users):
    return [QueueEvent("submitted", n, 10.0 * n, QueuedJob(10.0 * n, 4, 600.0, user)) for n, user in enumerate(users)]


@pytest.mark.parametrize(
    ("users", "name"),
    [
        ((), "asa"),
        (("ann",), "asa"),
        ((user_in_store("ann"),), "asa"),
        (("ann", "bob"), "asa-queue"),
        (("",), "asa-queue"),
    ],
)
def test_the_queue_is_simulated_where_jobs_of_others_are_shown(users, name):
    assert choose(shown(*users), "ann").name == name


def test_without_compiled_code_the_queue_is_not_simulated(monkeypatch):
    """Thousands of events would take minutes."""
    monkeypatch.setattr(choice, "find_spec", lambda _name: None)
    chosen = choose(shown("bob"), "ann")
    assert (chosen.name, "numba" in chosen.why) == ("asa", True)


def records(count):
    return [
        WaitRecord(QueuedJob(600.0 * n, 4, 3600.0, f"u{n % 3}", "north"), exactly(300.0), run_s=900.0)
        for n in range(count)
    ]


@pytest.mark.parametrize("name", ["asa-queue", "asa-boost", "asa-queue-boost"])
def test_a_bank_is_the_same_whether_it_learns_or_takes_what_was_kept(tmp_path, monkeypatch, name):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, now_s = tmp_path / "bank", 600.0 * 240
    WaitStore(folder).extend(records(240))
    job = QueuedJob(now_s, 4, 3600.0, "ann", "north")
    known = {"machine_cores": 16, "seed": 0, "now_s": now_s}
    first, again = (bank_of(name, WaitStore(folder), "north", **known) for _ in range(2))
    plain = WaitBank(name, machine_cores=16, store=WaitStore(folder))
    assert first.learned == again.learned == plain.learned == 240
    assert first.predict(job) == again.predict(job)
    assert list((tmp_path / "cache").rglob("*.json"))


@pytest.mark.parametrize("begun", [0, 80])
def test_what_such_a_bank_observes_is_kept_for_others(tmp_path, monkeypatch, begun):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, now_s = tmp_path / "bank", 600.0 * 80
    WaitStore(folder).extend(records(begun))
    other = WaitStore(folder)
    other.read()
    bank = bank_of("asa-queue", WaitStore(folder), "north", machine_cores=16, seed=0, now_s=now_s)
    job = QueuedJob(now_s, 4, 3600.0, bank.user, "north")
    bank.observe(bank.submitted(job, bank.predict(job)), exactly(20.0), token="t")
    [kept] = other.news()
    assert (kept.estimator, kept.job.user, kept.observation) == ("asa-queue", user_in_store(bank.user), exactly(20.0))
