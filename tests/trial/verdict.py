"""Checks asa's promises after a trial, by the payloads' marks, Slurm's records, and asa's reports."""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from asa.core.typed import written
from asa.runner.entries import read_entries

from .draw import WORLD, Step, Trial
from .operator import Operator

# Around a kill: nobody knows of an end between a payload's last line and asa's note of it; and what ends before SIGKILL
# comes may have saved its state and left, since it was told to end.
BEFORE_S, AFTER_S = 0.3, 2.5
SLOW_S = 15.0  # in which asa hears of an end, and has cancelled what it is to cancel
FAST_S = 60.0  # in which a run that ends at its first failure has ended
PATIENCE_S = 60.0  # for which outputs that are not there are looked for, before that is a failure
LAUNCH_S = 15.0  # in which a busy node begins the script of a job that has its cores
APART_S = 6.0  # of the times that asa tells from those that payloads note, each told by another
_COMPLETED = "completed"
_OVER = {"given-up", "giving-up"}  # of entries in a journal
_KILLS = ("SIGKILL to payload", "scancel", "scontrol requeue", "is set down", "crashes", "is preempted", "the walltime")
_TELLS_LATE = {
    *("controller_away", "controller_killed", "controller_restart", "munge_away", "slurmd_away", "slurmd_restart"),
    *("node_down", "node_crash", "suspend", "disk_full", "tmp_full", "one_away", "one_fails"),
    *(kind for kinds in WORLD.values() for kind in kinds),
}  # where Slurm itself hears late of an end, or counts otherwise, or a job waits for room before its payload begins


@dataclass
class Execution:
    """One execution of a step's command."""

    part: str
    nonce: str
    job: str
    restarts: int
    at_line: int
    start_s: float
    node: str
    pid: str = ""
    end_s: float = 0.0
    code: str | None = None  # also told0: to end; lacks0: its outputs; oom0: as Slurm says
    ended_line: int = 0
    beside: list[str] = field(default_factory=list)
    finds: tuple[str, ...] = ()  # the stage and the cores of which it is told; then the tasks of which Slurm tells

    @property
    def well(self) -> bool:
        return self.code == "0"

    def __str__(self) -> str:
        ended = "no end" if self.code is None else f"exit {self.code} at {self.end_s:.2f}"
        return f"{self.part} in job {self.job} (restart {self.restarts}, {self.node}) at {self.start_s:.2f}, {ended}"


@dataclass
class Verdict:
    """The verdict on a trial: `broken` and `invalid` have reasons; `noted` has further remarks."""

    trial: Trial
    broken: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    fired: list[str] = field(default_factory=list)  # kinds of faults whose moment came
    took_s: float = 0.0
    outcome: str = ""

    @property
    def word(self) -> str:
        """Return the kind: a fault outside what is promised excuses only what it may have caused."""
        return "broken" if self.broken else "invalid" if self.invalid else "clean"


def read(marks: str) -> list[Execution]:
    """Read the marks of a trial, in the order in which they were appended."""
    found: dict[str, Execution] = {}
    for number, line in enumerate(marks.splitlines()):
        match line.split():
            case ["start", part, nonce, job, restarts, at, node, pid, _]:
                found[nonce] = Execution(part, nonce, job, int(restarts), number, float(at), node, pid)
            case ["finds", _, nonce, *finds] if nonce in found:
                found[nonce].finds = tuple(finds)
            case ["beside", _, nonce, other] if nonce in found:
                found[nonce].beside.append(other)
            case ["end", _, nonce, at, code] if nonce in found:
                one = found[nonce]
                one.end_s, one.code, one.ended_line = float(at), code, number
    return list(found.values())


def judge(operator: Operator, marks: str, left: list[str]) -> Verdict:
    """Judge a trial that is over."""
    verdict = Verdict(operator.trial, broken=operator.place.touched())
    void = [more for _, what, more in operator.events if what == "void"]
    verdict.fired = [one.kind for one in operator.trial.faults if not any(more.startswith(str(one)) for more in void)]
    verdict.noted += [f"job {job} was submitted to another cluster" for job in operator.place.astray()]
    _Judge(operator, verdict, read(marks[: operator.again_at])).judge(left)
    if operator.again_at is not None:
        _Judge(operator, verdict, read(marks[operator.again_at :])).judge_again()
    return verdict


def judge_once(operator: Operator, marks: str) -> Verdict:
    """Judge only that nothing ran again after it had completed, and nothing beside itself."""
    verdict = Verdict(operator.trial)
    judged = _Judge(operator, verdict, read(marks))
    for part in judged.of:
        judged.once(part)
    return verdict


class _Judge:
    def __init__(self, operator: Operator, verdict: Verdict, ran: list[Execution]) -> None:
        self.operator, self.trial, self.verdict, self.ran = operator, operator.trial, verdict, ran
        self.of: dict[str, list[Execution]] = defaultdict(list)
        for one in ran:
            self.of[one.part].append(one)
        self.steps = {step.name: step for step in self.trial.steps}
        for one in ran:
            if one.well and one.job in operator.out_of_memory:
                one.code = "oom0"

    def judge(self, left: list[str]) -> None:
        for step in self.trial.steps:
            for part in step.parts:
                self.once(part)
            self._order(step)
            self._needless(step)
        if self.operator.lost:
            self._given_up()
        else:
            self._completion()
            self._outcome()
            self._first_pass()
            self._fail_fast()
        self._retries()
        self._times()
        self._surroundings()
        self.verdict.broken += [f"left in the queue: {' '.join(left)}"] * bool(left)
        self.verdict.broken += self.operator.troubles
        self.verdict.broken += [
            f"{' '.join(client.words[:2])}: a traceback"
            for client in self.operator.clients
            if "Traceback" in client.text
        ]

    def judge_again(self) -> None:
        """Judge what ran after `--from`: that stage and all behind it, once, and nothing else."""
        rerun = self.trial.rerun
        for step in self.trial.steps:
            for part in step.parts:
                self.once(part)
                if step.when == "success" and (step.name in rerun) != any(one.well for one in self.of[part]):
                    ran = f"{len(self.of[part])} times"
                    self.verdict.broken.append(f"{part} ran {ran} after --from {self.trial.again_from}")

    # ------------------------------------------------------------------ once

    def once(self, part: str) -> None:
        by_nonce = {one.nonce: one for one in self.of[part]}
        for before, after in pairwise(sorted(self.of[part], key=lambda one: one.at_line)):
            well = [one for one in self.of[part] if one.well and one.ended_line < after.at_line]
            if well:
                self._again(well[0], after)
            elif after.beside:
                self._beside(by_nonce.get(after.beside[-1], before), after)

    def _again(self, well: Execution, after: Execution) -> None:
        text = f"ran again after it completed: {well}; then {after}"
        if self._during(well.end_s, "the disk is full", early_s=0.5) and self._told_unwritten():
            self.verdict.invalid.append(f"no mark could be written on a full disk, as the job says; {text}")
        elif self._hit(well):
            self.verdict.invalid.append(f"killed in the moment of its end; {text}")
        else:
            self.verdict.broken.append(text)

    def _beside(self, other: Execution, after: Execution) -> None:
        text = f"two at once: {other}; beside it {after}"
        if any(
            what == "fired" and other.node in more and when_s < after.start_s for when_s, what, more in self._fired()
        ):
            self.verdict.noted.append(f"Slurm itself began a second instance: {text}")
        else:
            self.verdict.broken.append(text)

    def _told_unwritten(self) -> bool:
        logs = self.operator.run.glob("logs/*") if self.operator.run is not None else ()
        return any("completed, but that cannot be written" in log.read_text(errors="replace") for log in logs)

    def _hit(self, one: Execution, before_s: float = BEFORE_S) -> bool:
        """Whether something may have killed its job, or it, in the moment in which it ended."""
        for when_s, _, more in self._fired():
            words = more.replace(",", " ").replace("@", " ").split()  # a job may be named with its cluster
            words += [number for word in words if (number := self.operator.place.numbers.get(word)) is not None]
            hits = one.pid in words if "SIGKILL to payload" in more else one.job in words
            if (
                -before_s < one.end_s - when_s < AFTER_S + self.trial.site.kill_wait_s
                and hits
                and any(word in more for word in _KILLS)
            ):
                return True
        return self._cancelled(one) or self._during(one.end_s, "the controller forgets everything", early_s=AFTER_S)

    def _cancelled(self, one: Execution) -> bool:
        """Whether asa itself was cancelling jobs at its end: its user wanted that, or a failure that ends the run."""
        if self._during(one.end_s, "asa cancel", early_s=BEFORE_S):
            return True
        within_s = SLOW_S + self.trial.late_s
        return self.trial.fail_fast and any(
            other.code not in (None, "0") and 0 <= one.end_s - other.end_s < within_s for other in self.ran
        )

    def _fired(self) -> Iterator[tuple[float, str, str]]:
        return (event for event in self.operator.events if event[1] == "fired")

    def _during(self, when_s: float, name: str, *, early_s: float) -> bool:
        times = [
            (at_s, what) for at_s, what, more in self.operator.events if name in more and what in ("fired", "mended")
        ]
        times.append((float("inf"), "mended"))
        return any(
            one == "fired" and begins_s - early_s <= when_s <= ends_s + early_s
            for (begins_s, one), (ends_s, _) in pairwise(times)
        )

    # ------------------------------------------------------------------ order and ends

    def _order(self, step: Step) -> None:
        if step.when != "success":
            return
        for part in step.parts:
            for one in self.of[part]:
                for before in step.after:
                    for needed in self.steps[before].parts:
                        if not any(other.well and other.ended_line < one.at_line for other in self.of[needed]):
                            self.verdict.broken.append(f"began before {needed} had completed: {one}")

    def _needless(self, step: Step) -> None:
        """What runs where something has failed does not run where nothing has."""
        if step.when == "failed" and self.trial.gentle and not any(one.fails for one in self.trial.steps):
            self.verdict.broken += [f"{one}, though nothing failed" for one in self.of[step.name]]

    def _well(self, step: Step) -> bool:
        return all(any(one.well for one in self.of[part]) for part in step.parts)

    def _last_end_s(self, step: Step) -> float:
        return max((one.end_s or 0.0 for part in step.parts for one in self.of[part]), default=0.0)

    def _completion(self) -> None:
        doomed, behind = self.trial.doomed
        ended_early = self.trial.fail_fast and bool(doomed)
        for step in self.trial.steps:
            if step.name in behind and any(self.of[part] for part in step.parts):
                self.verdict.broken.append(f"{step.name} began, which follows a stage that always fails")
            needed = step.when != "failed" or set(step.after) & doomed
            if step.name not in doomed and needed and not ended_early and not self._well(step):
                self.verdict.broken.append(f"{step.name} never completed, with {self.operator.retried} times --retry")

    def _outcome(self) -> None:
        everything = all(self._well(step) for step in self.trial.steps if step.when != "failed")
        for one in self.operator.passes:
            completed = 0 in one["codes"] or one["status"].get("state") == _COMPLETED  # type: ignore[operator,attr-defined]
            if completed != (everything and one is self.operator.passes[-1]):
                if completed:
                    self.verdict.broken.append(f"told completed, but not all stages completed: {one['codes']}")
                elif one is self.operator.passes[-1]:
                    state = one["status"].get("state")  # type: ignore[attr-defined]
                    self.verdict.broken.append(f"all stages completed, but it was told {state}: {one['codes']}")
        if not self.operator.passes:
            return
        status = self.operator.passes[-1]["status"]
        self.verdict.outcome = str(status.get("state"))  # type: ignore[attr-defined]
        for stage in status.get("stages", ()):  # type: ignore[attr-defined]
            step = self.steps[stage["stage"]]
            if (stage["state"] == "done") != self._well(step):
                if stage["state"] == "cancelled" and self._last_end_s(step) > (stage["ended_s"] or 0.0) - AFTER_S:
                    self.verdict.invalid.append(f"{step.name} was cancelled, as the run had failed, just as it ended")
                    continue
                self.verdict.broken.append(f"status has {step.name} as {stage['state']!r}; its marks say otherwise")

    def _given_up(self) -> None:
        """Where the cluster has forgotten the run, it may go on, or end with an error, but tell no lie."""
        if not self.operator.passes:
            return
        last, client = self.operator.passes[-1], self.operator.clients[-1]
        self.verdict.outcome = f"lost, {last['status'].get('state')}"  # type: ignore[attr-defined]
        everything = all(self._well(step) for step in self.trial.steps if step.when != "failed")
        if 0 in last["codes"] and not everything:  # type: ignore[operator]
            self.verdict.broken.append("told completed, but not all stages completed, whose cluster had forgotten them")
        if client.code not in (0, None) and not client.text.strip():
            self.verdict.broken.append(f"the last client ended with {client.code} and said nothing")

    # ------------------------------------------------------------------ failures

    def _first_pass(self) -> None:
        """Where nothing but a stage's own failure ended the run, what does not depend on it has run."""
        ended = next(
            (one for one in self.operator.passes if one["status"].get("state") in ("failed", "cancelled")), None
        )  # type: ignore[attr-defined]
        if ended is None or not self.trial.gentle or self.operator.place.astray():
            return  # a stage that is sent to another cluster may end there as it will
        then = {step.name for step in self.trial.steps if step.fails}
        if self.trial.world:  # whose retries are for what they do themselves, and for nothing else
            then -= {step.name for step in self.trial.steps if step.bad_times and step.bad_times <= step.retries}
        if not then:
            reason = ended["status"].get("reason")  # type: ignore[attr-defined]
            self.verdict.broken.append(f"the run failed, and no stage of it did: {reason}")
            return
        if self.trial.fail_fast:
            return
        for step in self.trial.steps:
            if step.when == "failed" or (step.when == "success" and set(step.after) & then):
                then.add(step.name)
        before = int(ended["marks"])  # type: ignore[call-overload]
        ran = read(self.operator.place.marks[:before])
        for step in self.trial.steps:
            missing = [part for part in step.parts if not any(one.well and one.part == part for one in ran)]
            if missing and step.name not in then:
                self.verdict.broken.append(
                    f"{missing[0]} had not run when the run failed, and depends on nothing that did"
                )

    def _retries(self) -> None:
        """A stage that fails is tried as often as it asks for, and no more."""
        quiet = {"kill", "term", "int", "hup", "away", "two_resumes", "other_host", "bank_readonly", "hold"}
        if not all(fault.kind in quiet for fault in self.trial.faults):
            return
        for step in self.trial.steps:
            for part in step.parts:
                failed = [one for one in self.of[part] if one.code and not one.well]
                most = (1 + step.retries) * (1 + self.operator.retried)
                if len(failed) > most:
                    self.verdict.broken.append(f"{part} was tried {len(failed)} times, with {step.retries} retries")

    def _fail_fast(self) -> None:
        """A run that is to end at its first failure does so, and nothing begins any more."""
        quiet = {"time_limit", "hold", "bank_readonly"}
        ended = next((one for one in self.operator.passes if one["status"].get("state") == "failed"), None)  # type: ignore[attr-defined]
        if not self.trial.fail_fast or ended is None or not all(one.kind in quiet for one in self.trial.faults):
            return
        ran = read(self.operator.place.marks[: int(ended["marks"])])  # type: ignore[call-overload]
        for step in self.trial.steps:
            failed = [one for one in ran if one.part in step.parts and one.code and not one.well]
            if step.when == "failed":
                self.verdict.broken += [f"{one}, with --fail-fast" for one in ran if one.part == step.name]
            if not step.fails or len(failed) <= step.retries:
                continue
            last = failed[step.retries]
            since_s = last.end_s + (PATIENCE_S if last.code == "lacks0" else 0.0)
            late = [one for one in ran if one.start_s > since_s + SLOW_S + self.trial.late_s]
            self.verdict.broken += [f"began {one.start_s - since_s:.0f} s after a failure: {one}" for one in late]
            if (after_s := float(ended["time_s"]) - since_s) > FAST_S + self.trial.late_s:  # type: ignore[arg-type]
                self.verdict.broken.append(f"the run ended {after_s:.0f} s after its first failure, with --fail-fast")

    # ------------------------------------------------------------------ what is told

    def _times(self) -> None:
        """Of a stage that ran once, asa tells when, about as its payload does."""
        slow = _TELLS_LATE & {fault.kind for fault in self.trial.faults}
        if self.trial.site.clock_off_s or not self.operator.passes or slow:
            return
        for stage in self.operator.passes[-1]["status"].get("stages", ()):  # type: ignore[attr-defined]
            ran = [one for part in self.steps[stage["stage"]].parts for one in self.of[part]]
            if stage["state"] != "done" or len(ran) != len(self.steps[stage["stage"]].parts):
                continue
            if len({(one.job, one.restarts) for one in ran}) > 1 or any(self._hit(one, APART_S) for one in ran):
                continue  # some of its tasks ran in a job before, or all did: asa tells when the last job found that
            begins_s, ends_s = min(one.start_s for one in ran), max(one.end_s for one in ran)
            told = [stage[name] for name in ("submit_s", "began_s", "ended_s")]
            apart_s = [float("nan") if one is None else one - begins_s for one in told]
            text = "submitted {:+.1f}, began {:+.1f}, ended {:+.1f}".format(*apart_s)
            text = f"{stage['stage']} is told: {text} s; its payload ran from 0 to {ends_s - begins_s:+.1f} s"
            step = self.steps[stage["stage"]]
            waits_s = max((self.steps[name].late_s for name in step.needs), default=0.0)  # in its job, for its inputs
            if None in told:
                self.verdict.broken.append(f"a time is not told: {text}")
            elif not -LAUNCH_S - waits_s <= told[1] - begins_s <= APART_S or abs(told[2] - ends_s) > APART_S:
                self.verdict.broken.append(f"times are apart: {text}")
            elif not told[0] - 1.5 <= told[1] <= told[2]:
                self.verdict.broken.append(f"times in no order: {text}")

        metrics = self.operator.passes[-1]["status"].get("metrics") or {}  # type: ignore[attr-defined]
        if (idle := metrics.get("overhead_core_hours") or 0.0) < -1e-4:
            self.verdict.broken.append(f"{idle:.4f} core-hours are told to have idled")

    def _surroundings(self) -> None:
        """A payload finds the name of its stage, and its cores: those that were asked for, where it has several widths.

        Its job has no fewer; of one that grows they come later, and of a list Slurm counts those of each launch.
        """
        journal = list(self._journal())
        asked = _cores_asked(journal)
        for one in self.ran:
            step = self.steps[one.part.partition(".")[0]]
            able = step.widths if self.trial.strategy.startswith("asa-plan") else ()
            may = asked.get((one.job, step.name)) or set(able) or {step.cores}
            if one.finds and (one.finds[0] != step.name or one.finds[1] not in map(str, may)):
                cores = " or ".join(map(str, sorted(may)))
                self.verdict.broken.append(f"{one} found {' '.join(one.finds)}, and is to have {cores} cores")
            elif not may <= {step.cores, *able}:
                self.verdict.broken.append(f"{step.name} was asked for with {may} cores, which is none of its widths")
            elif able and not step.tasks and "grow" not in self.trial.strategy and _has_fewer(one.finds):
                self.verdict.broken.append(f"{one} is told {one.finds[1]} cores, and its job has {one.finds[2]}")
        self.verdict.broken += reshaped(journal)

    def _journal(self) -> Iterator[dict[str, Any]]:
        run = self.operator.run
        path = run / "journal.jsonl" if run is not None else None
        yield from entries_in(path.read_bytes()) if path is not None and path.exists() else ()


def entries_in(journal: bytes) -> Iterator[dict[str, Any]]:
    """Read the entries of a journal, each with all of its fields."""
    for line in journal.splitlines():
        with suppress(ValueError):
            yield from (json.loads(written(entry)) for entry in read_entries(line))


def _has_fewer(finds: tuple[str, ...]) -> bool:
    return finds[2:] != () and finds[2].isdigit() and int(finds[1]) > int(finds[2])


def _cores_asked(journal: list[dict[str, Any]]) -> dict[tuple[str, str], set[int]]:
    """Tell the cores of which each stage is to be told, by the job that runs it: of one that shares a job its width."""
    widths: dict[str, int] = {}
    specs: dict[str, tuple[dict[str, Any], dict[str, int]]] = {}  # what was asked of the batch system last, by token
    asked: dict[tuple[str, str], set[int]] = defaultdict(set)
    for entry in journal:
        if entry["kind"] == "shaped":
            widths[entry["stage"]] = entry["choice"]["shape"]["width"]
        elif entry["kind"] == "intended" and not entry["planned"]["joins"]:
            specs[entry["token"]] = entry, dict(widths)
        elif entry["kind"] == "accepted" and entry["token"] in specs:
            intended, chosen = specs[entry["token"]]
            names = intended["planned"]["stages"]
            cores = chosen if len(names) > 1 else {names[0]: intended["spec"]["cores"]}
            for name in (name for name in names if name in cores):
                asked[entry["status"]["job_id"], name].add(cores[name])
    return asked


def reshaped(journal: list[dict[str, Any]]) -> Iterator[str]:
    """Find what was given another shape while a job of it was there."""
    stages: dict[str, list[str]] = {}  # by token
    tokens: dict[str, str] = {}  # by job
    live: dict[str, str] = {}  # job by stage
    for entry in journal:
        kind = entry["kind"]
        if kind == "intended" and not entry["planned"]["joins"]:
            stages[entry["token"]] = entry["planned"]["stages"]
        elif kind == "accepted" and entry["token"] in stages:
            tokens[job := entry["status"]["job_id"]] = entry["token"]
            live |= dict.fromkeys(stages[entry["token"]], job)
        elif kind == "shaped" and entry["stage"] in live:
            yield f"{entry['stage']} was given another shape, while job {live[entry['stage']]} of it was there"
        over = entry.get("job_id") if kind in _OVER else None
        if kind == "told" and entry["status"]["state"] not in {"pending", "running"}:
            over = entry["status"]["job_id"]
        if over in tokens:
            live = {stage: job for stage, job in live.items() if job != over}
        if kind == "retried":
            live.clear()
