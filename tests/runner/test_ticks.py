"""Runs that are only ever looked at, on a Slurm in memory where everything goes wrong at random, come to their end."""

import random
from dataclasses import replace

import pytest
from slurm_fake_link import FINAL
from slurm_world import SITE, World

from asa.elements import parse_array
from asa.errors import AsaError, JobNotFoundError, SubmitInDoubtError, UnavailableError
from asa.runner import RunFolder
from asa.runner.look import look
from asa.workflow import Stage

MAX_LOOKS = 300
STRATEGIES = ("per-stage", "chained", "big-job", "asa", "asa-plan", "asa-naive", "elastic")


_CALLS = ("jobs", "holders", "submit", "cancel", "named", "queue")
FAILS = {
    "empty": dict.fromkeys(("jobs", "holders", "named", "queue"), "empty"),
    "away": dict.fromkeys(_CALLS, "away"),
    "before": {"submit": "before"},
    "after": {"submit": "after"},
}
"""How calls fail until the next look."""


def stages_of(chance):
    """Draw a workflow: plain stages and arrays, some of which fail at first or always, and one that cleans up."""
    made, names = [], []
    for number in range(chance.randint(3, 7)):
        after = tuple(chance.sample(names, chance.randint(0, min(2, len(names)))))
        code = chance.choice([0] * 7 + [3])
        command = f"sleep {chance.choice([20, 200, 900])}" + (f"; exit {code}" if code else "")
        array = parse_array(chance.choice(["1-4", "1-6%2"])) if chance.random() < 0.35 else None
        walltime_s = chance.choice([600, 3600])
        more = {"cores": chance.choice([1, 4, 28]), "walltime_s": walltime_s, "retries": chance.choice([0, 1, 3])}
        names.append(f"s{number}")
        made.append(Stage(names[-1], command=command, after=after, array=array, expected_run_s=200, **more))
    if chance.random() < 0.4:
        last = Stage("z", cores=1, walltime_s=600, command="sleep 5", after=tuple(names[-2:]), when="failed")
        made.append(replace(last, when=chance.choice(["failed", "always"])))
    return tuple(made)


class Bad(World):
    """A Slurm in memory that errs at random; what it did is in `did`."""

    def __init__(self, path, seed, strategy):
        self.chance = random.Random(f"{seed}{strategy}")
        site = replace(SITE, max_array_size=self.chance.choice([4, 1001]), age_accrues=self.chance.random() < 0.5)
        how = {"min_job_age_s": self.chance.choice([2.0, 300.0]), "accounting": self.chance.random() < 0.4}
        how |= {"latency_s": self.chance.choice([1.0, 90.0]), "drops_unknown": self.chance.random() < 0.5}
        how |= {"listing_delay_s": self.chance.choice([0.0, 0.0, 15.0])}
        super().__init__(path, stages_of(self.chance), strategy=strategy, site=site, **how)
        self.did, self.is_bad, self.fails = [], True, {}
        for name in _CALLS:
            setattr(self.link, name, self._erring(name, getattr(self.link, name)))

    def _erring(self, name, call):
        def calls(*arguments):
            how = self.fails.get(name, "")
            if how == "away" or (how == "before" and name == "submit"):
                raise UnavailableError("no controller") if how == "away" else SubmitInDoubtError("it was lost")
            if how == "empty":
                return {} if name == "jobs" else []
            if how == "denied":
                return {job.job_id: JobNotFoundError("unknown job") for job in arguments[0]}
            answer = call(*arguments)
            if how == "after":
                raise SubmitInDoubtError("the answer was lost")
            return answer

        return calls

    def spoil(self):
        """Let something happen before the next look."""
        self.fails = {}
        if not self.is_bad or self.chance.random() < 0.4:
            return
        link, chance = self.link, self.chance
        live = [job for job in link.controller.values() if job.state not in FINAL]
        waiting = [job for job in live if job.state == "PENDING"]
        running = [job for job in live if job.state == "RUNNING"]
        what = chance.choice(
            ["cancel", "hold", "requeue", "node", "empty", "empty", "away", "before", "after", "uncancelled", "release"]
        )
        if what in FAILS:
            self.fails = FAILS[what]
        elif what == "uncancelled":
            self.fails = {"cancel": chance.choice(["away", "denied"])}
        elif what == "release":
            self.release()
        elif (of := {"cancel": waiting, "hold": waiting}.get(what, running)) and (job := chance.choice(of)):
            self._suffers(job, what)
        self.did.append((self.clock(), what))

    def _suffers(self, job, what):
        if what == "hold":
            self.link.hold_by_admin(job.job_id)
        elif what == "requeue":
            self.link.requeue(job.job_id)
        elif what == "node":
            job.bad_node = "n7"
        elif self.chance.random() < 0.3:
            self.link._cancel(job)

    def release(self):
        for job in self.link.all.values():
            job.held = "" if job.held == "JobHeldAdmin" else job.held

    def look(self):
        self.spoil()
        try:
            return look(RunFolder(self.folder.path), self.connect).is_over
        except AsaError as error:
            self.did.append((self.clock(), f"{type(error).__name__}: {error}"))
            return False


def to_the_end(world):
    """Look until nothing is left to do; from half of the looks on nothing goes wrong any more."""
    for count in range(MAX_LOOKS):
        if count == MAX_LOOKS // 2:
            world.is_bad = False
            world.release()
        if world.look():
            return count
        world.clock.sleep(world.chance.choice([20.0, 60.0, 60.0, 300.0]))
    raise AssertionError(f"not ended: {world.folder.state()[0].stages}")


@pytest.mark.usefixtures("own_home")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_that_is_only_looked_at_comes_to_its_end(tmp_path, seed, strategy):
    world = Bad(tmp_path, seed, strategy)
    to_the_end(world)
    state = world.folder.state()[0]
    assert all(view.phase.is_settled for view in state.stages.values()), state.stages
    assert not [job.job_id for job in world.link.all.values() if job.state not in FINAL]
    well = [one for one in world.link.all.values() if one.exit_code == 0 and one.posted]
    posts = [post for one in well for post in one.posted]
    assert len(posts) == len(set(posts)), "something ran again that had completed"
