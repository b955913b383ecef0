"""Makes a workflow of a driver's submissions: a stage for each call of sbatch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, get_args

from asa.core.documents import read_file
from asa.errors import InputError
from asa.importers.base import Imported, ImportNotes, direct
from asa.importers.driver import Script, When, calls_sbatch
from asa.importers.scripts import ImportChoices, may_be_written, with_name, workflow_of
from asa.requests.directives import COMPONENTS, Directive, by_name, refuse_components
from asa.requests.options import KNOWN
from asa.requests.sizes import text_of
from asa.units import format_duration
from asa.workflow import Stage, Workflow

from .recorder import Recording
from .submissions import Submission, WaitsFor, waits_for

FILES: Final = "driver-files"
"""Name of the stage that puts the files which the driver made in place."""
KEPT_FOLDERS: Final = ("scripts", "files", "elsewhere", "instead", "before")
"""Subfolders of the folder next to the workflow file."""
_OWN: Final = frozenset(
    ["_", "SHLVL", "PWD", "OLDPWD", "PATH", "PYTHONPATH", "COLUMNS", "LINES", "TERM", "BASH_ENV", "PS1", "PS2"]
)
"""Variables that shells set and remove by themselves, or that are treated separately."""
_OF_INTERPRETERS: Final = {
    ("PYENV_HOOK_PATH",): r"PYENV_(?:DIR|HOOK_PATH)|_PYENV_INSTALL_PREFIX",  # set by a shim
    ("RBENV_HOOK_PATH",): r"RBENV_(?:DIR|HOOK_PATH)",
    ("R_SESSION_TMPDIR", "R_HOME"): r"_?R_(?!LIBS$)\w+|EDITOR|PAGER|LN_S|MAKE|SED|TAR",
    ("VENDOR", "MACHTYPE", "HOSTTYPE", "OSTYPE"): (  # csh
        "GROUP|HOST|HOSTTYPE|LOGNAME|MACHTYPE|NLSPATH|OSTYPE|REMOTEHOST|USER|VENDOR"
    ),
    ("MAKELEVEL",): r"MAKE(?:FLAGS|LEVEL|OVERRIDES|FILES|_TERMOUT|_TERMERR)|MFLAGS",
    ("LC_CTYPE",): "LC_CTYPE",  # set by Python if no variable asks for UTF-8
}
"""By the variables that identify an interpreter: a pattern for all variables that it sets for its children."""
_NUMBER = re.compile(r"(?<!\d)\d{8}(?!\d)")
_DETOUR = re.compile(r"(?<=/)(?!\.\./)[^/\s'\"]+/\.\./")
_MAX_BYTES_BEFORE: Final = 1 << 20
_AS_RECORDED = """\
as_recorded() {
    cmp -s "$1" "$3" || cmp -s "$2" "$3" || {
        echo "$3: has changed since it was recorded: record it again" >&2
        exit 1
    }
}"""
_IS_JOB: Final = "is a batch job"
_SUBMITS_NOTHING: Final = "in that it submits nothing, since that is stages"
_NOT_RUN = """\
#!/bin/sh
# In place of Slurm's programs for the script that submitted the others: what it submits are stages already.
case $(basename "$0") in sbatch)
    case " $* " in *" --parsable "*) echo 1 ;; *) echo "Submitted batch job 1" ;; esac
esac
"""


@dataclass(frozen=True, slots=True)
class Translated:
    """A workflow, and the files to be kept next to its file."""

    imported: Imported
    files: Mapping[Path, bytes]  # contents, by path below that folder
    programs: frozenset[Path]  # those of the files that are executable
    links: Mapping[Path, str]


def translate(recording: Recording, kept: Path, choices: ImportChoices, *, name: str = "") -> Translated:
    """Make a workflow of a recording.

    `kept`: the folder next to the workflow file in which scripts and files are kept, as a path from a run's work
    folder.
    Raises `InputError`: nothing was submitted, or a submission cannot be expressed in a workflow.
    """
    return _Translation(recording, kept).made(choices, name)


_For = Literal["success", "failed", "elements", "always", "begun"]
_STRICT: Final[tuple[_For, ...]] = get_args(_For)
_FOR: Final[Mapping[str, _For]] = {
    "afterok": "success",
    "afternotok": "failed",
    "aftercorr": "elements",
    "afterany": "always",
    "after": "begun",
}
"""What a job requires of another job, by the kind of dependency. `_STRICT` has these, the strictest first."""


class _Translation:
    def __init__(self, recording: Recording, kept: Path) -> None:
        self._recording = recording
        self._kept = kept
        self._notes = ImportNotes()
        self._files: dict[Path, bytes] = {}
        self._programs: set[Path] = set()
        self._links: dict[Path, str] = {}
        every = sorted((*recording.jobs, *recording.own_jobs), key=lambda job: job.number)
        self._jobs = [job for job in every if not job.is_cancelled]
        # index of the first submission: 1 if the driver itself, a batch job, is stage 0
        self._first = 1 if recording.own_number else 0
        self._index = {job.number: index for index, job in enumerate(self._jobs, start=self._first)}
        if recording.own_number:
            self._index[recording.own_number] = 0
        self._numbers = {str(job.number): job.name for job in every}
        if recording.own_number and recording.script is not None:
            self._numbers[str(recording.own_number)] = recording.script.name

        self._rewritten = dict(_rewritten(recording))
        # each key is a group of stages, at least one of which must have failed; each value is the stage that then runs
        self._failures: dict[tuple[int, ...], int] = {}

    def made(self, choices: ImportChoices, name: str) -> Translated:
        """Make the workflow."""
        self._tell_of_the_driver()
        if all(job.is_driver for job in self._jobs):
            raise InputError(self._why_nothing(), where=self._recording.words, hint=self._hint())
        for job in self._jobs:
            self._refuse_bytes(job)
            self._tell_of(job)
        befores, scripts = {}, []
        for place, job in enumerate(self._jobs, start=self._first):
            befores[place] = self._befores(place, job)
            scripts.append(self._driver_of_a_session(job) if job.is_driver else self._script(job))
        if self._first:
            scripts.insert(0, self._driver_itself())
        befores |= {place: dict.fromkeys(some, "failed") for some, place in self._failures.items()}
        scripts += [_of_a_failure([scripts[place] for place in some]) for some in self._failures]
        chosen = self._reduced(befores)
        scripts = [self._with_befores(place, script, chosen.get(place, {})) for place, script in enumerate(scripts)]
        called = name or self._recording.script_name or self._recording.folder.name or "workflow"
        ran = _printable(self._recording.words)
        header = [f"Recorded from {ran} by `asa import scripts --record`: that is not run any more."]
        imported = self._with_failures(workflow_of(scripts, self._notes, choices, name=called, header=header))
        if not self._first:
            imported = self._with_files(imported)
        return Translated(
            replace(imported, notes=tuple(map(_printable, self._notes.sentences()))),
            self._files,
            frozenset(self._programs),
            self._links,
        )

    # ------------------------------------------------------------------ notes

    def _tell_of_the_driver(self) -> None:
        done, notes = self._recording, self._notes
        for call, why in done.refused:
            if why == COMPONENTS:
                refuse_components(call[:100])
            notes.add(f"sbatch refused it, as Slurm would: {why}", call[:100])
        for remark in done.remarks:
            notes.add(remark)
        if done.was_ended:
            notes.add(f"the driver was ended after {format_duration(done.limit_s)}: what it submitted later is missing")
        elif done.code:
            notes.add(f"the driver ended with exit code {done.code}: what it submitted until then is here")
        for left in () if done.was_ended else done.behind:
            notes.add(f"it left something running in the background, which was ended: {left[:100]}")
        for job in done.jobs:
            if job.is_cancelled:
                notes.add("is left out: the driver cancelled it", job.where)
        self._tell_of_files()

    def _tell_of_files(self) -> None:
        made = self._recording.made
        for what, paths in (("changed", made.changed), ("removed", made.removed)):
            for path in paths:
                if path not in self._rewritten:
                    self._notes.add(f"the driver {what} it, and no run will: {path}")
        for path, size in made.too_large:
            self._notes.add(f"the driver made it, too large to be kept ({size >> 20} MiB): {path}")
        if closed := self._recording.closed:
            self._notes.add("nothing could be written here while recording", ", ".join(closed[:4]))
        if fixed := self._recording.fixed:
            more = f" and {len(fixed) - 4} more" if len(fixed) > 4 else ""
            note = "it belongs to another user, and could not be changed while recording, as it can be in a real run"
            self._notes.add(note, ", ".join(fixed[:4]) + more)

    def _why_nothing(self) -> str:
        done = self._recording
        if done.refused:
            return f"submitted nothing: sbatch refused {done.refused[0][0][:100]}: {done.refused[0][1]}"
        if done.was_ended:
            return f"submitted nothing within {format_duration(done.limit_s)}, and was ended"
        if done.code:
            return f"submitted nothing, and ended with exit code {done.code}"
        return "submitted nothing"

    def _hint(self) -> str:
        done = self._recording
        if done.remarks:
            return f"Perhaps since {done.remarks[0]}."
        if done.was_ended:
            return (
                "If it only takes long, give it more with --limit. It waits if it asks questions or for files of jobs."
            )
        return "What it printed may say why: it may need arguments, files, or answers to questions."

    def _tell_of(self, job: Submission) -> None:
        """Note differences between a stage and the job that was recorded."""
        places = {
            "its arguments": " ".join(job.rest),
            "its script": job.text,
            "its command": job.value("wrap"),
            **{f"${key}": value for key, value in self._environment(job)},
            **{f"--{name}": job.value(name) for name in job.directives if name not in {"dependency", "wrap"}},
        }
        places["its folder"] = job.folder if "chdir" not in job.directives else ""
        for place, text in places.items():
            for name in self._numbers_in(text):
                verb = "have" if place == "its arguments" else "has"
                self._notes.add(f"{place} {verb} the number of {name}, which no run's job will have", job.where)
        texts = [_without_detours(text) for text in places.values()]
        named = [path for path in self._recording.made.temporary if any(str(path) in text for text in texts)]
        for path in _deepest(tuple(named)):
            self._notes.add(f"the driver made it in a folder for temporary files, and no run will: {path}", job.where)
        for change in job.changed:
            self._notes.add(f"scontrol update {change} is left out", job.where)
        if job.is_held:
            self._notes.add("it was left held: its stage begins in its turn", job.where)
        if job.text and calls_sbatch(job.text) and not job.is_driver:
            self._notes.add("this job itself submits others, which are missing here", job.where)
        if "slurm_script" in job.text:
            note = "its script asks whether it is called slurm_script, as Slurm calls what it runs: in a run it is not"
            self._notes.add(note, job.where)
        for word in job.rest:
            option = word.partition("=")[0].removeprefix("--")
            if word.startswith("--") and option in KNOWN:
                self._notes.add(f"{word} stands behind the script: it is an argument, no option of sbatch", job.where)

    def _refuse_bytes(self, job: Submission) -> None:
        """Refuse bytes that are not UTF-8, which a workflow file cannot contain."""
        for what, text in {
            "an argument": " ".join(job.arguments), "its folder": job.folder, "the name of its script": job.path,
            **{f"--{name}": job.value(name) for name in job.directives},
        }.items():  # fmt: skip
            if not _is_text(text):
                hint = "Such bytes cannot stand in a workflow file: give it another name."
                raise InputError(f"{what} is no UTF-8", where=_printable(job.where), hint=hint)

    def _numbers_in(self, text: str) -> list[str]:
        numbers = dict.fromkeys(_NUMBER.findall(text))
        return [self._numbers[number] for number in numbers if number in self._numbers]

    # ------------------------------------------------------------------ dependencies

    def _befores(self, place: int, job: Submission) -> dict[int, _For]:
        """Return the stages that a job follows, each with the kind of dependency."""
        befores: dict[int, _For] = {}
        failed: dict[int, None] = {}
        parts, any_will_do = waits_for(job.value("dependency"))
        for part in parts:
            if part.kind == "singleton":
                same = [at for at, earlier in enumerate(self._jobs[: place - self._first]) if earlier.name == job.name]
                befores |= {at + self._first: befores.get(at + self._first, "always") for at in same}
            elif (before := self._before(part, job)) is not None and part.kind == "afternotok":
                failed[before] = None
            elif before is not None:
                befores[before] = self._more(befores.get(before), part, job)
        for number, how in job.ended:
            if (before := self._index.get(number)) is not None and before not in {*befores, *failed}:
                self._notes.add(
                    "it was submitted once the driver had seen others end: it follows these; what the driver itself "
                    "did in between, with what they had left, no run does",
                    job.where,
                )
                befores[before] = how
        befores |= self._of_failures(tuple(failed), befores, any_will_do=any_will_do)
        if not befores and (self._first or job.submitted_by):
            befores[self._index.get(job.submitted_by, 0)] = "success"
        return befores

    def _of_failures(
        self, failed: tuple[int, ...], others: Mapping[int, _For], *, any_will_do: bool
    ) -> dict[int, _For]:
        """Return the dependencies on failures: by `when`, or else on added stages that run after a failure."""
        is_one = len(failed) < 2 or any_will_do
        is_apart = others.keys().isdisjoint(failed) and set(others.values()) <= {"always", "begun"}
        if is_one and is_apart and not (any_will_do and others):
            return dict.fromkeys(failed, "failed")
        groups = [failed] if any_will_do and failed else [(name,) for name in failed]
        last = self._first + len(self._jobs)
        return {self._failures.setdefault(group, last + len(self._failures)): "success" for group in groups}

    def _with_befores(self, place: int, script: Script, befores: Mapping[int, _For]) -> Script:
        if not 0 <= place - self._first < len(self._jobs):
            return _following(script, befores, any_will_do=False, delay_s=0.0)
        job = self._jobs[place - self._first]
        parts, any_will_do = waits_for(job.value("dependency"))
        begun = [part for part in parts if part.kind == "after" and part.number in self._index]
        if len({part.minutes for part in begun}) > 1:
            self._notes.add("`after` with several delays becomes: the longest of them after each", job.where)
        if any(
            "array" in self._of(part.number).directives for part in begun if self._index[part.number] >= self._first
        ):
            self._notes.add("`after` an array becomes: once the first of its elements has begun, not all", job.where)
        if any_will_do and any(part.kind == "aftercorr" for part in parts):
            self._notes.add("`aftercorr` becomes: after the whole of the other array has completed", job.where)
        if any_will_do and {number for number, _ in job.ended}.intersection(self._index):
            self._notes.add("`?` becomes: after all of them, not after any", job.where)
            any_will_do = False
        delay_s = 60.0 * max((part.minutes for part in begun), default=0)
        return _following(script, befores, any_will_do=any_will_do, delay_s=delay_s)

    def _of(self, number: int) -> Submission:
        return self._jobs[self._index[number] - self._first]

    def _before(self, part: WaitsFor, job: Submission) -> int | None:
        """Return the index of the stage of a job that another waits for; None if it has no stage."""
        if part.kind in {"expand", "afterburstbuffer"}:
            raise InputError(f"waits by `{part.kind}`", where=job.where, hint="A stage cannot: leave it out.")
        before = self._index.get(part.number)
        if before is None:
            gone = "that the driver cancelled" if str(part.number) in self._numbers else "from elsewhere"
            self._notes.add(f"a dependency on a job {gone} is left out", job.where)
        elif part.index:
            self._notes.add("a dependency on an element becomes one on the whole array", job.where)
        return before

    def _more(self, known: _For | None, part: WaitsFor, job: Submission) -> _For:
        """Return the strictest requirement of a job's dependencies on another job, including a further one."""
        other = _FOR[part.kind]
        if known is not None and known != other and "begun" in {known, other}:
            self._notes.add("of several dependencies on one job only the strictest is kept", job.where)
        return other if known is None or _STRICT.index(known) > _STRICT.index(other) else known

    def _reduced(self, befores: Mapping[int, Mapping[int, _For]]) -> dict[int, dict[int, _For]]:
        """Leave out dependencies that exist only because the driver saw a job end, if other dependencies imply them."""
        if not any(job.ended for job in self._jobs):
            return {place: dict(some) for place, some in befores.items()}
        names = {str(place): tuple(map(str, some)) for place, some in befores.items()}
        if self._first:
            names = {"0": ()} | names
        left = direct(names)
        asked = {
            place: {self._index.get(part.number) for part in waits_for(job.value("dependency"))[0]}
            for place, job in enumerate(self._jobs, start=self._first)
        }
        return {
            place: {
                number: when
                for number, when in some.items()
                if str(number) in left[str(place)] or number in asked.get(place, some)
            }
            for place, some in befores.items()
        }

    def _with_failures(self, imported: Imported) -> Imported:
        """Make the stages that only represent a failure local, so that they submit no job."""
        count = len(self._failures)
        if not count:
            return imported
        stages = list(imported.workflow.stages.values())
        comment = "Runs if what it follows fails, so that others can follow that."
        comments = {**imported.comments, **{stage.name: [comment] for stage in stages[-count:]}}
        stages[-count:] = [replace(stage, local=True, request=None, cores=1) for stage in stages[-count:]]
        return replace(imported, workflow=Workflow(imported.workflow.name, stages), comments=comments)

    # ------------------------------------------------------------------ the stage of a job

    def _script(self, job: Submission) -> Script:
        options = {name: replace(option, where=job.where) for name, option in job.directives.items()}
        options.pop("dependency", None)
        options.pop("hold", None)
        for name in {"output", "error", "input"} & options.keys():
            options[name] = replace(options[name], value=with_name(job.value(name), job.name))
        folder = Path(job.folder, job.value("chdir")) if "chdir" in options else Path(job.folder)
        if folder.resolve() == self._recording.folder.resolve():
            options.pop("chdir", None)
        else:
            options["chdir"] = Directive("chdir", str(folder), job.where)
        exported = job.value("export", "ALL").split(",")
        environment = self._environment(job)
        if "ALL" not in exported:
            environment = [(key, value) for key, value in environment if key in exported]
        path = None if "wrap" in options else self._path(job)
        first = self._beyond_variables(job)
        if first or (path is not None and not _is_text(job.text) and not job.rest):
            # a workflow file can contain only scripts that are text; other scripts are run by a command
            words = ["/bin/sh", "-c", job.value("wrap")]
            if path is not None:
                words = [*(job.text.partition("\n")[0].removeprefix("#!").split() or ["/bin/sh"])]
                words += [str(path.absolute() if "chdir" in options else path), *job.rest]
            options["wrap"] = Directive("wrap", f"exec {shlex.join([*first, *words])}", job.where)
            called = job.name if path is None else path.stem
            options.setdefault("job-name", Directive("job-name", called, job.where))
            path = None
        return Script(path, job.text, options, job.where, None, job.rest, (), environment=tuple(environment))

    def _environment(self, job: Submission) -> list[tuple[str, str]]:
        """Return the variables that the driver had set when it submitted a job."""
        found = []
        before = self._recording.environment
        is_of_interpreter = _of_interpreters(
            {key for key, value in job.environment.items() if before.get(key) != value}
        )
        for key, value in job.environment.items():
            if key in _OWN or value == before.get(key) or not key.isidentifier() or key.startswith("SBATCH_"):
                continue
            if (key.startswith("SLURM_") and (self._first or job.submitted_by)) or is_of_interpreter(key):
                continue
            if not _is_text(value):
                self._notes.add(f"${key} is no UTF-8, and left out", job.where)
                continue
            found.append((key, value))
        for key in ("PATH", "PYTHONPATH"):
            folders, at_first = (self._folders(variables.get(key, "")) for variables in (job.environment, before))
            folders = _without_shim(folders, at_first, job.environment)
            if folders and folders != at_first:
                # if PYTHONPATH was empty, `lib:$PYTHONPATH` ends with an empty entry: the current folder
                is_open = not at_first and job.environment[key].rpartition(":")[2] in self._recording.stand_ins
                found.append((key, f"{folders}:" if is_open else folders))
        return sorted(found)  # in an order that does not depend on how sbatch was started

    def _beyond_variables(self, job: Submission) -> list[str]:
        """Return a command to begin the job with, for what no key can express: bash functions and unset variables."""
        before = self._recording.environment
        if "ALL" not in job.value("export", "ALL").split(","):
            return []
        functions = []
        for key, value in sorted(job.environment.items()):
            if not key.startswith("BASH_FUNC_") or before.get(key) == value:
                continue
            if not (_is_text(value) and may_be_written(key, value)):
                name = key.removeprefix("BASH_FUNC_").removesuffix("%%")
                why = "has what looks like a password in it" if _is_text(value) else "is no UTF-8"
                self._notes.add(f"the driver exports the function {name}, which {why}: it is left out", job.where)
            else:
                functions.append(f"{key}={value}")
        # Slurm's variables are replaced by the job's own; names that are no identifiers are dropped by shells
        gone = sorted(
            key for key in before.keys() - job.environment.keys() - _OWN
            if key.isidentifier() and not key.startswith(("SLURM_", "SBATCH_", "SRUN_", "ASA_"))
        )  # fmt: skip
        return ["env", *(f"--unset={key}" for key in gone), *functions] if gone or functions else []

    def _folders(self, path: str) -> str:
        """Return a search path without the stand-ins and duplicates, which shells often add as they start."""
        return ":".join(dict.fromkeys(self._recording.without_stand_ins(path).split(":")))

    def _path(self, job: Submission) -> Path:
        """Return where a stage finds a script: its own path, or a copy in the kept folder if the driver made it."""
        path = Path(job.path) if job.path else None
        recording = self._recording
        text = job.text.encode(errors="surrogateescape")
        if path is not None and path not in recording.made.contents and _reads(path) == text:
            return path.relative_to(recording.folder) if path.is_relative_to(recording.folder) else path
        if path is not None and recording.made.contents.get(path) == text and path in recording.made.new:
            return self._kept / self._keep(path)
        return self._kept / self._keep_script(job, text)

    def _keep(self, path: Path) -> Path:
        """Keep a file that the driver made; return its path below the kept folder."""
        at = self._at(path)
        if path in self._recording.made.links:
            self._links[at] = self._recording.made.links[path]
        else:
            self._files[at] = self._recording.made.contents[path]
            if self._recording.made.modes[path] & 0o100:
                self._programs.add(at)
        return at

    def _at(self, path: Path) -> Path:
        folder = self._recording.folder
        return Path("files", path.relative_to(folder)) if path.is_relative_to(folder) else Path(f"elsewhere{path}")

    def _keep_script(self, job: Submission, text: bytes) -> Path:
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(job.path).name or f"{job.name}.sh").strip("-.") or "script"
        at, number = Path("scripts", stem), 1
        while self._files.get(at, text) != text:
            number += 1
            at = Path("scripts", f"{Path(stem).stem}-{number}{Path(stem).suffix}")
        self._files[at] = text
        self._programs.add(at)
        return at

    def _driver_itself(self) -> Script:
        """Return the driver, a batch job itself, as the first stage."""
        recording = self._recording
        script = recording.script
        assert script is not None
        text = read_file(script).decode(errors="surrogateescape")
        at = script.relative_to(recording.folder) if script.is_relative_to(recording.folder) else script
        given = recording.commands[0]
        words = given[given.index(recording.script_word) + 1 :]
        self._notes.add(f"{_IS_JOB}, and the first stage: {_SUBMITS_NOTHING}", str(script))
        return self._without_submitting(by_name(recording.own_options), text, at, words, str(script))

    def _driver_of_a_session(self, job: Submission) -> Script:
        """Return a session's driver that is itself a batch job, as the stage before the stages that it submits."""
        if "array" in job.directives:
            hint = "Take the option out of a copy that you record, or run what one element does."
            raise InputError("submits jobs in each element of an array", where=job.path, hint=hint)
        options = dict(job.directives)
        at = self._path(job)
        if Path(job.folder).resolve() != self._recording.folder.resolve():
            options["chdir"] = Directive("chdir", job.value("chdir", job.folder), job.where)
            at = at.absolute()
        self._notes.add(f"{_IS_JOB}, and a stage: {_SUBMITS_NOTHING}", job.path)
        made = self._without_submitting(options, job.text, at, job.arguments[1:], job.where)
        return replace(made, environment=tuple(self._environment(job)))

    def _without_submitting(
        self, options: dict[str, Directive], text: str, at: Path, words: Sequence[str], where: str
    ) -> Script:
        """Return the driver as a job without submission: its batch commands are replaced, as its jobs are stages."""
        for program in ("sbatch", "squeue", "sacct", "scancel", "scontrol"):
            self._files[Path("instead", program)] = _NOT_RUN.encode()
            self._programs.add(Path("instead", program))
        place = shlex.quote(str(self._recording.folder / self._kept / "instead"))
        interpreter = text.partition("\n")[0].removeprefix("#!").split()
        command = f"PATH={place}:$PATH exec {shlex.join([*interpreter, str(at), *words])}"
        options["wrap"] = Directive("wrap", command, where)
        options.setdefault("job-name", Directive("job-name", at.name, where))
        return Script(None, "", options, where, None, (), ())

    # ------------------------------------------------------------------ files made by the driver

    def _folders_made(self) -> list[str]:
        """Return the folders that a run is to make. Note names with job numbers, and names that are not UTF-8."""
        made, folder = self._recording.made, self._recording.folder
        for path in (*made.new, *made.folders):
            if numbers := self._numbers_in(_shown(path, folder)):
                self._notes.add(f"its name has the number of {numbers[0]}, which no run's job will have: {path}")
        folders = [_shown(path, folder) for path in _deepest(made.folders)]
        for name in folders:
            if not _is_text(name):
                self._notes.add(f"the driver made a folder whose name is no UTF-8, and no run will: {name}")
        return [name for name in folders if _is_text(name)]

    def _checks(self) -> list[str]:
        """Keep the earlier content of rewritten files; return commands that fail if these files have changed since."""
        checks = []
        folder = self._recording.folder
        for path, content in self._rewritten.items():
            at = self._at(path)
            if at in self._files:
                self._notes.add(f"the driver writes it anew, and so will a run, unless it is another by then: {path}")
                self._files["before" / at] = content
                old, new = (shlex.quote(str(self._kept / version)) for version in ("before" / at, at))
                checks.append(f"as_recorded {old} {new} {shlex.quote(_shown(path, folder))}")
        return [f"{_AS_RECORDED}\n{checks[0]}", *checks[1:]] if checks else []

    def _with_files(self, imported: Imported) -> Imported:
        """Add a stage that puts in place the files that the driver made, overwriting existing ones."""
        recording = self._recording
        if not recording.is_private:
            return imported
        for path in (*recording.made.new, *self._rewritten):
            text = recording.made.contents.get(path, b"").decode(errors="replace")
            if numbers := self._numbers_in(text):
                self._notes.add(
                    f"the driver wrote the number of {numbers[0]} into it, and no run's job will have that: it is "
                    f"left out: {path}"
                )
            else:
                self._keep(path)
        commands = self._checks()
        folders = self._folders_made()
        if folders:
            commands.append(f"mkdir -p -- {shlex.join(folders)}")
        kept = shlex.quote(str(self._kept))
        names = {at.parts[0] for at in (*self._files, *self._links)}
        commands += [f"cp -R {kept}/files/. ."] if "files" in names else []
        commands += [f"cp -R {kept}/elsewhere/. /"] if "elsewhere" in names else []
        if not commands:
            return imported
        name, number = FILES, 1
        while name in imported.workflow.stages:
            name, number = f"{FILES}-{number + 1}", number + 1
        first = Stage(name, cores=1, walltime_s=600.0, local=True, command=" && ".join(commands))
        stages = [
            stage if stage.after else replace(stage, after=(name,)) for stage in imported.workflow.stages.values()
        ]
        comments = {**imported.comments, name: ["Puts in place what the driver made before it submitted."]}
        workflow = Workflow(imported.workflow.name, [first, *stages])
        return replace(imported, workflow=workflow, comments=comments)


def _rewritten(recording: Recording) -> Iterator[tuple[Path, bytes]]:
    """Yield the files that the driver rewrote, such as lists or settings of a run, with their earlier content.

    Files to which it only appended, such as logs, and scripts that it submitted are left out: putting these back in a
    run would undo later additions.
    """
    made = recording.made
    scripts = {Path(job.path) for job in recording.jobs if job.path}
    for path in made.changed:
        new = made.contents.get(path)
        if new is None or path in scripts or path.is_symlink() or not _is_text(str(path)):
            continue
        old = _reads(path, _MAX_BYTES_BEFORE)
        if old is not None and len(old) < _MAX_BYTES_BEFORE and not new.startswith(old):
            yield path, old


def _is_text(value: str) -> bool:
    """Whether all bytes of a text are UTF-8."""
    return value.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in value)


def _without_detours(text: str) -> str:
    """Resolve ``FOLDER/..`` in the paths of a text.

    Examples
    --------
    >>> _without_detours("cat /tmp/x/run/../../lists/a ../b")
    'cat /tmp/lists/a ../b'
    """
    count = 1
    while count:
        text, count = _DETOUR.subn("", text)
    return text


def _of_interpreters(new: AbstractSet[str]) -> Callable[[str], bool]:
    """Return a function that tells whether an interpreter set a variable by itself.

    Examples
    --------
    >>> is_own = _of_interpreters({"MAKELEVEL", "MFLAGS", "VENDOR"})
    >>> [is_own(name) for name in ("MFLAGS", "VENDOR")]
    [True, False]
    """
    patterns = [pattern for marks, pattern in _OF_INTERPRETERS.items() if set(marks) <= new]
    is_own = re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or "(?!)").fullmatch
    return lambda name: name in new and is_own(name) is not None


def _without_shim(path: str, before: str, environment: Mapping[str, str]) -> str:
    """Leave out folders that the shim of a language, such as pyenv's, puts first in the search path.

    A job calls the shim again. That finds the same version, as it is in a variable.

    Examples
    --------
    >>> path = "/o/versions/3.9/bin:/o/libexec:/o/plugins/x/bin:/own:/o/shims:/bin"
    >>> _without_shim(path, "/o/shims:/bin", {"PYENV_VERSION": "3.9"})
    '/own:/o/shims:/bin'
    """
    folders, known = path.split(":"), before.split(":")
    versions = [
        version
        for name in ("PYENV", "RBENV", "NODENV")
        for version in environment.get(f"{name}_VERSION", "").split(":")
    ]
    for shims in {folder for folder in known if folder.endswith("/shims")}:
        root = shims.removesuffix("/shims")
        if f"{root}/libexec" in folders:
            of_shim = {f"{root}/libexec", *(f"{root}/versions/{version}/bin" for version in versions if version)}
            is_of_it = re.compile(
                "|".join([*map(re.escape, of_shim), rf"{re.escape(root)}/plugins/[^/]+/bin"])
            ).fullmatch
            folders = [folder for folder in folders if folder in known or not is_of_it(folder)]
    return ":".join(folders)


def _printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _of_a_failure(scripts: Sequence[Script]) -> Script:
    """Return a script to run after one of several others has failed."""
    stems = [script.path.stem if script.path is not None else "wrap" for script in scripts]
    names = [text_of(script.directives, "job-name") or stem for script, stem in zip(scripts, stems, strict=True)]
    where = scripts[0].where
    given = {"wrap": "true", "job-name": f"{'-or-'.join(names[:3])}-failed", "time": "1"}
    return Script(None, "", {name: Directive(name, value, where) for name, value in given.items()}, where)


def _following(script: Script, befores: Mapping[int, _For], *, any_will_do: bool, delay_s: float) -> Script:
    """Return a script that follows others, each with a kind of dependency."""
    whats = set(befores.values())
    when: When = "always" if whats == {"always"} else "failed" if "failed" in whats else "success"
    if any_will_do and len(befores) > 1 and when != "failed":
        when = "any"
    of_each = {what: tuple(place for place, before in befores.items() if before == what) for what in whats}
    return replace(
        script,
        submitted_after=tuple(befores),
        when=when,
        after_any=of_each.get("always", ()) if when != "always" else (),
        after_start=(after_start := of_each.get("begun", ())),
        start_delay_s=delay_s if after_start else 0.0,
        after_matching=of_each.get("elements", ()) if when == "success" else (),
    )


def _reads(path: Path, max_bytes: int = -1) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(max_bytes)
    except OSError:
        return None


def _deepest(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the folders that contain none of the others."""
    above = {parent for path in paths for parent in path.parents}
    return (path for path in paths if path not in above)


def _shown(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
