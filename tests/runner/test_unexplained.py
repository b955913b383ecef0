"""Unknown answers to submissions pass, or count as refusals after a quarter of an hour."""

import math
from dataclasses import replace

from asa.backends.slurm.backend import SlurmBackend
from slurm_fake_link import BEGIN_S, FakeLink, VirtualClock

from asa.backend import Capabilities
from asa.errors import SubmitInDoubtError, UnavailableError
from asa.records import Deferred
from asa.runner import RunFolder, RunPlan
from asa.runner.entries import Unexplained, Unsent, read_entry, write_entry
from asa.runner.look import look
from asa.runner.unexplained import UNEXPLAINED_S, UnknownAnswers
from asa.workflow import Stage

SITE = Capabilities("x", 112, 28, age_accrues=False)
FAN = [Stage(name, cores=1, walltime_s=600, expected_run_s=30, command="sleep 30") for name in "abc"]
ODD = "sbatch: error: the moon is in its quarter number {}"


class Moody(FakeLink):
    """A Slurm in memory that for a while answers submissions in words of its own."""

    until_s, mood = 0.0, UnavailableError

    def submit(self, job):
        self.tried = getattr(self, "tried", 0) + 1
        if self.clock() < self.until_s:
            raise self.mood(ODD.format(self.tried), is_unexplained=True)
        return super().submit(job)


def looked(tmp_path, lasts_s, mood=UnavailableError, every_s=60.0, stages=FAN, of=Moody):
    """Look at a run every minute, each time as a client that remembers nothing, until it has ended."""
    plan = RunPlan("abcd1234", "x", "x", tuple(stages), "per-stage", "slurm-cli", SITE, created_s=1.7e9)
    folder, clock = RunFolder.create(tmp_path, plan), VirtualClock()
    begun_s = clock()
    link = type("One", (of,), {"until_s": begun_s + lasts_s, "mood": mood, "clock": clock})(clock, folder.path)
    while folder.state()[0].outcome is None and clock() < begun_s + 3 * 3600:
        look(folder, lambda run: SlurmBackend(link, run.path, SITE, clock=clock, sleep=clock.sleep))
        clock.sleep(every_s)
    return link, folder, clock() - begun_s


def test_words_that_nobody_knows_cost_nothing_where_they_pass(tmp_path):
    link, folder, _ = looked(tmp_path, UNEXPLAINED_S - 120.0)
    state, _ = folder.state()
    assert state.outcome == "completed"
    assert len(link.submitted) == 3
    assert all(view.attempts == 0 and view.resubmissions == 0 for view in state.stages.values())


def test_words_that_last_are_a_refusal_in_slurms_words_and_with_since_when(tmp_path):
    """Each look is a new client: the journal says how long these answers have lasted."""
    link, folder, took_s = looked(tmp_path, 1e9)
    state, _ = folder.state()
    assert (state.outcome, len(link.submitted)) == ("failed", 0)
    assert "the moon is in its quarter" in state.reason
    assert "has said so since 20" in state.reason
    assert UNEXPLAINED_S <= took_s < 2 * UNEXPLAINED_S
    assert link.tried > 10, "it was sent again and again meanwhile"


def test_so_is_an_answer_after_which_it_is_in_doubt_once_it_was_looked_for(tmp_path):
    link, folder, _ = looked(tmp_path, 1e9, SubmitInDoubtError)
    state, _ = folder.state()
    assert (state.outcome, len(link.submitted)) == ("failed", 0)
    assert "the moon is in its quarter" in state.reason


def test_an_answer_in_doubt_that_passes_costs_nothing(tmp_path):
    link, folder, _ = looked(tmp_path, UNEXPLAINED_S - 300.0, SubmitInDoubtError)
    assert folder.state()[0].outcome == "completed"
    assert len(link.submitted) == 3


def test_that_other_jobs_are_accepted_meanwhile_tells_for_a_refusal(tmp_path):
    """One stage is answered so for ever, and the others are accepted one after another."""
    stages = [FAN[0], *(replace(FAN[1], name=f"s{n}", after=(f"s{n - 1}",) if n else ()) for n in range(20))]

    class OfOne(Moody):
        def submit(self, job):
            self.until_s = math.inf if "_a." in job.name else 0.0
            return super().submit(job)

    link, folder, _ = looked(tmp_path, 1e9, stages=stages, of=OfOne)
    state, records = folder.state()
    assert (state.stages["a"].phase, state.stages["s19"].phase) == ("failed", "done")
    assert len(link.submitted) == 20
    assert "the moon is in its quarter" in state.ending.refused["a"]
    refused_s = [r.time_s for r in records if isinstance(r, Deferred)][-1] - BEGIN_S
    assert UNEXPLAINED_S <= refused_s < UNEXPLAINED_S + 120


def test_a_fan_that_is_answered_so_is_refused_without_a_quarter_of_an_hour_for_each(tmp_path):
    """No job of the target was accepted since the first such answer; each is submitted once at least."""
    fan = [replace(FAN[0], name=f"s{n}") for n in range(30)]
    link, folder, took_s = looked(tmp_path, 1e9, stages=fan)
    assert folder.state()[0].outcome == "failed"
    assert took_s < UNEXPLAINED_S + 40 * 60
    assert 30 < link.tried <= 30 + UNEXPLAINED_S / 60 + 2


def told(*answers):
    """Return the state after answers (to whom, when, which); empty for another fault, None for a lost answer."""
    tracker = UnknownAnswers()
    for token, at_s, words in answers:
        if words:
            tracker.heard(Unexplained(token, at_s, words))
        tracker.unsent(Unsent(token, at_s, "why", doubtful=words is None))
    return tracker


def test_only_the_same_answer_counts_and_only_for_whom_it_was_given():
    assert not told(("t", 0.0, "no, job 1"), ("t", 899.0, "no, job 2")).refusal_of("t")
    long = told(("t", 0.0, "no, job 1"), ("t", 900.0, "no, job 3"))
    assert "no, job 3" in long.refusal_of("t")
    assert not long.refusal_of("u"), "nobody has said no to that"
    assert not told(("t", 0.0, "no"), ("t", 500.0, "never"), ("t", 900.0, "no")).refusal_of("t")
    assert not told(("t", 0.0, "no"), ("t", 500.0, ""), ("t", 900.0, "no")).refusal_of("t"), "it was away meanwhile"
    assert told(("t", 0.0, "no"), ("t", 500.0, None), ("t", 900.0, "no")).refusal_of("t")
    long.forget("u")
    assert long.refusal_of("t"), "that another was accepted says nothing of it"
    long.forget("t")
    assert not long.refusal_of("t")


def test_others_that_nothing_was_accepted_beside_tell_since_when():
    both = told(("t", 0.0, "no, job 1"), ("u", 900.0, "no, job 2"))
    assert not both.refusal_of("u")
    assert both.refusal_of("u", ["t", "u"])
    assert not told(("t", 0.0, "never"), ("u", 900.0, "no")).refusal_of("u", ["t", "u"])


def test_journals_keep_it():
    entry = Unexplained("t", 1.0, "the moon")
    assert read_entry(write_entry(entry)) == entry
