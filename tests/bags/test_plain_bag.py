"""Random interleavings of takers, deaths and returns on the plain model; and the files of some, read for real."""

import random
import shutil
import subprocess
from collections import Counter

import pytest
from plain_bag import Disk, Eyes, Taker, World, give_back

from asa.bags import Bag
from asa.job import text


def finish(steps):
    for _ in steps:
        pass


class Trial:
    """One interleaving; `late`: how often a node does not see what is there."""

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.disk = Disk(rng.randint(1, 14), rng.choice([1, 2, 4, 8]), rng)
        self.world = World()
        self.disk.loses_answers = rng.random() < 0.3
        self.late = rng.choice([0.0, 0.3, 0.9])
        self.saw_late = self.late > 0
        self.client = self.eyes()
        self.may_live_on = rng.random() < 0.3
        self.may_fill = rng.random() < 0.2
        self.live, self.dead, self.starts, self.acts = {}, [], Counter(), []
        for job in range(rng.randint(1, 4)):
            self.begin(f"t{job}")

    def eyes(self):
        return Eyes(self.disk, self.rng, self.late)

    def begin(self, job):
        former = [f"{job}.{n}" for n in range(1, self.starts[job] + 1)]
        self.starts[job] += 1
        name = f"{job}.{self.starts[job]}"
        self.live[name] = Taker(self.disk, self.world, self.eyes(), self.rng, name, former)

    def kill(self, name):
        del self.live[name]
        self.world.stop(name)
        self.dead.append(name)

    def step(self):
        name = self.rng.choice(list(self.live))
        what, taker = self.rng.random(), self.live[name]
        if what < 0.03:
            self.kill(name)
            if self.rng.random() < 0.4:  # put back into the queue
                self.begin(name.partition(".")[0])
        elif what < 0.05:
            taker.is_told_to_end = True
        elif what < 0.07 and self.may_live_on:
            self.world.reported_dead.add(name)
            self.acts.append(give_back(self.disk, self.client, name))
        elif what < 0.10 and self.dead:
            self.acts.append(give_back(self.disk, self.client, self.rng.choice(self.dead)))
        elif what < 0.12:
            self.disk.is_full = self.may_fill and not self.disk.is_full
        elif what < 0.3 and self.acts:
            act = self.rng.choice(self.acts)
            if next(act, self) is self:
                self.acts.remove(act)
        elif next(taker.steps, self) is self:
            del self.live[name]
            self.world.stop(name)
            self.dead.append(name)  # it has ended; to give back for it once more does nothing

    def go_on(self):
        while self.live:
            self.step()

    def settle(self):
        """All have ended, and all is seen: what is left is given back, and one more job takes it."""
        self.disk.is_full, self.late = False, 0.0
        clear = self.eyes()
        for act in self.acts:
            finish(act)
        for name in self.dead:
            finish(give_back(self.disk, clear, name))
        finish(Taker(self.disk, self.world, clear, self.rng, "last.1").steps)


def check(trial):
    """Each task ended once, and what is known is true; a job that was said to be dead may have ended some more."""
    counted = Counter(at for at, _ in trial.disk.ended())
    assert max(counted.values(), default=0) <= 1, "an end counts twice"
    for task in range(1, trial.disk.count + 1):
        assert trial.world.ends[task] - trial.world.excused[task] <= 1, "it ran to its end twice"
        assert counted[task] <= trial.world.ends[task], "an end counts that never was"


@pytest.mark.full
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.full) for block in range(1, 8))])
def test_each_task_ends_once_however_they_interleave(block):
    """What was taken, and not seen as such by who gave back, waits for the next round: nothing else is left behind."""
    again = 0
    for seed in range(block * 12_500, (block + 1) * 12_500):
        trial = Trial(seed)
        trial.go_on()
        check(trial)
        trial.settle()
        check(trial)
        left = set(range(1, trial.disk.count + 1)) - {at for at, _ in trial.disk.ended()}
        again += bool(left)
        assert not left or trial.world.reported_dead or trial.saw_late, f"seed {seed}: {left} are left behind"
    assert 0 < again < 1250


def write(disk, folder):
    """Make the files that a model's disk stands for."""
    for name in ("claims", "logs", "returned"):
        (folder / "0" / name).mkdir(parents=True)
    tasks = "".join(f"{n} true\n" for n in range(1, disk.count + 1))
    (folder / "0" / "list").write_text(f"{disk.count} {disk.divisor} 0\n{tasks}")
    for name, owner in disk.claims.items():
        text = str(name + 1) if isinstance(name, int) else f"{name[0]}+{name[1] + 1}"
        (folder / "0" / "claims" / text).symlink_to(owner)
    for who, log in disk.logs.items():
        (folder / "0" / "logs" / who).write_text("".join(f":{at} {code} 100 200;\n" for at, code in log))
        spare = "".join(f"{f':{at} {code} 100 200;':<63}\n" for at, code in disk.spares[who])
        (folder / "0" / "logs" / f"{who}.spare").write_text(f"{'':63}\n{spare}")
    for who, ranges in disk.returned.items():
        (folder / "0" / "returned" / who).write_text("".join(f"{first} {last}\n" for first, last in ranges))


def shell(folder, what):
    head = f'asa_dir={folder}/0\nread -r asa_count asa_divisor asa_before <"$asa_dir/list"\n{text("bag-reading")}\n'
    return subprocess.run(["sh", "-c", head + what], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("seed", range(12))
def test_the_files_say_the_same_to_all(tmp_path, seed):
    """To the model, to the client, and to jobs; and what one of these gives back, the others would have given back."""
    trial = Trial(1_000_000 + seed)
    for _ in range(60):
        if trial.live:
            trial.step()
    write(trial.disk, tmp_path)
    ended = trial.disk.ended()
    told = [tuple(map(int, line.split())) for line in shell(tmp_path, 'asa_ended "$asa_dir"').splitlines()]
    assert sorted(told) == sorted(ended)
    progress = Bag(tmp_path).progress()
    assert (progress.completed, progress.failed) == (len(ended) - sum(c for _, c in ended), sum(c for _, c in ended))
    for name in set(trial.disk.logs) - set(trial.disk.returned):
        trial.disk.is_full = trial.disk.loses_answers = False
        finish(give_back(trial.disk, Eyes(trial.disk, trial.rng, 0.0), name))
        place = tmp_path / "0" / "returned" / name
        assert Bag(tmp_path).give_back(0, name.partition(".")[0])
        assert sorted(place.read_text().splitlines()) == sorted(f"{a} {b}" for a, b in trial.disk.returned[name])
        by_client = sorted(place.read_text().splitlines())
        place.unlink()
        shell(tmp_path, f"asa_give_back {name}")
        assert sorted(place.read_text().splitlines()) == by_client
    shutil.rmtree(tmp_path / "0")
