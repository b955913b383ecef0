"""Reads shell scripts that submit batch scripts with sbatch: which scripts, and their dependencies.

No shell is run, so only common patterns of job chains are understood.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from asa.core.words import split
from asa.errors import InputError
from asa.requests.directives import Directive, by_name, head, read_directives, refuse_components, take_options
from asa.requests.variables import with_variables
from asa.spec.calls import Scripts, run_by, submits_from_python
from asa.spec.shell import SHELLS, interpreter_of

from .base import ImportNotes, is_file, near_or_all, read_text
from .guards import Guards, word_of
from .statements import (
    SBATCH,
    ScriptContext,
    changed,
    command_at,
    count_calls,
    lines,
    literal,
    plain,
    statements,
    writes,
)

_ASSIGNED = re.compile(r"\s*(?:export\s+|local\s+|declare\s+)?(\w+)(\+?)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)[^}]*\}|(\w+))")
_KIND = re.compile(r"\b(after[a-z]+|after(?=:)|singleton)\b")
_OTHERS = re.compile(r"(?<![\w+$\uf724])\d+(?![\w])")  # numbers of jobs that the driver did not submit
_REDIRECTED = re.compile(r"(?:\d*|&)>(?:>|\|)?(&?.*)", re.DOTALL)
_AFTER = re.compile(r"#+\s*(?:asa:\s*after\s*=|depends?:)(.*)", re.IGNORECASE)
_CHANGES_JOBS = re.compile(r"\s*(?:scancel|scontrol\s+update)\b")
_PRINTS_NUMBER = re.compile(r"\||--pars")  # text around sbatch that leaves only the job's number
_ALL_KEPT = re.compile(r"\$\{\w+//[^\d/}]/[^\d/}]\}")  # replaces what separates several numbers, and keeps all of them
_QUIET = re.compile(r"\s*(?:$|#|echo\b|printf\b|set\b|exit\b|if\b|then\b|else\b|fi\b|export\b|squeue\b|\[|\{|\}|:)")
_IN_LOOPS = re.compile(r"\s*(?:for|while|until|select|done|break|continue|sleep)\b")
_SINGLETON = "singleton"
_NO_KINDS = frozenset({_SINGLETON, "expand"})
_TOGETHER = re.compile(r"^(after[a-z]*)(\$\{?\w+\}?)")  # a variable that begins with the colon
_EXPORTED = re.compile(r"\s*export\s+(\w+)\s*")
_BEFORE = re.compile(r"(?:^|[\s(`])(\w+)=([^\s(`]*)(?=\s)")  # assignments before a command: variables of that job alone
_UNKNOWN = re.compile(r"\$[\w@*#?!{($\"'\\-]|`")
_NO_NAME = re.compile(r"\$[@*#?!($\"'\\-]|\$\{\W|`")
_SUBSCRIPT = re.compile(r"\[(?![@*]\])")
_WAITS = re.compile(r"\b(?:squeue|sacct|scontrol|sstat|sleep)\b")
_CHANGES_FILES = re.compile(r"\b(?:tee|cp|mv|ln|sed|perl|python\d?|ed|install|patch|git|curl|wget|tar|rsync)\b")
_EXPORTS_ALL = re.compile(r"\s*set\s+(?:-\w*a\w*|-o\s+allexport)\s*")
_SEVERAL_EXPORTED = re.compile(r"""\s*export((?:\s+\w+=(?:[^\s"'`($]|"[^"`(]*"|'[^']*'|\$\w+|\$\{\w+\})*){2,})\s*""")
_ONE_EXPORTED = re.compile(r"""(?<!\w)\w+=(?:[^\s"']|"[^"]*"|'[^']*')*""")
_OTHER_BRANCH = re.compile(r"(?:^|;)\s*(?:else|elif)\b")
_PUT_IN = re.compile(r"\$\([^()]*\)|`[^`]*`")  # a command whose output is put in
_EXPANDED = re.compile(r"[*?]|\[[^]]+\]|^~|\{[^{}]*(?:,|\.\.)[^{}]*\}")


When = Literal["success", "any", "failed", "always"]


@dataclass(frozen=True, slots=True)
class Script:
    """A batch script, and the options of its submission."""

    path: Path | None  # its file; None for a command submitted with `--wrap`
    text: str
    directives: Mapping[str, Directive]  # options by name; the last of several
    where: str  # the file; for a script that another submits, file and line
    # names in its comments of the scripts that it comes after, each with file and line; None if there is no such
    # comment
    after: tuple[tuple[str, str], ...] | None = None
    arguments: tuple[str, ...] = ()  # its command-line arguments
    submitted_after: tuple[int, ...] | None = None  # for a script of a driver: indices of the scripts that it waits for
    when: When = "success"  # the required ends of those jobs, as in `asa.workflow.Stage.when`
    environment: tuple[tuple[str, str], ...] = ()  # variables that the driver sets for the job
    # of `submitted_after`: jobs that need only have ended; jobs that must have begun, and how long ago; arrays of which
    # only the element with the same index must have completed
    after_any: tuple[int, ...] = ()
    after_start: tuple[int, ...] = ()
    start_delay_s: float = 0.0
    after_matching: tuple[int, ...] = ()


def read_script(path: Path) -> Script:
    """Read a batch script."""
    text = read_text(path, keep_mark=True)
    if text.startswith("\ufeff"):
        hint = "Save it as UTF-8 without one: sbatch refuses it."
        raise InputError("begins with a byte order mark", where=f"{path}:1", hint=hint)
    if not text.startswith("#!"):
        hint = "Begin it with the line #!/bin/sh, or with what else is to run it."
        raise InputError("is no batch script: sbatch would refuse it", where=f"{path}:1", hint=hint)
    if "\r\n" in text:
        raise InputError("has the line ends of DOS", where=f"{path}:1", hint="sbatch refuses it; dos2unix mends it.")
    directives = by_name(read_directives(text, str(path)))
    return Script(path, text, directives, str(path), _predecessors(text, str(path)))


def _predecessors(text: str, file: str) -> tuple[tuple[str, str], ...] | None:
    said: list[tuple[str, str]] | None = None
    for number, line in head(text):
        if match := _AFTER.match(line.strip()):
            said = (said or []) + [(name, f"{file}:{number}") for name in re.split(r"[\s,]+", match[1]) if name]
    return None if said is None else tuple(said)


def is_driver(path: Path) -> bool:
    """Whether a shell script submits batch scripts."""
    text = read_text(path)
    return not read_directives(text, str(path)) and calls_sbatch(text)


def calls_sbatch(text: str) -> bool:
    """Whether a script calls sbatch."""
    calls = count_calls if interpreter_of(text) in SHELLS else SBATCH.search
    return any(calls(statement) for _, line in lines(text) for statement in statements(line))


def refuse_drivers(scripts: Sequence[Script]) -> None:
    """Refuse a script that runs or submits others, since it is no stage; unless a comment names its predecessors."""
    given = Scripts({str(script.path): script.path for script in scripts if script.path is not None})
    for script in scripts:
        if script.path is None or script.after is not None:
            continue
        is_shell = interpreter_of(script.text) in SHELLS
        if is_shell and len(scripts) > 1 and not script.directives and calls_sbatch(script.text):
            hint = f"Import it alone: asa import scripts {shlex.quote(str(script.path))}; or leave it out."
            raise InputError("submits jobs itself, and cannot be one stage among others", where=script.where, hint=hint)
        if names := run_by(script.text, [script.path.parent, Path()], given, script.path):
            after = f"# asa: after={Path(names[0]).name}"
            raise InputError(
                f"itself runs {', '.join(names)}, given here, too: that would run twice",
                where=script.where,
                hint=f"Leave {script.path.name} out; or if it is a stage as well, say so in its head, as in {after}",
            )
        if is_shell and script.directives and calls_sbatch(script.text):
            hint = "If it submits itself again, make it a stage that continues. "
            hint += to_record(script.path, "; or if it is meant so, say in its head what it follows: # asa: after=")
            raise InputError("submits jobs itself, of which the workflow would not know", where=script.where, hint=hint)
        if not script.directives and submits_from_python(script.text):
            hint = to_record(script.path, "; or import the scripts that it submits.")
            raise InputError("submits jobs itself, and is no stage", where=script.where, hint=hint)


_BY_SUFFIX = {".py": "python3", ".pl": "perl", ".csh": "csh", ".tcsh": "tcsh", ".R": "Rscript", ".rb": "ruby"}


def to_record(path: Path, otherwise: str = "") -> str:
    """Return a hint: how to run the driver once and record what it submits."""
    text = read_text(path)
    interpreter = _BY_SUFFIX.get(path.suffix, "bash") if not text.startswith("#!") else interpreter_of(text)
    program = "" if os.access(path, os.X_OK) and text.startswith("#!") else f"{interpreter} "
    name = str(path) if program or path.is_absolute() or "/" in str(path) else f"./{path}"
    command = f"asa import scripts --record -- {program}{shlex.quote(name)} ARGUMENTS"
    return f"Record what it submits when it runs, which submits nothing: {command}{otherwise}"


def refuse_rescue(kind: str, where: str) -> None:
    """Refuse a dependency on another job's failure."""
    if kind == "afternotok":
        message = "this job begins only if another fails (afternotok), and not so that a stage's `when` could say it"
        hint = (
            "A stage can follow the failure of one job that is submitted here, or of any of several (`?`). "
            "Leave this one out, and submit it if the run fails: asa run flow.toml || sbatch SCRIPT"
        )
        raise InputError(message, where=where, hint=hint)


def read_driver(path: Path, notes: ImportNotes) -> list[Script]:
    """Read which batch scripts a shell script submits, with which options and dependencies.

    It understands ``j=$(sbatch --parsable a.sh)``, also with backquotes or followed by ``| awk '{print $4}'``;
    variables made from others; options on the command line; and ``-d`` or ``--dependency`` with ``afterok``,
    ``afternotok``, ``afterany``, ``after``, ``aftercorr`` and ``singleton``.

    Raises `InputError`, with file and line: a submission is known only at run time, as in a loop around sbatch.
    """
    driver = _Driver(path, notes)
    for number, line in lines(read_text(path)):
        has_else = bool(_OTHER_BRANCH.search(line))
        for statement in statements(line):
            driver.statement(statement, f"{path}:{number}", has_else=has_else)
    return driver.scripts


class _Driver:
    """The variables of a driver, as known after each statement."""

    def __init__(self, path: Path, notes: ImportNotes) -> None:
        self.scripts: list[Script] = []
        self._path = path
        self._notes = notes
        self._jobs: dict[str, tuple[int, ...]] = {}
        self._kinds: dict[str, tuple[str, ...]] = {}  # by variable: kinds of dependencies in its text
        self._sentences: set[str] = set()  # variables with the whole output of sbatch, not only the number
        self._texts: dict[str, str] = {name: os.environ[name] for name in ("HOME", "USER") if name in os.environ}
        self._exported: dict[str, str] = {}
        self._around = ScriptContext()
        self._exports_all = False
        self._written: list[str] = []  # statements that may change files
        self._waited = ""  # where the driver waits for a job; jobs that it submits later follow that job
        self._guards = Guards(self._text_in_test)

    @property
    def _hint(self) -> str:
        return to_record(self._path, "; or write it without what is known only then.")

    def _also(self, hint: str) -> str:
        return f"{hint} {to_record(self._path)}."

    def statement(self, line: str, where: str, *, has_else: bool) -> None:
        """Process a statement; `has_else`: whether another branch begins in its line."""
        several = _SEVERAL_EXPORTED.fullmatch(line)
        for export in [f"export {name}" for name in _ONE_EXPORTED.findall(several[1])] if several else [line]:
            self._take_in(export, where)
        self._guards.enter(line, where, has_else=has_else)

    def _take_in(self, line: str, where: str) -> None:
        match = SBATCH.search(line)
        self._around.enter(line, where)
        self._refuse_uncertain(line, match, where)
        assigned = _ASSIGNED.fullmatch(line)
        if match is None:
            self._forget(line, assigned[1] if assigned else "", where)
            self._note_effects(line, where)
        if match is not None:
            index = self._submission(command_at(line, match.start(1)), where, line[match.start() : match.start(1)])
            if assigned:
                self._number(assigned[1], assigned[3], index, adds=bool(assigned[2]))
        elif assigned:
            self._assignment(assigned[1], assigned[3].strip(), adds=bool(assigned[2]), where=where)
            if _EXPORTED.match(line) or self._exports_all:
                self._export(assigned[1], where)
        elif exported := _EXPORTED.fullmatch(line):
            self._export(exported[1], where)
        elif _CHANGES_JOBS.match(line) and any((name[1] or name[2]) in self._jobs for name in _VARIABLE.finditer(line)):
            raise InputError("changes a job that was submitted", where=where, hint=self._hint)
        elif self._is_left_out(line):
            self._notes.add("what the script does besides sbatch is not taken over", where)
        self._around.leave(line)

    def _is_left_out(self, line: str) -> bool:
        """Whether a statement has an effect that the workflow lacks."""
        return writes(line) or not (_QUIET.match(line) or _IN_LOOPS.match(line))

    def _note_effects(self, line: str, where: str) -> None:
        """Note effects that make later submissions uncertain: exported variables, changed files, waiting for jobs."""
        self._exports_all |= bool(_EXPORTS_ALL.fullmatch(line))
        if writes(line) or _CHANGES_FILES.search(line):
            self._written.append(self._filled(line, ""))
        if self._around.loops and _WAITS.search(line):
            self._waited = where

    def _refuse_uncertain(self, line: str, match: re.Match[str] | None, where: str) -> None:
        """Refuse a submission that may not happen exactly once, as it is written, in this folder."""
        if count_calls(line) > (match is not None):
            raise InputError("calls sbatch in a way that is not understood", where=where, hint=self._hint)
        if match is not None and (doubt := self._around.doubt(line, match.start(1))):
            hint = (
                self._also("Write the path of the script, and --chdir, in place of cd.")
                if "folder" in doubt
                else self._hint
            )
            raise InputError(f"sbatch {doubt}", where=where, hint=hint)
        if match is not None and self._guards.ended:
            raise InputError(f"sbatch comes after an exit: see {self._guards.ended}", where=where, hint=self._hint)
        if match is not None and self._guards.doubtful:
            message = f"sbatch is called unless the script ends before: see {self._guards.doubtful}"
            raise InputError(message, where=where, hint=self._hint)
        if match is not None and self._waited:
            message = f"sbatch is called once the script has waited: see {self._waited}"
            raise InputError(message, where=where, hint=self._hint)

    def _text_in_test(self, word: str) -> str | None:
        """Return the text of a word in a test, if known; any text for a job's number."""
        bare = word.strip("\"'")
        variable = _VARIABLE.fullmatch(bare)
        if variable and (variable[1] or variable[2]) in self._jobs:
            return "1"
        if self._around.moved:
            return None
        return (
            word_of(word)
            if "$" not in word
            else word_of(f'"{text}"')
            if "$" not in (text := self._filled(bare, ""))
            else None
        )

    def _forget(self, line: str, assigned: str, where: str) -> None:
        """Forget the variables that a statement may change, except the one that it assigns."""
        known, names = self._texts.keys() | self._jobs.keys(), changed(line)
        for name in (known if names is None else names & known) - {assigned}:
            self._texts.pop(name, None)
            self._jobs.pop(name, None)
            if name in self._exported:
                self._export(name, where)

    def _export(self, name: str, where: str) -> None:
        """Pass a variable to the jobs that are submitted later, as sbatch does."""
        if name in self._texts:
            self._exported[name] = self._texts[name]
        elif name not in self._jobs:
            self._exported.pop(name, None)
            self._notes.add(
                f"export {name}: its value is known only when the script runs: set it where you start asa", where
            )
        else:
            self._exported.pop(name, None)
            self._notes.add(
                f"export {name}: it holds a job's number, which no run's job will have: it is left out", where
            )

    def _number(self, name: str, value: str, index: int, *, adds: bool) -> None:
        """Set a variable to the number of a job, with the further jobs that its value names."""
        rest = literal(_PUT_IN.sub("", value))
        rest = re.split(r"\$\(|`", rest)[0]
        jobs, kinds = self._named_in(name, rest, adds=adds)
        self._texts.pop(name, None)
        self._kinds[name] = kinds
        self._jobs[name] = tuple(dict.fromkeys((*jobs, index)))
        (self._sentences.discard if _PRINTS_NUMBER.search(value) else self._sentences.add)(name)

    def _named_in(self, name: str, value: str, *, adds: bool) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the jobs that a variable's new value names, and the kinds of dependencies on them."""
        jobs = self._jobs.get(name, ()) if adds else ()
        kinds = (*(self._kinds.get(name, ()) if adds else ()), *_KIND.findall(value), *_OTHERS.findall(value))
        for reference in _VARIABLE.finditer(value):
            if self._is_number(reference):
                jobs += self._jobs.get(reference[1] or reference[2], ())
            kinds += self._kinds.get(reference[1] or reference[2], ())
        return jobs, kinds

    def _assignment(self, name: str, value: str, *, adds: bool, where: str) -> None:
        value = literal(value)
        jobs, kinds = self._named_in(name, value, adds=adds)
        before = self._texts.pop(name, None)
        self._jobs.pop(name, None)
        self._kinds[name] = kinds
        self._sentences.discard(name)
        if jobs:
            self._jobs[name] = tuple(dict.fromkeys(jobs))
        elif not re.search(r"[`(]", value):
            try:
                words = split(value, comments=True)
            except ValueError as error:
                raise InputError(f"cannot be read: {error}", where=where, hint=self._hint) from error
            text = self._filled(words[0], "") if len(words) == 1 else ""
            is_known = len(words) <= 1 and not _UNKNOWN.search(text) and self._around.is_certain
            if is_known and not (adds and before is None):
                self._texts[name] = (before or "") + text if adds else text
            if name in self._exported:
                self._export(name, where)

    def _submission(self, command: str, where: str, before: str) -> int:
        command, before = literal(command), literal(before)
        if printed := _PUT_IN.search(command):
            raise InputError(f"{plain(printed[0])} is known only when the script runs", where=where, hint=self._hint)
        if "<" in command:
            raise InputError("sbatch reads the script from its input", where=where, hint=self._hint)
        try:
            words = list(_without_redirections(split(command, comments=True)[1:]))
        except ValueError as error:
            raise InputError(f"cannot be read: {error}", where=where, hint=self._hint) from error
        given, rest = take_options(list(self._parted(words, command, where)), where)
        if rest[:1] == [":"]:
            refuse_components(where)
        waits = next((w for option in reversed(given) if (w := self._waits_of(option)) is not None), None)
        above = by_name(self._known(option) for option in given if option.name != "dependency")
        if "wrap" in above:
            script = Script(None, "", {}, where)
        elif not rest:
            raise InputError("sbatch is given no script", where=where, hint=self._hint)
        else:
            script = read_script(self._script(rest[0], where))
        directives = dict(script.directives)
        if waits is not None or _is_singleton(directives):
            directives.pop("dependency", None)
            waits = waits or _WaitsFor(is_singleton=True)
        arguments = tuple(self._filled(word, where) for word in rest[1:])
        if bad := next((word for word in arguments if _EXPANDED.search(word)), ""):
            raise InputError(f"{bad} is expanded only when the script runs", where=where, hint=self._hint)
        own = {name: self._filled(value.strip("'\""), where) for name, value in _BEFORE.findall(before)}
        environment = tuple((self._exported | own).items())
        directives = with_variables(directives, dict(environment), above, where)
        if "wait" in directives:
            self._waited = where
        made = Script(script.path, script.text, directives, where, None, arguments, environment=environment)
        self.scripts.append(self._placed(made, waits or _WaitsFor()))
        return len(self.scripts) - 1

    def _placed(self, script: Script, waits: _WaitsFor) -> Script:
        """Return a script with what its job waits for."""
        ends = self._for_all(waits, script.where)
        after, ends = self._with_namesakes(script, waits, ends) if waits.is_singleton else (waits.jobs, ends)
        return replace(script, submitted_after=after, **ends)

    def _with_namesakes(
        self, script: Script, waits: _WaitsFor, ends: dict[str, Any]
    ) -> tuple[tuple[int, ...], dict[str, Any]]:
        """Return what a singleton waits for, and how that is to end: also the earlier jobs of its name, in any way."""
        others = [at for at, one in enumerate(self.scripts) if _slurm_name(one) == _slurm_name(script)]
        alike = tuple(at for at in others if at not in waits.jobs)
        if ends.get("when", "always") != "always":  # of any job, or of failures
            self._notes.add(f"the dependency `{_SINGLETON}` is left out", script.where)
            return waits.jobs, ends
        self._notes.add(
            f"`{_SINGLETON}` becomes: after the earlier jobs of its name here, not of other runs", script.where
        )
        if not waits.jobs and alike:
            return alike, {"when": "always"}
        if "when" in ends:
            return (*waits.jobs, *alike), ends
        return (*waits.jobs, *alike), {**ends, "after_any": (*ends.get("after_any", ()), *alike)}

    def _known(self, option: Directive) -> Directive:
        value = None if option.value is None else self._filled(option.value, option.where)
        return Directive(option.name, value, option.where)

    def _script(self, word: str, where: str) -> Path:
        """Return the path of the script that is submitted; it must exist and not be changed by the driver."""
        name = self._filled(word, where)
        if _EXPANDED.search(name):
            raise InputError(f"{name} is expanded only when the script runs", where=where, hint=self._hint)
        named = re.compile(rf"(?<![\w.-]){re.escape(Path(name).name)}(?![\w.-])")
        if any(map(named.search, self._written)):
            raise InputError(f"{name} may be written or changed by this script", where=where, hint=self._hint)
        return self._found(name, where)

    def _found(self, name: str, where: str) -> Path:
        """Find a script as the shell would, in the current folder, or else in the driver's folder."""
        candidates = [Path(name), self._path.parent / name]
        file = next(filter(is_file, candidates), None)
        if file is None:
            raise InputError(
                f"submits {name}, which is not there",
                where=where,
                hint=self._also(near_or_all(name, self._neighbours())),
            )
        return file

    def _neighbours(self) -> Iterable[str]:
        return sorted(entry.name for entry in self._path.parent.iterdir() if entry.is_file())[:50]

    def _filled(self, text: str, where: str) -> str:
        """Replace variables by their values."""

        def value(reference: re.Match[str]) -> str:
            name = reference[1] or reference[2]
            if name.startswith("SLURM_"):  # a variable of the job, in the text of --wrap
                return reference[0]
            is_whole = reference[0] in {f"${name}", f"${{{name}}}"}
            if where and not (is_whole and name in self._texts):
                raise InputError(f"${name} is known only when the script runs", where=where, hint=self._hint)
            return self._texts.get(name, reference[0]) if is_whole else reference[0]

        if where and _NO_NAME.search(text):
            raise InputError(f"{plain(text)} is known only when the script runs", where=where, hint=self._hint)
        return plain(_VARIABLE.sub(value, text))

    def _parted(self, words: Sequence[str], command: str, where: str) -> Iterator[str]:
        """Yield the words; a word that consists of one variable is split, as shells split unquoted variables."""
        for word in words:
            variable = _VARIABLE.fullmatch(word)
            name = (variable[1] or variable[2]) if variable else ""
            is_whole = word in {f"${name}", f"${{{name}}}"}
            if not is_whole or name in self._jobs or f'"{word}"' in command:
                yield word
            elif name not in self._texts:
                raise InputError(f"{word} is known only when the script runs", where=where, hint=self._hint)
            else:
                yield from self._texts[name].split()

    def _waits_of(self, option: Directive) -> _WaitsFor | None:
        """Read the dependencies in an option; None if the option has none."""
        if option.name != "dependency":
            return None
        jobs: list[int] = []
        ended: dict[int, bool] = {}  # of each job, whether it need only have ended
        kinds: set[str] = set()
        minutes: set[int] = set()
        value = self._text_of(option.value or "")
        for part in map(self._text_of, re.split(r"[,?]", value)):
            kind, _, ids = _TOGETHER.sub(r"\1:\2", part).partition(":")
            variable = _VARIABLE.fullmatch(kind)
            if variable and (name := variable[1] or variable[2]) in self._jobs:  # deps="afterok:$j1:$j2"
                jobs += self._jobs[name]
                kinds |= set(self._kinds.get(name, ()))
            else:
                kinds.add(self._filled(kind, option.where))
            kinds |= set(_OTHERS.findall(ids))
            numbers = self._numbers(ids, option.where) if kind not in _NO_KINDS else ()
            jobs += numbers
            if not variable:
                ended |= {number: kind == "afterany" and ended.get(number, True) for number in numbers}
            minutes |= {self._minutes(number, option.where) for number in ids.split(":") if kind == "after"}
        for kind in sorted(kinds & _NO_KINDS - {_SINGLETON}):
            self._notes.add(f"the dependency `{kind}` is left out", option.where)
        named = {kind for kind in kinds - _NO_KINDS if not _OTHERS.fullmatch(kind)}
        has_others = any(_OTHERS.fullmatch(kind) for kind in kinds)
        if has_others or (named and not jobs):
            self._notes.add("a dependency on a job from elsewhere is left out", option.where)
        return _WaitsFor(
            tuple(dict.fromkeys(jobs)),
            frozenset(named),
            any_will_do="?" in value,
            has_others=has_others,
            minutes=frozenset(minutes),
            ended=tuple(job for job, only in ended.items() if only) if len(ended) == len(set(jobs)) else None,
            is_singleton=_SINGLETON in kinds,
        )

    def _text_of(self, value: str) -> str:
        """Return the text of a variable if the value refers to a variable of known text; else the value."""
        variable = _VARIABLE.fullmatch(value)
        return self._texts.get(variable[1] or variable[2], value) if variable else value

    def _for_all(self, waits: _WaitsFor, where: str) -> dict[str, Any]:
        """Return the fields of a script for its dependencies.

        Add a note where the meaning changes; refuse dependencies that no stage can have.

        `afternotok` of several jobs requires that all have failed. A stage can only follow one failure.
        """
        if "afternotok" in waits.kinds:
            is_any = len(waits.jobs) == 1 or waits.any_will_do
            if waits.kinds != {"afternotok"} or not waits.jobs or waits.has_others or not is_any:
                refuse_rescue("afternotok", where)
            return {"when": "failed"}
        is_any = waits.any_will_do and len(waits.jobs) > 1
        if waits.kinds == {"afterany"} and waits.jobs:
            return {"when": "any", "after_any": waits.jobs} if is_any else {"when": "always"}
        if waits.kinds == {"afterok", "afterany"} and waits.ended is not None and not is_any:
            return {"after_any": waits.ended}
        when: dict[str, Any] = {"when": "any"} if is_any else {}
        if waits.kinds == {"after"} and waits.jobs and len(waits.minutes) <= 1:
            return when | {"after_start": waits.jobs, "start_delay_s": 60.0 * max(waits.minutes, default=0)}
        if waits.kinds == {"aftercorr"} and not is_any:
            return {"after_matching": waits.jobs}
        for kind in sorted(waits.kinds - {"afterok"}):
            sentence = f"`{kind}` becomes: after the other has completed; if that fails, this stage does not run"
            self._notes.add(sentence, where)
        return when

    def _minutes(self, reference: str, where: str) -> int:
        """Return the minutes in ``after:JOB+MINUTES``."""
        text = self._filled(reference.partition("+")[2] or "0", where)
        if not text.isdecimal():
            raise InputError(f"+{text} is no number of minutes", where=where, hint=self._hint)
        return int(text)

    def _is_number(self, reference: re.Match[str]) -> bool:
        """Whether a reference to a variable yields all its job numbers; only a part of a single number may be taken."""
        name = reference[1] or reference[2]
        is_whole = reference[0] in {f"${name}", f"${{{name}}}"} or _ALL_KEPT.fullmatch(reference[0])
        return bool(is_whole) or len(self._jobs.get(name, ())) <= 1

    def _numbers(self, ids: str, where: str) -> Sequence[int]:
        numbers: list[int] = []
        if "_" in _VARIABLE.sub("", ids):
            self._notes.add("a dependency on an element of an array becomes: on the whole array", where)
        for reference in _VARIABLE.finditer(ids):
            name = reference[1] or reference[2]
            if _SUBSCRIPT.search(reference[0]) or not self._is_number(reference):
                raise InputError(
                    f"{plain(reference[0])} is known only when the script runs", where=where, hint=self._hint
                )
            if name not in self._jobs:
                hint = self._also(near_or_all(name, self._jobs)) if self._jobs else self._hint
                raise InputError(f"${name} is the number of no job that was submitted before", where=where, hint=hint)
            if name in self._sentences and reference[0] in {f"${name}", f"${{{name}}}"}:
                self._notes.add(
                    f"${name} is taken for the number of a job: Slurm's sbatch prints a sentence without --parsable, "
                    "and would refuse that as a dependency",
                    where,
                )
            numbers += self._jobs[name]
        return numbers


def _without_redirections(words: Iterable[str]) -> Iterator[str]:
    """Yield the words of a command without redirections."""
    each = iter(words)
    for word in each:
        redirected = _REDIRECTED.fullmatch(word)
        if redirected is None:
            yield word
        elif not redirected[1]:
            next(each, "")  # skip the file


def _is_singleton(directives: Mapping[str, Directive]) -> bool:
    return "dependency" in directives and directives["dependency"].value == _SINGLETON


def _slurm_name(script: Script) -> str:
    """Return the name of a script's job in Slurm."""
    named = script.directives.get("job-name")
    return (named and named.value) or (script.path.name if script.path else "wrap")


@dataclass(frozen=True, slots=True)
class _WaitsFor:
    """The dependencies of a job: the other jobs, their required ends, and whether one of them suffices."""

    jobs: tuple[int, ...] = ()
    kinds: frozenset[str] = frozenset()
    any_will_do: bool = False
    has_others: bool = False
    minutes: frozenset[int] = frozenset()  # delays after the beginning of these jobs
    ended: tuple[int, ...] | None = None  # jobs that need only have ended; None if not known of each
    is_singleton: bool = False  # whether it waits for the earlier jobs of its name
