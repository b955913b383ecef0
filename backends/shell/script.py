"""The batch script around a payload, and the marker files that it writes.

The script keeps five promises that a batch system alone does not:

- of several jobs with one token, as after a submission was sent twice, at most one runs the payload. The first takes
  the claim, a symbolic link that names its job, which a file system, even NFS, makes only once. The same holds for jobs
  of different tokens that race for the same work (`JobSpec.race`);
- work with a completion marker is not run again, in this job or in another. Each step of a job has its own marker,
  which is looked for before the step begins. A job whose stages have been given to another job runs nothing more;
- a payload that waits for others begins only when their completion markers exist. A client that gives a job back either
  succeeds before the payload begins, which then never begins, or learns that it is too late;
- the beginning and the end of the payload are recorded where the client finds them, even if the batch system forgets
  the job. Space for the records is reserved before the payload begins, in case the disk fills up meanwhile;
- if they cannot be written the job fails, so that no dependent job starts.

It only writes new files, which no other user can change, in folders of its own user. It follows no links, and if
another user owns a folder of its markers it runs nothing.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile, zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from asa.backend import JobSpec, Step
from asa.core.safe import is_trusted
from asa.elements import Array, Elements
from asa.errors import SubmitRejectedError
from asa.job import head, text
from asa.keys import RESOURCES, TERMS
from asa.payload import PRIVATE, SHOWN, shown
from asa.units import format_duration

WITHDRAWN = "withdrawn"
"""The client writes this in place of a job's id, in the file by which a job would record that its payload begins."""

ENTRY = "ASA_ENTRY_"  # the same in asa/job/script-claim.sh
"""With a number from 1, a variable with the name and the value of another variable, for the payload alone."""

PAUSES_S = (0.1, 0.2, 0.3, 0.5, 1, 2, 3, 4, 5)
"""Seconds between checks for what a job waits for; often what is awaited comes within the first, as with hosts."""

_LONGEST_ARGUMENT_BYTES = 120_000  # Linux accepts at most 128 KiB
_AWAITS = "awaits="
_STEPS = "steps="
_ELEMENTS = "# Its elements: "
_RENUMBERED = ", which Slurm counts from 0 on"
_WALLTIME = "# Its walltime in seconds: "
_RACES = "# It runs nothing if another job of its race began first: "
_POSTED = "posted="
_INTO = re.compile(r"# It runs nothing: its (\d+) cores are for job (\d+)\.")
_HEEDS = "# Where Slurm says that its memory ran out: "
_SCREEN = 21  # number of lines that show what is run
_MAX_STEPS = 12  # maximum number of steps that are shown
_NAMES_STAGE = "export ASA_STAGE="  # asa writes this line before a user's command
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")
_LONGEST_NAME = 100
_LONGEST_FILE_NAME = 200
_END_OF_FACTS = "# Its values."
_ENDS_OF_FACTS = {_END_OF_FACTS, "signals=0 # to end"}  # of present scripts, and of those of earlier versions


def is_utf8(text: str) -> bool:
    r"""Whether a text can be encoded as UTF-8; text from names of files may not.

    Examples
    --------
    >>> is_utf8("Jörg"), is_utf8("J\udcf6rg")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def job_name(name: str, token: str) -> str:
    """Return a job's name for the batch system: its own name in safe characters, then the token, if any.

    Examples
    --------
    >>> job_name("fit model/2", "a1-7"), job_name("", "")
    ('fit_model_2.a1-7', 'job')
    """
    safe = _UNSAFE.sub("_", name)[:_LONGEST_NAME].lstrip("-") or "job"
    return f"{safe}.{token}" if token else safe


def file_name(token: str) -> str:
    """Return the file name of a token's completion marker; `token_of_file` is the inverse.

    Examples
    --------
    >>> file_name("run/stage 1"), token_of_file("run%2Fstage%201")
    ('run%2Fstage%201', 'run/stage 1')
    """
    name = quote(token, safe="")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def token_of_file(name: str) -> str:
    """Return the token of a completion marker, given the name of its file."""
    return unquote(name)


@dataclass(frozen=True, slots=True)
class Payload:
    """The command of a batch script, and the guarantees with which it runs."""

    name: str  # name of the job in the batch system
    command: str
    folder: str
    marks: Path  # absolute folders for markers of jobs, and for completion markers
    posts: Path
    token: str = ""  # its claim is required; empty for a job without duplicates
    awaits: Sequence[str] = ()  # tokens whose completion markers it waits for; `posts`: tokens of its own ones
    posted: Sequence[str] = ()
    max_await_s: float | None = None  # upper bound of that wait; None for the time of the job
    steps: Sequence[Step] = ()  # several commands to run instead of the single one
    # for each step, or for the single command, lines of shell code to run before it
    before: Sequence[Sequence[str]] = ()
    shares: bool = False  # whether other jobs run the same payload, and may go on when this job has no work left
    array: Array | None = None  # its elements run the payload, each with its own markers and completion marker
    # whether the batch system numbers the elements from 0, since it does not accept numbers as large as theirs
    is_renumbered: bool = False
    out_of_memory: str = "fail"  # see `JobSpec.out_of_memory`
    walltime_s: float = math.inf  # requested walltime, for readers of the script
    heeds: str = "fail"  # see `Kept.out_of_memory`; also for readers of the script
    asks: str = ""  # text on the job's request, for its owner
    race: str = ""  # see `JobSpec.race`


def payload_of(spec: JobSpec, name: str, folder: str, marks: Path, posts: Path, **others: Any) -> Payload:
    """Return the payload of a job with a name for the batch system; `others`: fields that depend on the system."""
    return Payload(
        name=name,
        command=spec.command,
        folder=folder,
        marks=marks,
        posts=posts,
        token=spec.token,
        awaits=spec.awaits,
        max_await_s=spec.max_await_s,
        posted=spec.posts,
        steps=spec.steps,
        array=spec.array,
        shares=spec.shares,
        out_of_memory=spec.out_of_memory,
        race=spec.race,
        asks=requested(spec),
        **others,
    )


def refuse_unwritable(spec: JobSpec, *others: str, below_s: float = math.inf) -> None:
    """Refuse a job whose script cannot be written, or whose request no system can meet.

    `others`: further texts in the script.
    `below_s`: its walltime must be below this.
    Raises `SubmitRejectedError`.
    """
    commands = (spec.command, *(step.command for step in spec.steps))
    texts = (spec.name, *commands, *spec.awaits, *spec.posts, *(step.name for step in spec.steps), *others)
    if not all(map(is_utf8, texts)):
        why, hint = "has text that is not UTF-8", "Rename what it names, or put the command into a file."
    elif not spec.walltime_s > 0 or spec.walltime_s >= below_s < math.inf:
        why, hint = f"asks for {spec.walltime_s} s", "Ask for more than nothing, and less than ever."
    elif spec.cores < 1:
        why, hint = f"asks for {spec.cores} cores", "Ask for at least one."
    elif bad := [
        token for token in (spec.token, spec.race, *(s.race for s in spec.steps)) if token and not _is_token(token)
    ]:
        why, hint = f"has the token {bad[0]!r}", "Give letters, digits and '-'."
    elif spec.race and (not spec.token or spec.array is not None or not all(s.race and s.post for s in spec.steps)):
        why, hint = "races without a token, as a job array, or with steps that do not", "Leave out `race`."
    elif too_long := [name for name in (*spec.awaits, *spec.posts) if len(file_name(name)) > _LONGEST_FILE_NAME]:
        why, hint = f"awaits or posts a token that no file can be named after: {too_long[0]!r}", "Shorten it."
    elif any("\0" in command for command in commands):
        why, hint = "has a command which no shell can take", "Put it into a file, and run that."
    else:
        return
    raise SubmitRejectedError(why, where=f"job {spec.name!r}", hint=hint)


def _is_token(text: str) -> bool:
    return text.isascii() and text.replace("-", "").isalnum()


def batch_script(payload: Payload, variable: str, pauses_s: Sequence[float] = PAUSES_S, *, calls: str = "") -> str:
    """Return the batch script of a payload; see `batch_parts`.

    Examples
    --------
    >>> payload = Payload("fit.a1", "echo 'it works'", "/home/me", Path("/r/marks"), Path("/r/posts"), "a1")
    >>> batch_script(payload, "SLURM_JOB_ID").splitlines()[0]
    '#!/bin/sh'
    """
    return "".join(batch_parts(payload, variable, pauses_s, calls=calls))


def batch_parts(
    payload: Payload, variable: str, pauses_s: Sequence[float] = PAUSES_S, *, calls: str = "", also: str = ""
) -> tuple[str, str, str]:
    """Return the parts of a payload's batch script, for any POSIX shell and any text of a command.

    These are comments for readers, lines that give values to variables, and a text that reads these.

    `calls`: files of `asa.job`, separated by spaces, with the shell functions that the lines before steps call. They
    may set `kept` to the cores that the job has after it gave some back, or got more, and `seen` to arguments of `env`
    for later steps.
    `also`: a file of `asa.job` to read as soon as the run's folder is reached.
    `pauses_s`: seconds between checks for awaited completion markers; the last value is repeated. Those that a
    node's `sleep` does not accept take no time.
    """
    home = payload.posts.parent
    values: dict[str, object] = {
        "job_in": variable,
        "token": payload.token,
        "named": home,
        "marks_in": payload.marks.relative_to(home),
        "posts_in": payload.posts.name,
        "folder": payload.folder,
        "trusted": is_trusted(payload.marks),
        "pauses": " ".join(f"{pause:g}" for pause in pauses_s),
        "max_idle": None if payload.max_await_s is None else math.ceil(payload.max_await_s),
        "shares": payload.shares,
    }
    files = ["owned", "hold", "signal", "memory", "script-marks", "script-run", "script-begin", *also.split()]
    if payload.array is not None:
        ranges = _ranges(payload.array.elements) if payload.is_renumbered else ""
        values |= {"ranges": ranges, "count": len(payload.array.all)}
        files.append("script-element")
    if payload.steps:
        values |= {"called": payload.name, **_steps(payload)}
        files += ["script-waves"] * any(step.beside for step in payload.steps)
    else:
        values |= {"before": "\n".join(payload.before[0])} if any(payload.before) else {}
        values |= _run("", payload.command, heeds=payload.out_of_memory == "fail")
    files += calls.split() * any(payload.before)
    races = bool(payload.race)
    if races:
        names = [step.race for step in payload.steps] or [payload.race]
        values |= {f"race_{number}": name for number, name in enumerate(names, start=1)} | {"race_count": len(names)}
    files += [*["script-racing"] * races, "script-claim", *["script-race"] * races, "script-began"]
    if payload.steps:
        files.append("script-steps")
    else:
        files += [*["script-before"] * any(payload.before), "script-single"]
    return _facts(payload), head(values), text(*files)


def _facts(payload: Payload) -> str:
    """Return the lines that clients read from a script later."""
    array = payload.array
    lines = [
        "#!/bin/sh",
        f"# Written by asa for the job {payload.name}.",
        *_for_its_user(payload),
        *([f"{_WALLTIME}{payload.walltime_s:g}"] if math.isfinite(payload.walltime_s) else []),
        *([f"{_HEEDS}{payload.heeds}"] if payload.heeds != "fail" else []),
        *([f"{_ELEMENTS}{array.elements}{_RENUMBERED if payload.is_renumbered else ''}"] if array is not None else []),
        f"{_AWAITS}{_files(payload.awaits)}",
        *([f"{_RACES}{payload.race}"] if payload.race else []),
        f"{_POSTED}{_files(payload.posted)}",
        f"{_STEPS}{_files([step.name for step in payload.steps])}",
        f"{_END_OF_FACTS}\n",
    ]
    return "\n".join(lines)


def _for_its_user(payload: Payload) -> Iterator[str]:
    """Yield comments for the owner, on one screen: the request of a job, its command, and the place of the rest."""
    if payload.asks:
        yield f"# It asks for {payload.asks}."
    yield f"# It runs, in {_on_one_line(payload.folder)}:"
    steps = payload.steps
    for number, step in enumerate(steps[:_MAX_STEPS], start=1):
        after = ", at the same time as the step before" if step.beside and number > 1 else ""
        yield f"# Step {number}, {_on_one_line(step.name)}{after}:"
        yield from _shown(step.command, max(_SCREEN // len(steps), 2))
    if len(steps) > _MAX_STEPS:
        yield f"# And {len(steps) - _MAX_STEPS} further steps, which are named below."
    if not steps:
        yield from _shown(payload.command, _SCREEN)
    yield "# The rest are values, and a text that reads them, which is the same for every job: files of asa/job."


def _on_one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _shown(command: str, most: int) -> list[str]:
    """Return the comments at the beginning of a command; without any, the command itself."""
    own, rest = _parted(command)
    lines = rest.removeprefix(PRIVATE).splitlines()
    if lines and lines[0].startswith(_NAMES_STAGE):
        del lines[0]
    return [*own[:most], *([f"{SHOWN}..."] if len(own) > most else [])] if own else shown(lines, most - 1)


def _parted(command: str) -> tuple[list[str], str]:
    """Split a command into the comments at its beginning, which show what it runs, and the rest."""
    private = PRIVATE * command.startswith(PRIVATE)
    lines = command.removeprefix(private).split("\n")
    own = list(takewhile(lambda line: line.startswith(SHOWN), lines))
    return own, private + "\n".join(lines[len(own) :])


def requested(spec: JobSpec) -> str:
    """Return a text that describes a job's request.

    Examples
    --------
    >>> requested(JobSpec("fit", 4, 5400.0, memory_bytes=8 << 30, partition="short", options=("--nice=5",)))
    '4 cores, walltime 1h30m, memory 8192M, partition short, options --nice=5'
    """
    lines = [
        ("", f"{spec.cores} {'core' if spec.cores == 1 else 'cores'}"),
        ("nodes", spec.nodes),
        ("walltime", format_duration(spec.walltime_s)),
        *(
            (key.name, f"{value >> 20}M" if value and key.kind in {"memory", "storage"} else value)
            for key in RESOURCES
            if (value := getattr(spec, key.field))
        ),
        ("partition", spec.partition),
        *((key.name, getattr(spec, key.field)) for key in TERMS),
        ("options", shlex.join(spec.options)),
    ]
    words = [key if value is True else f"{key} {value}".strip() for key, value in lines if value]
    return _on_one_line(", ".join(words))


def _steps(payload: Payload) -> dict[str, object]:
    """Return the script's variables on steps."""
    steps, waves = payload.steps, _waves(payload.steps)
    heeds = _heeding(steps, waves)
    values: dict[str, object] = {"step_count": len(steps)}
    for number, (step, before) in enumerate(zip_longest(steps, payload.before[: len(steps)]), start=1):
        first, last = waves[number - 1]
        values |= {
            f"name_{number}": step.name,
            f"post_{number}": file_name(step.post),
            f"awaits_{number}": " ".join(map(file_name, step.awaits)),
            f"before_{number}": "\n".join(before or ()),
            f"wave_{number}": last if first != last else "",  # the number of its last step
            **_run(f"_{number}", step.command, heeds=heeds[number - 1]),
        }
    return values


def _run(suffix: str, command: str, *, heeds: bool) -> dict[str, object]:
    """Return the variable with a command: as an argument, or in a file if it is too long for one, or private."""
    _, command = _parted(command)  # the script already shows these comments at its head
    in_file = len(command.encode()) > _LONGEST_ARGUMENT_BYTES or command.startswith(PRIVATE)
    return {f"heeds{suffix}": heeds, f"in_file{suffix}": in_file, f"text{suffix}": command}


def _waves(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """Return for each step the first and the last step that run at the same time as it."""
    begins = [number for number, step in enumerate(steps, start=1) if not (step.beside and number > 1)]
    waves = pairwise([*begins, len(steps) + 1])
    return [(first, after - 1) for first, after in waves for _ in range(first, after)]


def _ranges(elements: Elements) -> str:
    """Return the numbers of an array's elements as ranges; an element's index selects its number."""
    return " ".join(f"{first}:{last}:{step}" for first, last, step in elements.ranges)


def _heeding(steps: Sequence[Step], waves: Sequence[tuple[int, int]]) -> list[bool]:
    """Return for each step whether it fails if memory runs out.

    It does not if another step at the same time ignores that: they cannot be distinguished, since the kernel counts for
    the whole job.
    """
    ignored = {wave for step, wave in zip(steps, waves, strict=True) if step.out_of_memory == "ignore"}
    return [wave not in ignored for wave in waves]


def _files(tokens: Sequence[str]) -> str:
    """Return the file names of tokens, separated by spaces, which they do not contain."""
    return shlex.quote(" ".join(file_name(token) for token in tokens))


def note_of(name: str, walltime_s: float, cores: int, into: str) -> str:
    """Return a text in place of the script of a job that runs nothing: its cores are for another, running job.

    Examples
    --------
    >>> facts = facts_of(note_of("fit+28.a1", 600.0, 28, into="12"))
    >>> facts["into"], facts["cores"], facts["walltime_s"]
    ('12', 28, 600.0)
    """
    lines = [
        "#!/bin/sh",
        f"# Written by asa for the job {name}.",
        f"# It runs nothing: its {cores} cores are for job {into}.",
        f"{_WALLTIME}{walltime_s:g}",
        f"{_AWAITS}''",
        f"{_POSTED}''",
        f"{_STEPS}''",
        f"{_END_OF_FACTS}\n",
    ]
    return "\n".join(lines)


def facts_of(script: str) -> dict[str, Any]:
    """Read from a script of `batch_script` the facts for later clients: fields of `KeptSubmission`.

    Raises `ValueError`: the text is no such script.

    Examples
    --------
    >>> payload = Payload("fit", "true", "/home/me", Path("/r/marks"), Path("/r/posts"), posted=("a",), walltime_s=90.0)
    >>> facts_of(batch_script(payload, "SLURM_JOB_ID"))
    ... # doctest: +NORMALIZE_WHITESPACE
    {'awaits': False, 'steps': (), 'walltime_s': 90.0, 'array': '', 'is_renumbered': False, 'posts': ('a',),
     'out_of_memory': 'fail'}
    """
    # these lines come before any text of a user
    facts = list(takewhile(lambda line: line not in _ENDS_OF_FACTS, script.splitlines()))

    def said(what: str, otherwise: str = "") -> str:
        return next((line.removeprefix(what) for line in facts if line.startswith(what)), otherwise)

    def names(what: str) -> tuple[str, ...]:
        words = (word for line in facts if line.startswith(what) for word in shlex.split(line.removeprefix(what)))
        return tuple(" ".join(words).split())

    if sum(line.startswith(_STEPS) for line in facts) != 1:
        raise ValueError("this is no script of a job")
    elements = said(_ELEMENTS)
    into = next(filter(None, map(_INTO.fullmatch, facts)), None)
    return {
        **({} if into is None else {"cores": int(into[1]), "into": into[2]}),
        "awaits": f"{_AWAITS}''" not in facts or bool(said(_RACES)),
        "steps": tuple(map(token_of_file, names(_STEPS))),
        "walltime_s": float(said(_WALLTIME, "inf")),
        "array": elements.removesuffix(_RENUMBERED),
        "is_renumbered": elements.endswith(_RENUMBERED),
        "posts": names(_POSTED),
        "out_of_memory": said(_HEEDS, "fail"),
    }
