"""Answers a driver's calls of Slurm's programs: sbatch, squeue, sacct, scontrol, scancel and others."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

from asa.core.reading import run_command
from asa.errors import InputError
from asa.importers.scripts import rows_of
from asa.requests.directives import Directive, by_name
from asa.requests.options import KNOWN
from asa.requests.variables import with_variables

from .own_job import options_of_text, variables_of
from .processes import Process
from .program_options import SACCT, SCANCEL, SQUEUE, operands, options_given
from .queue import RecordedQueue
from .submissions import RefusedBySbatchError, Submission, check_options, check_text, options_in, options_of, waits_for

Answer = dict[str, Any]
"""What a stand-in prints and returns: ``output``, ``error``, ``code``."""
Talk = Callable[[Answer], dict[str, Any]]
"""Asks a stand-in for a file that only it can read, and returns the content."""

_TELL_VERSION = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "srun", "salloc", "sbcast")
_VERSION = "24.05.0"  # the answer without an installed Slurm
REAL_PROGRAMS = ("sinfo", "sacctmgr", "sshare", "sprio", "sreport", "sdiag")
"""Programs that describe the site: the installed ones answer."""
ELSEWHERE_PROGRAMS = ("ssh",)
"""Programs that run commands on other machines; a driver without a network reaches none."""
OWN_PROGRAMS = (
    "sbatch", "squeue", "sacct", "scontrol", "scancel", "srun", "salloc", "sattach", "sbcast", "strigger", "sstat",
)  # fmt: skip
OWN_JOB = "own-job"
"""The call with which a script of a session asks, as it begins, for its job's variables."""
_MAX_WIDTH = 1000  # of a column
_SECONDS_OF_A_REAL_PROGRAM = 30.0
_WHEN = "2026-01-01T00:00:00"


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of a program, as its stand-in reports it."""

    program: str
    arguments: list[str]
    folder: str
    environment: Mapping[str, str]
    lineage: tuple[Process, ...] = ()  # the calling process and its ancestors

    @property
    def words(self) -> str:
        """The command line, as a user would type it."""
        return f"{self.program} {' '.join(self.arguments)}"[:100]


class Programs:
    """Answers calls of Slurm's programs from the recording."""

    def __init__(self, queue: RecordedQueue, search: str, *, is_session: bool = False) -> None:
        self.refused: list[tuple[str, str]] = []  # refused calls of sbatch, each with the reason
        self.remarks: dict[str, None] = {}  # notes for the user, a sentence each
        self._queue = queue
        self._is_session = is_session
        self._search = search  # search path of the installed programs
        self._programs: dict[str, Callable[[Asked], Answer]] = {
            "squeue": self._squeue, "sacct": self._sacct, "scontrol": self._scontrol, "scancel": self._scancel,
            "srun": self._srun, "sbcast": self._srun, "salloc": self._salloc, "ssh": self._ssh,
            **dict.fromkeys(_NOTHING_RUNS, _refuse), **dict.fromkeys(REAL_PROGRAMS, self._really),
        }  # fmt: skip

    def answer(self, asked: Asked, talk: Talk) -> Answer:
        """Answer a call."""
        try:
            if asked.program in _TELL_VERSION and asked.arguments[:1] in (["-V"], ["--version"]):
                return self._version(asked)
            if asked.program == "sbatch":
                return self._sbatch(asked, talk)
            if asked.program == OWN_JOB:
                return self._own_job(asked, talk)
            return self._programs[asked.program](asked)
        except RefusedBySbatchError as error:
            if asked.program == "sbatch":
                self.refused.append((f"sbatch {' '.join(asked.arguments)}", " ".join(error.args)))
            return _failed(*(f"{asked.program}: error: {line}" for line in error.args))
        except (InputError, ValueError, KeyError, TypeError) as error:
            # an unexpected error: the driver sees a failure, and the user is told
            why = " ".join(map(str, error.args))
            self.remarks.setdefault(f"a call that a recording does not understand failed: {asked.words} ({why[:100]})")
            return _failed(f"{asked.program}: error: a recording does not understand this call")

    # ------------------------------------------------------------------ sbatch

    def _own_job(self, asked: Asked, talk: Talk) -> Answer:
        """If bash in a session runs a batch script, record it as a job, and return that job's variables."""
        is_script = self._is_session and len(asked.lineage) > 2  # the call, the script and the shell
        if not is_script or self._queue.own_job_of(asked.lineage):
            return _said("")
        words, folder = asked.lineage[-2].words_and_folder()
        for index, word in enumerate(words[:3]):
            path = Path(os.path.normpath(folder / word))
            text = str(talk({"script": str(path)}).get("text", ""))
            if options := options_of_text(text, path):
                job = Submission(
                    self._queue.next_number, tuple(words[index:]), str(folder), asked.environment, by_name(options),
                    str(path), text, is_driver=True,
                )  # fmt: skip
                self._queue.take_own(job, asked.lineage)
                values = variables_of(job.number, options, folder, path)
                return _said("".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items()))
        return _said("")

    def _sbatch(self, asked: Asked, talk: Talk) -> Answer:
        if self._is_session and not self._queue.own_job_of(asked.lineage) and self._own_job(asked, talk)["output"]:
            note = "is a batch job itself, and did not know its own number, as only bash can be given it"
            self.remarks.setdefault(f"{self._queue.own_jobs[-1].where}: {note}")
        given, rest = options_of(asked.arguments)
        if {"help", "usage"} & given.keys() or asked.arguments[:1] == ["-h"]:
            return _said("Usage: sbatch script\n")
        path, text = "", ""
        if "wrap" in given:
            if rest:
                raise RefusedBySbatchError("Script arguments not permitted with --wrap option")
        elif rest:
            read = talk({"script": rest[0]})
            if "trouble" in read:
                raise RefusedBySbatchError(f"Unable to open file {rest[0]}")
            path, text = str(read["path"]), str(read["text"])
            check_text(text)
        else:
            text = str(talk({"input": True})["text"])
            if not text and (odd := [option for name, option in given.items() if name not in KNOWN and option.value]):
                remark = (
                    f"--{odd[0].name} is no option of plain Slurm, and was taken to have the value {odd[0].value!r}"
                )
                raise RefusedBySbatchError(f"{remark}: there is no script. Write --{odd[0].name}=VALUE")
            check_text(text)
        name = Path(path).name or "standard input"
        options = with_variables(options_in(text, name), asked.environment, given, "sbatch")
        check_options(options)
        if "test-only" in options:
            return {
                "error": f"sbatch: Job {self._queue.next_number} to start at {_WHEN} using 1 processors\n",
                "code": 0,
            }
        waits_for(options["dependency"].value or "" if "dependency" in options else "")
        job = Submission(
            self._queue.next_number, tuple(asked.arguments), asked.folder, asked.environment, options, path, text,
            tuple(rest[1:]), is_held="hold" in options, submitted_by=self._queue.own_job_of(asked.lineage),
        )  # fmt: skip
        self._queue.take(job, asked.lineage)
        answer = _said("" if "quiet" in options else f"Submitted batch job {job.number}\n")
        if "parsable" in options:
            answer = _said(f"{job.number}\n")
        return answer | ({"awaits": job.number} if "wait" in options else {})

    def end(self, number: int, lineage: tuple[Process, ...]) -> None:
        """End a job, once the submissions that the driver makes at the same time are known."""
        self._queue.end(number, lineage)

    # ------------------------------------------------------------------ queries about jobs

    def _squeue(self, asked: Asked) -> Answer:
        words = _with_usual(options_given(asked.arguments, SQUEUE), asked.environment)
        chosen = self._queue.chosen(words)
        self._queue.look(chosen if words.get("jobs") else ())
        self._queue.see_ended(chosen, "always")
        states = _states(words)
        shown = [
            job for job in chosen
            if (not self._queue.has_ended(job) if not states else "ALL" in states or self._queue.state(job) in states)
        ]  # fmt: skip
        if {"json", "yaml"} & words.keys():
            self.remarks.setdefault(f"the driver reads what a recording does not have: {asked.words}")
            raise RefusedBySbatchError("a recording answers squeue without --json and --yaml only")
        rows = [self._squeue_row(job, words, row) for job in shown for row in self._rows(job)]
        heading = [] if "noheader" in words else [self._squeue_row(None, words)]
        return _said("".join(f"{row}\n" for row in heading + rows))

    def _rows(self, job: Submission) -> list[str]:
        """Return the rows that show a job; elements that are pending together have one row."""
        indices = job.value("array")
        if self._queue.state(job) == "PENDING":
            return [f"{job.number}_[{indices}]" if indices else str(job.number)]
        return rows_of(job.number, indices)

    def _squeue_row(self, job: Submission | None, words: Mapping[str, str | None], row: str = "") -> str:
        if long := words.get("Format"):
            fields = []
            for field in long.split(","):
                name, _, how = field.strip().partition(":")
                text = name.upper() if job is None else self._field(job, name.lower(), row)
                size = _width((re.search(r"\d+", how) or ["20"])[0])
                fields.append(text[:size].rjust(size) if how.startswith(".") else text[:size].ljust(size))
            return "".join(fields).rstrip()
        form = words.get("format") or (_LONG_FORM if "long" in words else _USUAL_FORM)

        def filled(code: re.Match[str]) -> str:
            name = _OF_CODE.get(code["letter"], "")
            text = _HEADINGS.get(name, name.upper()) if job is None else self._field(job, name, row)
            size = _width(code["width"])
            text = text[:size] if size else text
            return text.rjust(size) if code["right"] else text.ljust(size)

        return re.sub(r"%(?P<right>\.?)-?(?P<width>\d*)(?P<letter>[a-zA-Z])", filled, form)

    def _field(self, job: Submission, name: str, row: str = "") -> str:
        """Return the text of a job's column."""
        state = self._queue.state(job)
        indices = job.value("array")
        is_waiting = state == "PENDING" and bool(job.value("dependency"))
        texts = {
            "jobid": str(job.number), "jobidraw": str(job.number), "arrayjobid": str(job.number),
            "jobarrayid": row or str(job.number),
            "arraytaskid": row.partition("_")[2].strip("[]") or indices or "N/A",
            "name": job.name, "jobname": job.name, "state": state,
            "statecompact": _SHORT[state],
            "username": self._queue.user, "user": self._queue.user, "userid": str(os.getuid()),
            "partition": job.value("partition", "batch"), "timeused": "0:00", "elapsed": "00:00:00",
            "timelimit": job.value("time", "1:00:00"), "timelimitraw": "60", "timeleft": "1:00:00",
            "numnodes": job.value("nodes", "1"), "nnodes": job.value("nodes", "1"), "alloccpus": "1", "ncpus": "1",
            "numcpus": "1", "reason": "Dependency" if is_waiting else "None", "account": job.value("account", "(null)"),
            "reasonlist": "(Dependency)" if is_waiting else "(None)", "nodelist": "" if state == "PENDING" else "node1",
            "dependency": job.value("dependency", "(null)"), "workdir": job.folder, "command": job.path,
            "exitcode": "0:0", "derivedexitcode": "0:0", "submit": _WHEN, "submittime": _WHEN, "start": _WHEN,
            "starttime": _WHEN, "end": _WHEN, "endtime": _WHEN, "qos": job.value("qos", "normal"), "priority": "1",
            "comment": job.value("comment"), "maxrss": "", "reqmem": job.value("mem"), "cluster": "cluster",
        }  # fmt: skip
        if name not in texts:
            self.remarks.setdefault(f"the driver asks for {name!r} of a job, of which a recording knows nothing")
        return texts.get(name, "")

    def _sacct(self, asked: Asked) -> Answer:
        words = options_given(asked.arguments, SACCT)
        if {"json", "yaml"} & words.keys():
            self.remarks.setdefault(f"the driver reads what a recording does not have: {asked.words}")
            raise RefusedBySbatchError("a recording answers sacct without --json and --yaml only")
        numbers = {int(number) for number in re.findall(r"\d+", words.get("jobs") or "")}
        if numbers and not any(self._queue.job(number) for number in numbers):
            return self._really(asked)
        chosen = self._queue.chosen(words)
        self._queue.look(chosen if words.get("jobs") else ())
        self._queue.see_ended(chosen, "success")
        states = _states(words)
        shown = [job for job in chosen if not states or self._queue.state(job) in states]
        usual = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
        form = words.get("format") or asked.environment.get("SACCT_FORMAT")
        form = form or ("JobID,State,ExitCode" if "brief" in words else usual)
        fields = [field.partition("%") for field in form.split(",") if field]
        rows = [] if "noheader" in words else [[name for name, _, _ in fields]]
        if rows and not {"parsable", "parsable2"} & words.keys():
            rows.append(["-" * abs(_width(width or "10")) for _, _, width in fields])
        for job, row in [(shown_job, row) for shown_job in shown for row in self._rows(shown_job)]:
            rows.append(
                [row if name.lower() == "jobid" else self._field(job, name.lower(), row) for name, _, _ in fields]
            )
            if "allocations" not in words and self._queue.is_under_way(job):
                step = {"jobid": f"{row}.batch", "jobname": "batch", "partition": "", "user": ""}
                rows.append([step.get(name.lower(), self._field(job, name.lower(), row)) for name, _, _ in fields])
        between = words.get("delimiter") or "|"
        if "parsable2" in words:
            lines = [between.join(row) for row in rows]
        elif "parsable" in words:
            lines = [between.join([*row, ""]) for row in rows]
        else:
            lines = [
                " ".join(_aligned(text, _width(width or "10")) for text, (_, _, width) in zip(row, fields, strict=True))
                + " "
                for row in rows
            ]
        return _said("".join(f"{line}\n" for line in lines))

    def _scontrol(self, asked: Asked) -> Answer:
        words = [word for word in asked.arguments if not word.startswith("-")]
        flags = [word for word in asked.arguments if word.startswith("-")]
        verb = words[0].lower() if words else ""
        if verb == "show" and len(words) > 1 and words[1].lower() in {"job", "jobs", "jobid", "job_id"}:
            return self._show([word.rpartition("=")[2] for word in words[2:]], flags)
        if verb == "show" and len(words) > 1 and words[1].lower().startswith(("jobid=", "job=")):
            return self._show([words[1].partition("=")[2]], flags)
        if verb in {"show", "ping", "version"}:
            return self._really(asked)
        if verb in {"hold", "uhold", "release"}:
            return self._hold(words[1:], is_held=verb != "release")
        if verb == "update":
            return self._update(words[1:])
        self.remarks.setdefault(f"the driver calls what a recording does not answer: {asked.words}")
        raise RefusedBySbatchError(f"a recording does not answer `scontrol {verb}`")

    def _numbered(self, words: Iterable[str]) -> list[Submission]:
        found = []
        for word in words:
            for text in word.rpartition("=")[2].split(","):
                job = self._queue.job(int(text.partition("_")[0])) if text.partition("_")[0].isdigit() else None
                if job is None:
                    raise RefusedBySbatchError(f"Invalid job id specified for job {text}")
                found.append(job)
        return found

    def _show(self, words: Sequence[str], flags: Sequence[str]) -> Answer:
        calls = self._numbered(words) if words else self._queue.jobs
        self._queue.look(calls if words else ())
        self._queue.see_ended(calls, "success")
        is_one_line = bool({"-o", "--oneliner"} & set(flags))
        blocks = [self._block(job) for job in calls]
        return _said(
            "".join((" ".join(block) if is_one_line else "\n   ".join(block) + "\n") + "\n" for block in blocks)
        )

    def _block(self, job: Submission) -> list[str]:
        field = {
            "JobId": "jobid", "JobName": "name", "UserId": "user", "JobState": "state", "Reason": "reason",
            "Dependency": "dependency", "ExitCode": "exitcode", "TimeLimit": "timelimit", "SubmitTime": "submit",
            "StartTime": "start", "EndTime": "end", "Partition": "partition", "NodeList": "nodelist",
            "NumNodes": "numnodes", "NumCPUs": "numcpus", "Command": "command", "WorkDir": "workdir",
        }  # fmt: skip
        out = job.value("output", "slurm-%j.out").replace("%j", str(job.number))
        texts = {key: self._field(job, name) for key, name in field.items()}
        texts["StdErr"] = texts["StdOut"] = str(Path(job.folder, out))
        return [f"{key}={text}" for key, text in texts.items()]

    def _hold(self, words: Sequence[str], *, is_held: bool) -> Answer:
        for job in self._numbered(words):
            job.is_held = is_held
        return _said("")

    def _update(self, words: Sequence[str]) -> Answer:
        pairs = [word.partition("=") for word in words]
        numbers = [value for name, _, value in pairs if name.lower() in {"jobid", "job"}]
        for job in self._numbered(numbers):
            for name, _, value in pairs:
                option = _UPDATED.get(name.lower())
                if option is not None:
                    if option == "dependency":
                        waits_for(value)
                    job.directives[option] = Directive(option, value, job.where)
                elif name.lower() not in {"jobid", "job"}:
                    job.changed.append(f"{name}={value}")
        return _said("")

    def _scancel(self, asked: Asked) -> Answer:
        options = options_given(asked.arguments, SCANCEL)
        words = operands(asked.arguments, SCANCEL)
        chosen = self._numbered(words) if words else self._queue.chosen(options)
        if any(re.search(r"[_.+]", word) for word in words):
            self.remarks.setdefault(f"the driver cancels a part of a job, which is all kept: {asked.words}")
            return _said("")
        if "signal" in options:
            self.remarks.setdefault(f"the driver sends a signal, which no run's job will get: {asked.words}")
            return _said("")
        states = _states(options)
        for job in chosen:
            if not self._queue.has_ended(job) and (not states or self._queue.state(job) in states):
                job.is_cancelled = True
        return _said("")

    # ------------------------------------------------------------------ calls that are passed on

    def _version(self, asked: Asked) -> Answer:
        """Return the site's version of Slurm; a recent one if none is installed."""
        if which(asked.program, path=self._search):
            return self._really(asked)
        self.remarks.setdefault(
            f"the driver asks for Slurm's version, and was told {_VERSION}: no Slurm is installed here"
        )
        return _said(f"slurm {_VERSION}\n")

    def _really(self, asked: Asked) -> Answer:
        """Run the site's own program; refuse one that could change something."""
        words = [word for word in asked.arguments if not word.startswith("-")]
        if asked.program == "sacctmgr" and (not words or words[0].lower() not in {"show", "list"}):
            raise RefusedBySbatchError("a recording only asks the real sacctmgr to show something")
        program = which(asked.program, path=self._search)
        if program is None:
            self.remarks.setdefault(f"the driver needs {asked.program}, which is not on this machine")
            return {"error": f"{asked.program}: command not found\n", "code": 127}
        try:
            done = run_command(
                [program, *asked.arguments],
                timeout_s=_SECONDS_OF_A_REAL_PROGRAM,
                errors="surrogateescape",
                env=dict(asked.environment),
            )
        except (OSError, subprocess.TimeoutExpired):
            self.remarks.setdefault(f"the real {asked.program} did not answer")
            return _failed(f"{asked.program}: error: no answer")
        return {"output": done.stdout, "error": done.stderr, "code": done.returncode}

    def _srun(self, asked: Asked) -> Answer:
        command = f"{asked.program} {' '.join(asked.arguments)}"
        if "SLURM_JOB_ID" in asked.environment:
            self.remarks.setdefault(f"not run while recording: {command[:100]}")
            return _said("")
        self.remarks.setdefault(f"the driver waits for work of its own, which was not done: {command[:100]}")
        raise RefusedBySbatchError("a recording runs nothing on nodes: submit it with sbatch, in a script of its own")

    def _salloc(self, asked: Asked) -> Answer:
        self.remarks.setdefault(f"the driver asks for nodes of its own: salloc {' '.join(asked.arguments)[:100]}")
        raise RefusedBySbatchError("a recording has no nodes: submit it with sbatch, in a script of its own")

    def _ssh(self, asked: Asked) -> Answer:
        command = " ".join(asked.arguments)
        missing = ", and what that submits is missing" if "sbatch" in command else ""
        self.remarks.setdefault(f"not done, on another machine: ssh {command[:100]}{missing}")
        return {"error": "ssh: no network while recording\n", "code": 255}


_NOTHING_RUNS = {
    "sattach": "there is nothing to attach to", "sstat": "there is nothing to measure",
    "strigger": "have a job wait for another with --dependency",
}  # fmt: skip


def _with_usual(words: dict[str, str | None], environment: Mapping[str, str]) -> dict[str, str | None]:
    """Add the columns that a user's variables ask squeue for."""
    if {"format", "Format", "long"} & words.keys():
        return words
    usual = {"format": environment.get("SQUEUE_FORMAT"), "Format": environment.get("SQUEUE_FORMAT2")}
    return words | {name: value for name, value in usual.items() if value}


def _states(words: Mapping[str, str | None]) -> set[str]:
    return {_LONG.get(word.upper(), word.upper()) for word in (words.get("states") or "").split(",") if word}


def _refuse(asked: Asked) -> Answer:
    raise RefusedBySbatchError(f"a recording runs nothing: {_NOTHING_RUNS[asked.program]}")


def _said(text: str) -> Answer:
    return {"output": text, "code": 0}


def _failed(*lines: str) -> Answer:
    return {"error": "".join(f"{line}\n" for line in lines), "code": 1}


def _width(text: str) -> int:
    """Read the width of a column, perhaps with a sign; empty means 0."""
    return max(min(int(text or 0), _MAX_WIDTH), -_MAX_WIDTH)


def _aligned(text: str, width: int) -> str:
    size = abs(width)
    text = text if len(text) <= size else text[: size - 1] + "+"
    return text.ljust(size) if width < 0 else text.rjust(size)


_USUAL_FORM = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG_FORM = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_SHORT = {"PENDING": "PD", "RUNNING": "R", "COMPLETED": "CD", "CANCELLED": "CA"}
_LONG = {short: state for state, short in _SHORT.items()} | {"CA": "CANCELLED", "F": "FAILED", "TO": "TIMEOUT"}
_OF_CODE = {
    "A": "jobid", "i": "jobarrayid", "F": "arrayjobid", "K": "arraytaskid", "j": "name", "T": "state",
    "t": "statecompact", "u": "username", "U": "userid", "P": "partition", "M": "timeused", "l": "timelimit",
    "L": "timeleft", "D": "numnodes", "C": "numcpus", "R": "reasonlist", "r": "reason", "N": "nodelist", "a": "account",
    "E": "dependency", "Z": "workdir", "o": "command", "S": "start", "e": "end", "V": "submit", "Q": "priority",
    "q": "qos", "k": "comment",
}  # fmt: skip
_HEADINGS = {
    "jobarrayid": "JOBID", "username": "USER", "statecompact": "ST", "timeused": "TIME", "numnodes": "NODES",
    "reasonlist": "NODELIST(REASON)", "numcpus": "CPUS", "timelimit": "TIME_LIMIT", "timeleft": "TIME_LEFT",
    "arrayjobid": "ARRAY_JOB_ID", "arraytaskid": "ARRAY_TASK_ID", "workdir": "WORK_DIR", "start": "START_TIME",
    "end": "END_TIME", "submit": "SUBMIT_TIME", "userid": "UID",
}  # fmt: skip
_UPDATED = {
    "dependency": "dependency", "timelimit": "time", "partition": "partition", "jobname": "job-name",
    "name": "job-name", "qos": "qos", "account": "account", "nice": "nice", "reservation": "reservation",
    "reservationname": "reservation", "features": "constraint", "gres": "gres", "minmemorynode": "mem",
    "minmemorycpu": "mem-per-cpu", "comment": "comment", "excnodelist": "exclude", "nodelist": "nodelist",
    "numnodes": "nodes", "numtasks": "ntasks",
}  # fmt: skip
