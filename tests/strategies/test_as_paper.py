"""`asa-paper` is the paper's: Algorithm 1, tuned, learned from this client's own waits alone, under any estimator."""

from pathlib import Path

import pytest
from asa.backends.simulated import SimulatedSite
from asa.backends.simulated.swf import read_history
from asa.workflows import blast, montage

from asa.estimators import WaitBank, WaitStore, exactly
from asa.estimators.choice import AUTO
from asa.records import Submitted
from asa.runner import Run, run_all
from asa.runner.begin import choose_estimator
from asa.strategies import load_strategy
from asa.waits import QueuedJob, QueueEvent

SITE = SimulatedSite("uppmax")
LOG = Path(__file__).parents[1] / "golden" / "data" / "small.swf.gz"


def job(number, user, cores=64):
    return QueuedJob(3600.0 * number, cores, 7200.0, user, "m", "")


def runs(strategy, bank, history=0):
    """Run two workflows one after the other, each in a queue of its own, with one bank; return what was submitted."""
    told = []
    for seed, flow in enumerate((blast(160), montage(160))):
        [result] = run_all(SITE.open(seed), [Run(flow, load_strategy(strategy), bank=bank)], history=history)
        assert result.outcome == "completed"
        told.append([(r.stages, r.time_s) for r in result.records if isinstance(r, Submitted)])
    return told


def test_it_is_asa_with_the_papers_estimator():
    """As the study of the paper runs it: `asa`, predicted by `asa-tuned`, which sees no queue; nothing else is."""
    papers = runs("asa-paper", WaitBank("asa", seed=3))
    assert papers == runs("asa", WaitBank("asa-tuned", seed=3))
    assert papers != runs("asa", WaitBank("asa", seed=3))


def test_what_others_wait_does_not_matter():
    """Neither past jobs of the queue, nor those that wait in it."""
    bank = WaitBank("asa-queue", seed=3)
    assert runs("asa-paper", bank, history=500) == runs("asa-paper", WaitBank("last", seed=3))
    assert bank.published is bank.published
    assert bank.published.own == bank.published.learned > 0
    assert bank.own == 0


def test_of_a_store_only_ones_own_waits_are_learned(tmp_path):
    """Those of earlier runs, too; what it learns is kept for all."""
    bank = WaitBank("last", user="me", store=WaitStore(tmp_path))
    for number in range(20):
        for user in ("me", "you"):
            asked = job(number, user)
            bank.observe(bank.submitted(asked, bank.predict(asked)), exactly(90.0 if user == "me" else 9e4))
    later = WaitBank("last", user="me", store=WaitStore(tmp_path))
    assert (later.learned, later.published.learned) == (40, 20)
    assert later.published.predict(job(30, "me")).wait_s == 90.0
    own = later.published.submitted(job(31, "me"))
    later.published.observe(own, exactly(90.0))
    assert WaitBank("last", user="me", store=WaitStore(tmp_path)).learned == 41


def test_neither_a_history_nor_a_queue_is_learned():
    bank = WaitBank("last").published
    waited = job(0, "you")
    assert bank.follow([QueueEvent("submitted", "1", 0.0, waited), QueueEvent("started", "1", 60.0)]) == 0
    history = read_history(LOG)
    assert WaitBank("last").learn(history) > 0
    assert bank.learn(history) == 0
    assert bank.learned == 0


@pytest.mark.parametrize("wanted", [AUTO, "last"])
def test_a_run_says_by_what_it_predicts(wanted):
    chosen = choose_estimator(wanted, "asa-paper", SITE.open(1), 100)
    assert chosen.estimator == "asa-tuned"
    assert "your own waits alone" in chosen.why
