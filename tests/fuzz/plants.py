"""Another user as a fuzzer: what he lays in the way of every command of the user, at random, with two real accounts.

Nothing of his is run; nothing of the user's is changed, or gets where he can read it; and each command ends, in words.
"""

import json
import os
import random
import re
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import cli_fuzz
from accounts import GROUP, two_accounts, why_not

from asa.backend import Capabilities
from asa.core import safe
from asa.errors import AsaError
from asa.runner import RunFolder, RunPlan
from asa.workflow import Stage
from fuzz.mutation import Mutator
from fuzz.readers import READERS

_TIMEOUT_S = 60
_HUGE = 3 << 30
CODES = {0, 1, 2, 3, 130}

FLOW = 'name = "flow"\n[[stage]]\nname = "a"\ncores = 1\nwalltime = "1min"\nexpected = "1s"\ncommand = "true"\n'
RUN, THEIRS, FILE, OUT = "RUN", "THEIRS", "FILE", "OUT"
TRIED: dict[str, tuple] = {
    "status": ((), (THEIRS,), (RUN,), (THEIRS, "--output", "json")),
    "explain": ((), ("--run", THEIRS), ("a", "--run", THEIRS)),
    "logs": ((), ("a", "--run", THEIRS), ("a", "--run", RUN), ("a", "--run", THEIRS, "--err")),
    "report": ((), (THEIRS, "--out", OUT), (RUN, "--out", OUT), (FILE, "--out", OUT), (RUN, "--csv", OUT)),
    "runs": ((), ("--all",), ("--output", "json"), ("--delete", "--older", "1d", "--yes")),
    "cancel": (("--yes",), (THEIRS, "--yes"), (RUN, "--yes")),
    "resume": (("--quiet",), (THEIRS, "--quiet"), (RUN, "--quiet")),
    "tick": ((), (THEIRS,), (RUN,)),
    "run": (
        ("flow.toml", "--backend", "local", "--dry-run", "--scripts"),
        ("flow.toml", "--backend", "local", "--quiet", "--bank", "none"),
        ("flow.toml", "--site", FILE, "--dry-run"),
        (FILE, "--backend", "local", "--dry-run"),
    ),
    "check": (("flow.toml", "--site"), (FILE,), (FILE, "--output", "json")),
    "show": (("flow.toml",), (FILE,)),
    "init": ((OUT,), (OUT, "--force")),
    "schema": (("--out", OUT, "--force"), ("--out", OUT)),
    "import scripts": ((FILE,), (FILE, "--out", OUT, "--force")),
    "import wfformat": ((FILE,), (FILE, "--out", OUT, "--force")),
    "import snakemake": ((FILE,), (FILE, "--jobs", FILE)),
    "import nextflow": ((FILE,), (FILE, "--dag", FILE), (FILE, "--config", FILE)),
    "export wfformat": (("flow.toml",), ("--run", THEIRS), (FILE, "--out", OUT)),
    "plan": (
        ("flow.toml", "--backend", "local", "--bank", FILE),
        (FILE, "--backend", "local", "--bank", "none"),
        ("flow.toml", "--site", FILE),
    ),
    "walltimes": (("flow.toml", "--bank", FILE, "--backend", "local"), (FILE,)),
    "predict": (("--cores", "1", "--bank", FILE, "--bank-only", "--system", "here"), ("--cores", "1", "--site", FILE)),
    "bank show": (("--bank", FILE), ()),
    "bank import": ((FILE, "--bank", FILE), (FILE,)),
    "bank export": ((OUT, "--bank", FILE), (OUT,)),
    "bank forget": (("--system", "here", "--bank", FILE), ("--system", "here")),
    "learn": (("--from", FILE, "--bank", FILE), ("--from", FILE)),
    "doctor": (("--site", FILE), ()),
    "list": ((),),
    "simulate": ((FILE,),),
    "workload check": ((FILE,),),
    "ccs plan": ((FILE,), (FILE, "--nodes", FILE)),
    "dras evaluate": ((FILE, "--weights", FILE),),
}
"""How each command is given, where others may have laid something in its way."""
NOT_TRIED = {
    **dict.fromkeys(
        ("worth", "twin", "compare", "evaluate", "workload fit", "workload generate", "workload calibrate"),
        "computes for minutes, and reads what `simulate` reads",
    ),
    **dict.fromkeys(
        (
            "experiment strategies",
            "experiment shapes",
            "experiment bags",
            "experiment legs",
            "experiment adoption",
            "campaign paper",
            "campaign schedulers",
        ),
        "computes for minutes",
    ),
    **dict.fromkeys(
        (
            "ccs why",
            "ccs drift",
            "ccs bench",
            "bbsched compare",
            "bbsched gd",
            "bbsched bench",
            "bbsched scaling",
            "bbsched requests",
        ),
        "likewise, and reads what `ccs plan` reads",
    ),
    **dict.fromkeys(
        (
            "dras train",
            "dras orders",
            "dras ablation",
            "dras jobs",
            "dras network",
            "dras rewards",
            "dmr study",
            "dmr measure",
            "dmr beside",
        ),
        "computes for minutes, or reads what `dras evaluate` reads",
    ),
    **dict.fromkeys(
        ("dmr serve", "dmr submit", "pool", "record"),
        "lives until it is ended: tests/test_who_answers.py and tests/pool/test_closed.py have these",
    ),
    "advise": "another name of `walltimes`",
}
NAMES = (
    *(
        "page.html",
        "flow.html",
        "out.csv",
        "flow.swf",
        "runs",
        "bank",
        "sites",
        ".asa",
        ".asa/conda",
        ".snakemake",
        ".snakemake/asa",
        "asa-pools",
        "trusted",
    ),
    *(
        "nextflow.config",
        ".nextflow.log",
        "matplotlibrc",
        ".numba_config.yaml",
        "numpy.py",
        "json.py",
        "asa.py",
        "sitecustomize.py",
        "usercustomize.py",
    ),
    *("conftest.py", "asa-runs-VICTIM", "flow.html.tmp", ".flow.toml.asa", "log.swf", "flow.recorded", "TMP"),
)
INSIDE = (
    *(
        "run.json",
        "journal.jsonl",
        "lease.json",
        "lease",
        "pulse.json",
        "kept.json",
        "cluster.json",
        "client.log",
        "metrics.json",
        "wishes",
        "wishes/1.json",
    ),
    *(
        "logs",
        "logs/a.out",
        "marks",
        "marks/x",
        "posts",
        "jobs",
        "jobs/1",
        "scripts",
        "scripts/a.sh",
        "tasks",
        "groups",
        "groups/1",
        "report.html",
        "notes",
    ),
)


@dataclass
class Trial:
    """One trial: what was laid, what was called, and what was wrong with that."""

    number: int
    laid: list = field(default_factory=list)
    called: list = field(default_factory=list)
    trouble: list = field(default_factory=list)

    def __str__(self):
        return "\n    ".join([f"trial {self.number}:", *self.laid, *map(str, self.called), *self.trouble])


class World:
    """The user's own things, a project that a group shares, and what the other lays there."""

    def __init__(self, accounts, draw):
        self.victim, self.stranger, self.place = accounts.victim, accounts.stranger, accounts.place
        self.draw = draw
        self.project = accounts.group_folder(
            f"project{draw.randrange(10**6)}", mode=draw.choice((0o2775, 0o3775, 0o2777, 0o3777))
        )
        self.open = self.place / "open"
        if not self.open.exists():
            self.open.mkdir()
        self.open.chmod(0o1777)
        self.acted = self.open / f"acted{draw.randrange(10**6)}"
        self.secret = f"secret-{secrets.token_hex(12)}"
        self.runs = self.project / "asa-runs"
        self._mutators: dict = {}
        self._prepare()
        self.others: list[Path] = []
        self.precious = self._state()

    def _prepare(self):
        """Make what is the user's own."""
        kind = self.draw.choice(("root's", "root's", "the user's", "nobody's"))
        if kind == "root's":
            self.runs.mkdir()
            os.chown(self.runs, 0, GROUP)
            self.runs.chmod(0o3775)
        elif kind == "the user's":
            self.victim.mkdir(self.runs, 0o755)
        self.run = None
        if self.runs.exists():
            self.run = self.victim.call(_create, self.runs, _plan("mine", "true", self.project), cwd=self.project)
        self.victim.write(self.project / "flow.toml", FLOW, 0o644)
        self.kept = self.victim.write(self.victim.home / f"kept{self.draw.randrange(10**6)}", f"{self.secret}\n", 0o600)
        self.visible = self.victim.write(self.victim.home / f"seen{self.draw.randrange(10**6)}", "of the user\n", 0o644)

    def _state(self):
        """Return what the user has that no command may change."""
        return {
            path: (path.read_bytes(), path.lstat().st_mode, path.lstat().st_ino)
            for path in (self.kept, self.visible, self.project / "flow.toml")
        }

    # ------------------------------------------------------------------ what is laid

    def lay(self):
        """Lay one thing; return what it is, in words."""
        draw = self.draw
        if not self.runs.exists():
            target = self.runs
        elif draw.random() < 0.25:
            name = draw.choice(NAMES).replace("VICTIM", str(self.victim.uid))
            target = self.project / name
        elif self.others and draw.random() < 0.6:
            target = draw.choice(self.others) / draw.choice(INSIDE)
        else:
            target = (
                self.runs
                / f"{draw.choice(('theirs', 'mine'))}-2099{draw.randrange(1000):04}-000000-{draw.randrange(16**4):04x}"
            )
        way = draw.choice(WAYS)
        with suppress(OSError):
            self.stranger.call(_away, target)
        try:
            self.stranger.call(way, target, self._matter(target), cwd="/")
        except (OSError, AsaError) as error:
            return f"({way.__name__[1:]} {target.name}: {error})"
        if target.parent == self.runs and target.is_dir():
            self.others.append(target)
        return f"{way.__name__[1:]} {target.relative_to(self.project)}"

    def _matter(self, target):
        """Return of what a plant is made: paths of the user's, a command, and content for a file of its name."""
        return {
            "kept": str(self.kept),
            "seen": str(self.visible),
            "run": str(self.run or self.victim.home),
            "home": str(self.victim.home),
            "command": f"id -u >>{self.acted}",
            "content": self._content(target),
            "plan": _plan("theirs", f"id -u >>{self.acted}", self.project),
            "draw": self.draw.randrange(1 << 30),
        }

    def _content(self, target):
        """Return hostile content: in a run that of a run, else of anything that is read; with commands in it."""
        draw = self.draw
        name = "run" if target.is_relative_to(self.runs) else draw.choice(list(READERS))
        if name not in self._mutators:
            self._mutators[name] = READERS[name].samples()
        samples = self._mutators[name]
        data = draw.choice(samples)
        if draw.random() < 0.7:
            data = Mutator(draw, READERS[name].words()).mutate(data, samples)
        if draw.random() < 0.5:
            data = re.sub(rb'"(?:work|true|sleep [0-9.]+)"', json.dumps(f"id -u >>{self.acted}").encode(), data)
        return data[: 1 << 20]

    def files(self):
        """Lay one file of each kind that is read, for commands that are given one; return their paths."""
        draw = self.draw
        found = []
        for name, reader in draw.sample(sorted(READERS.items()), 6):
            target = self.project / f"{name.replace(' ', '-')}-{draw.randrange(10**6)}{Path(reader.file).suffix}"
            way = draw.choice((_file, _file, _file, *WAYS))
            with suppress(OSError, AsaError):
                self.stranger.call(way, target, self._matter(target), cwd="/")
            found.append(target)
        return [*found, self.project / "flow.toml", self.project / "missing"]

    # ------------------------------------------------------------------ what is called

    def words(self, name, given, files):
        """Return a command's arguments."""
        draw = self.draw
        theirs = draw.choice([*(one.name for one in self.others), *map(str, self.others), "theirs", "missing"])
        run = self.run.name if self.run else "mine"
        out = draw.choice(("page.html", "out.csv", f"new{draw.randrange(10**6)}.html", "runs", str(self.runs / "x")))
        chosen = {RUN: run, THEIRS: theirs, OUT: out}
        return [*name.split(), *(str(draw.choice(files)) if word == FILE else chosen.get(word, word) for word in given)]

    def wrong(self, done):
        """Return what is wrong after a command."""
        said = done.stdout + done.stderr
        if done.returncode not in CODES:
            yield f"ended with {done.returncode}: {said[-1500:]}"
        if "Traceback (most" in said or "a bug in asa" in said:
            yield f"no words for it: {said[-2500:]}"
        if self.acted.exists():
            yield f"something of the other was run, as user {self.acted.read_text().split()}: {said[-500:]}"
            self.acted.unlink()
        now = {}
        with suppress(OSError):
            now = self._state()
        for path, was in self.precious.items():
            if now.get(path) != was:
                yield f"{path} was changed: {was} {now.get(path)}"
        for path in self.place.rglob("*"):
            with suppress(OSError):
                about = path.lstat()
                if (
                    not path.is_symlink()
                    and path.is_file()
                    and path != self.kept
                    and about.st_size < 1 << 22
                    and about.st_blocks
                ):
                    shows = (
                        about.st_uid == self.stranger.uid
                        or about.st_mode & 0o004
                        or (about.st_mode & 0o040 and about.st_gid == GROUP)
                    )
                    if shows and self.secret.encode() in path.read_bytes():
                        yield f"the other can read the user's secret in {path}"


def _plan(name, command, project):
    return RunPlan(
        id=secrets.token_hex(8),
        name=name,
        workflow="flow",
        stages=(Stage("a", cores=1, walltime_s=60, command=command),),
        strategy="per-stage",
        backend="local",
        settings={},
        capabilities=Capabilities("x", 1, 1, age_accrues=False),
        created_s=time.time() + 60.0 * (name == "theirs"),
        history=0,
        folder=str(project),
        notify="" if name == "mine" else command,
    )


def _create(runs, plan):
    path = RunFolder.create(runs, plan).path
    for part in ("logs", "marks"):
        safe.make_folder(path / part)
    with RunFolder(path).driven():
        pass
    (path / "journal.jsonl").touch(0o600)
    return path


# ---------------------------------------------------------------------- ways to lay something, as the other


def _away(target):
    """Take away what is there, as far as one may."""
    if target.is_dir() and not target.is_symlink():
        target.rename(target.with_name(f"{target.name}-{secrets.token_hex(4)}"))
    else:
        target.unlink(missing_ok=True)


def _file(target, matter):
    target.parent.mkdir(parents=True, exist_ok=True)
    content = matter["content"]
    if target.name == "run.json":
        content = content.partition(b"\n")[0]
    elif target.name == "journal.jsonl":
        content = content.partition(b"\n")[2]
    elif target.suffix == ".py":
        content = f"import os\nos.system({matter['command']!r})\n".encode()
    target.write_bytes(content)
    target.chmod((0o644, 0o666, 0o600, 0o777, 0o4755)[matter["draw"] % 5])


def _whole_run(target, matter):
    """A run as another version might have written it, with an odd journal, open to all or closed."""
    plan, _, journal = matter["content"].partition(b"\n")
    target.mkdir(parents=True)
    (target / "run.json").write_bytes(plan)
    (target / "journal.jsonl").write_bytes(journal)
    (target / "logs").mkdir()
    (target / "logs" / "a.out").write_bytes(b"\x1b[2J" + journal[:100])
    (target / "client.log").write_bytes(journal[:200])
    target.chmod((0o777, 0o755, 0o700, 0o711)[matter["draw"] % 4])


def _own_run(target, matter):
    """A valid run that would run his command as whoever goes on with it, with settings that are commands, too."""
    from dataclasses import replace

    plan = matter["plan"]
    if matter["draw"] % 2:
        plan = replace(
            plan,
            backend="slurm-cli",
            settings={"prefix": f"sh -c '{matter['command']}' --", "token_command": matter["command"]},
        )
    aside = target.with_name(f".{secrets.token_hex(4)}")
    aside.mkdir(parents=True)
    RunFolder.create(aside, plan).path.rename(target)
    for part in target.rglob("*"):
        part.chmod(0o777)
    target.chmod(0o777)


def _link(target, matter):
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(
        (
            matter["kept"],
            matter["seen"],
            matter["run"],
            matter["home"],
            "/dev/zero",
            "/dev/full",
            "/proc/self/mem",
            "/",
            target.name,
            "/nonexistent/x",
        )[matter["draw"] % 10]
    )


def _hard_link(target, matter):
    target.parent.mkdir(parents=True, exist_ok=True)
    os.link((matter["kept"], matter["seen"])[matter["draw"] % 2], target)


def _pipe(target, matter):
    target.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(target)
    target.chmod(0o666)


def _socket(target, matter):
    target.parent.mkdir(parents=True, exist_ok=True)
    os.chdir(target.parent)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(target.name)


def _folder(target, matter):
    target.mkdir(parents=True)
    (target / "x").write_text("x")
    target.chmod((0o777, 0o000, 0o755, 0o1777)[matter["draw"] % 4])


def _huge(target, matter):
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        file.write(b"{" * (matter["draw"] % 2))
        file.truncate(_HUGE)


def _deep(target, matter):
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes((b"[", b'{"a":')[matter["draw"] % 2] * 200_000)


WAYS: tuple[Callable, ...] = (
    _file,
    _file,
    _whole_run,
    _whole_run,
    _own_run,
    _link,
    _link,
    _link,
    _hard_link,
    _pipe,
    _socket,
    _folder,
    _huge,
    _deep,
)


# ---------------------------------------------------------------------- trials


def untried():
    """Return the commands that are in no table above, and those in a table that are none."""
    names = {" ".join(path) for path in cli_fuzz.commands()}
    return names ^ (TRIED.keys() | NOT_TRIED.keys())


def one_trial(accounts, seed, number, commands=5):
    """Lay some things, and call some commands."""
    draw = random.Random(f"{seed} {number} plants")
    world, trial = World(accounts, draw), Trial(number)
    trial.laid = [world.lay() for _ in range(draw.choice((1, 2, 4, 8)))]
    files = world.files()
    for _ in range(commands):
        name = draw.choice(sorted(TRIED))
        words = world.words(name, draw.choice(TRIED[name]), files)
        began_s = time.monotonic()
        done = world.victim.asa(
            *words, cwd=world.project, timeout=_TIMEOUT_S, env={"ASA_COMPILE": "no", "COLUMNS": "100"}
        )
        trial.called.append(f"asa {' '.join(words)} -> {done.returncode}, {time.monotonic() - began_s:.1f} s")
        if found := list(world.wrong(done)):
            trial.trouble += [f"{trial.called[-1]}: {one}" for one in found]
            break
    shutil.rmtree(world.project, ignore_errors=True)
    return trial


def run_plants(*, seed, count, first=0, keep=None):
    """Run trials; print those with trouble, and return the exit code."""
    if reason := why_not():
        sys.stdout.write(f"{reason}\n")
        return 2
    faults = called = 0
    for number in range(first, first + count):
        with two_accounts() as accounts:
            trial = one_trial(accounts, seed, number)
        called += len(trial.called)
        if trial.trouble:
            faults += 1
            sys.stdout.write(f"{trial}\n")
            sys.stdout.flush()
    sys.stdout.write(f"seed {seed}: {count} trials, {called} commands of {len(TRIED)}, {faults} with trouble\n")
    return 1 if faults else 0
