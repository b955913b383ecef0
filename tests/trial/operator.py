"""Runs a trial as a user would: starts the client, continues after it left, and retries a bounded number of times."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .draw import TOLD, Step, Trial
from .place import Cluster, Place

GOES_ON, RETRIES = 12, 3
IN_HOSTILITY = 40  # resumes, some of which a site refuses
_BY_TICKS = 3  # times as long takes a run that is only looked at: what is due, and each second look, waits for the next
_RELIEF_S = 30.0  # between an administrator's looks at the nodes
BOUND_S = 300.0
_LONG_GAP_S = 6.0  # longer ones are a fault's
LEFT = 130
_THERE = re.compile(r"runs on (\S+), and this is \S+: resume the run there")
_HAS_ENDED = re.compile(r" has ended(?: already)?: (\w+)")
_BEGINS = re.compile(r'"kind":\s*"(?:begun|retried)"')
_HELD = re.compile(r"is driven by process \d+ on (\S+) since")


@dataclass
class Client:
    """A client process, and how it ended."""

    words: tuple[str, ...]
    process: subprocess.Popen[bytes]
    out: Path
    began_s: float
    ended_s: float = 0.0
    signalled: tuple[str, float] = ("", 0.0)

    @property
    def code(self) -> int | None:
        code = self.process.poll()
        if code is not None and not self.ended_s:
            self.ended_s = time.time()
        return code

    @property
    def text(self) -> str:
        return self.out.read_text(errors="replace")


def toml(steps: tuple[Step, ...], payload: Path) -> str:
    """Write the workflow file, and the files that its stages need."""
    lines = ['name = "t"']
    first = {step.name: next(iter(step.parts)) for step in steps}
    for step in steps:
        lines += ["", "[[stage]]", f'name = "{step.name}"', *_asks(step), f"after = {json.dumps(step.after)}"]
        directly = "exec " * (step.how in TOLD)  # a shell between would die of the signal
        run = {part: f"{directly}/bin/bash {payload} {part} {{}} {how}" for part, how in step.parts.items()}
        needs = [f"{name}.out" for name in step.needs]
        if step.tasks:
            tasks = [text.format(s) for text, s in zip(run.values(), step.tasks, strict=True)]
            if step.tasks_by:
                lines.append(f'tasks_file = "{step.name}.tasks"')
                _give(payload, first.get(step.tasks_by, ""), f"{step.name}.tasks", "\n".join(tasks) + "\n")
                needs += [f"{step.name}.tasks"]
            else:
                lines.append(f"tasks = {json.dumps(tasks)}")
        elif step.script:
            lines.append(f'script = "{step.name}.sbatch"')
            _give(payload, "", f"{step.name}.sbatch", _script(step, run[step.name].format(step.seconds)))
        else:
            lines.append(f'command = "{run[step.name].format(step.seconds)}"')
        lines += [f"retries = {step.retries}"] * bool(step.retries) + ["local = true"] * step.local
        lines += [f'when = "{step.when}"'] * (step.when != "success")
        lines += [f"inputs = {json.dumps(needs)}"] * bool(needs)
        gives = [f"{step.name}.ou*"] * step.gives
        gives += [f"{one.name}.tasks" for one in steps if one.tasks_by == step.name]
        lines += [f"outputs = {json.dumps(gives)}"] * bool(gives)
        if step.gives:
            _give(payload, first[step.name], f"{step.name}.out", "something\n")
    return "\n".join(lines) + "\n"


def _asks(step: Step) -> list[str]:
    """Write what a step asks for: where it has several widths it is told to run the longer the fewer they are."""
    walltime, expects = "5min" if step.seconds > 100 else "2min", max(1, round(step.expects or step.seconds))
    if not step.widths:
        where = [f'partition = "{name}"' for name in step.partitions if name]
        return [*where, f"cores = {step.cores}", f'walltime = "{walltime}"', f'expected = "{expects}s"']
    lines = [f"cores = {json.dumps(step.widths)}"]
    lines += ["walltime = { " + ", ".join(f'{width} = "{walltime}"' for width in step.widths) + " }"]
    lines += [f"partition = {json.dumps(step.partitions)}"] * bool(step.partitions)
    if step.tasks:  # that is told by itself
        return [*lines, f'expected = "{min(expects, 6)}s"']
    runs = [f'{width} = "{min(max(1, round(expects * step.cores / width)), 110)}s"' for width in step.widths]
    return [*lines, "expected = { " + ", ".join(runs) + " }"]


def _give(payload: Path, by: str, name: str, text: str) -> None:
    """Write a file beside the payload, or let a part of a step put it there when it completes."""
    folder = payload.parent / "gives" / by if by else payload.parent
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def _script(step: Step, command: str) -> str:
    """Write a script that runs a command at its end: of one that is cut off nothing has run."""
    padding = "".join(f"# {number:075d}\n" for number in range(120))
    head = f"#SBATCH --job-name=mine\n#SBATCH -n {step.cores + 1}\n#SBATCH --time=1\n#SBATCH --mem=1\n{padding}"
    if step.script == "python":
        words = json.dumps(command.removeprefix("exec ").split())
        return f"#!/usr/bin/python3\n{head}import os\n\nwords = {words}\nos.execv(words[0], words)\n"
    directly = "exec " if step.script == "exec" and not command.startswith("exec ") else ""
    return f"#!/bin/bash\n{head}{directly}{command}\n"


@dataclass
class Operator:
    """Drives a trial's run to its end; faults reach the clients through it."""

    trial: Trial
    place: Place
    clients: list[Client] = field(default_factory=list)
    events: list[tuple[float, str, str]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    together: int = 1
    host: str = ""
    moves: str = ""
    gap_s: float = 1.0
    again_at: int | None = None
    retried: int = 0
    lost: bool = False  # the run's jobs, with all that their cluster knew
    out_of_memory: set[str] = field(default_factory=set)  # jobs that are told to have run out of it
    passes: list[dict[str, object]] = field(default_factory=list)
    faults_over: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    spoils: threading.Lock = field(default_factory=threading.Lock)  # held by what spoils answers

    # ------------------------------------------------------------------ for faults

    def note(self, what: str, more: object = "") -> None:
        self.events.append((time.time(), what, str(more)))

    @property
    def client(self) -> Client | None:
        """The latest client that is there."""
        return next((client for client in reversed(self.clients) if client.code is None), None)

    @property
    def run(self) -> Path | None:
        """The run's folder, once there is a run: a full disk may have let be a folder only."""
        return next((path.parent for path in sorted(self.place.disk.glob("runs/t-*/run.json"))), None)

    def command(self, *words: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run another command of asa."""
        done = subprocess.run(
            self._argv(*words), cwd=self.place.work, env=self._env(), capture_output=True, text=True, umask=0,
            timeout=timeout_s, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if words[0] != "status":
            self.note(f"asa {words[0]}", f"exit {done.returncode} {done.stdout[-300:]} {done.stderr[-300:]}")
        if "Traceback" in done.stderr:
            self.troubles.append(f"asa {words[0]} printed a traceback")
        return done

    # ------------------------------------------------------------------ the run

    def operate(self) -> None:
        """Begin the run, and go on with it until it has ended or the bounds are reached."""
        (self.place.work / "flow.toml").write_text(toml(self.trial.steps, self.place.work / "step.sh"))
        bound_s = BOUND_S * (1 + bool(self.trial.world)) + self._slow_s()
        ends_s = time.monotonic() + bound_s * (_BY_TICKS if self.trial.ticks_s else 1)
        self._start(
            "run",
            "flow.toml",
            *self.place.settings(),
            "--strategy",
            self.trial.strategy,
            "--bank",
            str(self.place.bank),
            *["--fail-fast"] * self.trial.fail_fast,
        )
        gone_on = 0
        while True:
            if not self._wait(ends_s):
                self.troubles.append("no end in time")
                break
            verdict = self._what_next()
            if verdict == "end":
                self._once_more()
                break
            if verdict == "retry" and self.retried >= self._max_retries():
                break
            if self.lost and self._is_stuck():  # as it is to be
                break
            bound = IN_HOSTILITY if self.trial.world else GOES_ON
            gone_on += verdict == "go on" and not self.trial.ticks_s  # looks are bounded by time
            if gone_on and verdict == "go on" and (gone_on > bound or self._is_stuck()):
                self.troubles.append(f"not ended after {gone_on} times asa resume")
                break
            self.retried += verdict == "retry"
            self._pause()
            self._go_on(retry=verdict == "retry")
        self.over.set()
        for client in self.clients:
            if client.code is None:
                client.process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    client.process.wait(20.0)
                client.process.kill()
                client.process.wait()

    def _pause(self) -> None:
        """Wait before the next client comes."""
        pause_s = self.gap_s
        if self.trial.ticks_s and self.gap_s <= _LONG_GAP_S:
            pause_s = random.Random(f"{self.trial.seed} {len(self.clients)}").uniform(*self.trial.ticks_s)
        time.sleep(pause_s)
        self.gap_s = min(self.gap_s, _LONG_GAP_S)

    def _once_more(self) -> None:
        """Run a stage of the completed run again, and all behind it: what `--from` is for."""
        if not self.trial.again_from or not self.faults_over.wait(60.0):
            return
        self.again_at, self._last_batch = len(self.place.marks), 1
        self._start("resume", str(self.run), "--from", self.trial.again_from)
        ends_s = time.monotonic() + BOUND_S / 2 * (_BY_TICKS if self.trial.ticks_s else 1) + self._slow_s()
        has_ended = self._wait(ends_s)
        while self.trial.ticks_s and has_ended and self._is_looked_at(self.clients[-1]):
            self._pause()
            self._go_on(retry=False)
            has_ended = self._wait(ends_s)
        if not has_ended:
            self.troubles.append("no end in time after --from")
        elif self.clients[-1].code or self.status().get("state") != "completed":
            self.troubles.append(f"--from {self.trial.again_from} ended with exit {self.clients[-1].code}")

    def _slow_s(self) -> float:
        """Return how long stages take that are slower than is told: a walltime may end them, retries repeat them."""
        times = {step.name: 1 + RETRIES if step.how == "fail:always" else 2 for step in self.trial.steps}
        return sum((times[step.name] + step.retries) * step.seconds for step in self.trial.steps if step.expects)

    def _is_stuck(self) -> bool:
        """Whether several clients in turn have given up, and nothing began or ended meanwhile."""
        last = self.passes[-4:]
        if self.trial.world and not self.faults_over.is_set() and not self.lost:
            return False
        gives_up = all(one["codes"] == [1] or (self.lost and 0 not in one["codes"]) for one in last)  # type: ignore[operator]
        return len(last) == 4 and len({one["marks"] for one in last}) == 1 and gives_up

    def _max_retries(self) -> int:
        """Bound what is done for a run that has failed: once is enough where all that can complete has."""
        doomed, _ = self.trial.doomed
        able = [step for step in self.trial.steps if step.name not in doomed and step.when != "failed"]
        parts = [part for step in able for part in step.parts]
        ends = [line.split() for line in self.place.marks.splitlines() if line.startswith("end ")]
        ended = {words[1] for words in ends if words[-1] == "0"}
        if doomed and ended >= set(parts):
            return 1
        # one after the other, in the worst case
        return RETRIES + sum(max(step.bad_times - step.retries, 0) for step in self.trial.steps)

    def status(self) -> dict[str, object]:
        """What `asa status` tells of the run."""
        if self.run is None:
            return {}
        done = self.command("status", str(self.run), "--output", "json")
        with suppress(ValueError):
            return dict(json.loads(done.stdout))
        return {"state": f"unreadable: exit {done.returncode}: {done.stderr[-200:]}"}

    def _what_next(self) -> str:
        latest = self.clients[-1]
        if self.run is None:  # it died before there was one
            return "go on"
        if self._is_looked_at(latest) and not latest.code:
            return "go on"
        status = self.status()
        state, codes = status.get("state"), [client.code for client in self.clients[-self._last_batch :]]
        self.passes.append(
            {
                "time_s": time.time(),
                "codes": codes,
                "status": status,
                "words": latest.words,
                "marks": len(self.place.marks),
            }
        )
        self.note("client ended", f"{codes} {state}")
        if (0 in codes and not self._is_looked_at(latest)) or state == "completed":
            return "end"
        if state in ("failed", "cancelled") and not self._is_looked_at(latest):
            self.faults_over.wait(40.0)
            return "retry"
        return "go on"

    def _is_looked_at(self, latest: Client) -> bool:
        """Whether a run that nothing but looks goes on with has not ended by what the latest client said."""
        return self.trial.ticks_s is not None and _HAS_ENDED.search(latest.text) is None

    _last_batch = 1

    def _go_on(self, *, retry: bool) -> None:
        run = self.run
        if run is None:
            self._start(*self.clients[0].words)
            return
        together, self.together = self.together, 1
        self._last_batch = together
        for _ in range(together):
            looks = self.trial.ticks_s is not None and not retry
            self._start("tick" if looks else "resume", str(run), *["--retry"] * retry)

    def _argv(self, *words: str) -> list[str]:
        asa = [self.place.asa, *words]
        if self.host:
            return ["unshare", "-u", "sh", "-c", f'hostname {self.host}; exec "$@"', "sh", *asa]
        return asa

    def _env(self) -> dict[str, str]:
        home = self.place.work / "home"
        home.mkdir(exist_ok=True)
        home.chmod(0o755)  # where nobody else puts another queue of this machine
        kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "PYTHONPATH", "ASA_TRUSTED")}
        return (
            kept
            | self.place.clock()
            | ({"TMPDIR": str(self.place.tmp)} if self.trial.site.small_tmp else {})
            | {
                "HOME": str(home),
                "ASA_RUNS": str(self.place.disk / "runs"),
                "ASA_BANK": str(self.place.bank),
            }
        )

    def _start(self, *words: str) -> None:
        begun = self._begun()
        self._choose_host()
        out = self.place.work / f"client{len(self.clients)}.out"
        with out.open("wb") as file:
            process = subprocess.Popen(
                self._argv(*words), cwd=self.place.work, env=self._env(), stdin=subprocess.DEVNULL, stdout=file,
                stderr=file, umask=0, start_new_session=True,
            )  # fmt: skip
        self.clients.append(Client(words, process, out, time.time()))
        self.note("client starts", f"{process.pid}: asa {' '.join(words)} {self.host}")
        if self.trial.ticks_s and words[0] != "tick":
            self._send_away(self.clients[-1], begun)

    def _begun(self) -> int:
        """Return how often the run has begun, or begun anew."""
        if self.run is None:
            return 0
        with suppress(OSError):
            return len(_BEGINS.findall((self.run / "journal.jsonl").read_text(errors="replace")))
        return 0

    def _send_away(self, client: Client, begun: int) -> None:
        """Let a client leave as soon as the run has begun: looks go on with it."""
        until_s = time.monotonic() + BOUND_S / 2
        while client.code is None and self._begun() <= begun and time.monotonic() < until_s:
            time.sleep(0.02)
        if client.code is None:
            client.signalled = ("SIGTERM", time.time())
            client.process.send_signal(signal.SIGTERM)

    def _choose_host(self) -> None:
        """Go on elsewhere where a fault wants that, once; and where asa says that only there it can.

        A client that was killed holds the run for minutes where it was, and a job of a machine's own queue is there.
        """
        elsewhere, self.moves = self.moves, ""
        text = self.clients[-1].text if self.clients else ""
        if (there := _THERE.search(text) or _HELD.search(text)) is not None:
            self.host = there[1] if there[1] != socket.gethostname() else ""
        else:
            self.host = elsewhere or self.host

    def _wait(self, ends_s: float) -> bool:
        batch = self.clients[-self._last_batch :]
        relieved_s = time.monotonic()
        while any(client.code is None for client in batch):
            if time.monotonic() > ends_s:
                return False
            if isinstance(self.place, Cluster) and time.monotonic() - relieved_s > _RELIEF_S:
                self.place.relieve()
                relieved_s = time.monotonic()
            for client in batch:
                name, since_s = client.signalled
                if not name and client.code is None and _THERE.search(client.text):
                    client.signalled = ("SIGINT", time.time())  # what a user does who reads it
                    client.process.send_signal(signal.SIGINT)
                if name and client.code is None and time.time() - since_s > 45.0:
                    self.troubles.append(f"still there 45 s after {name}")
                    client.process.kill()
            time.sleep(0.1)
        return True
