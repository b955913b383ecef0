"""Makes workflows of Slurm's batch scripts, and of shell scripts that submit them."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from asa.backend import partition_of
from asa.core.variables import is_secret
from asa.elements import Array, parse_array
from asa.errors import InputError
from asa.keys import TERMS
from asa.requests import without_size
from asa.requests.directives import Directive, head, read_directives, refuse_value, unseen
from asa.requests.options import KNOWN, OPTIONS, marked
from asa.requests.sizes import SIZES, Needs, parsed, read_needs, text_of
from asa.requests.together import refuse_together
from asa.requests.values import memory_bytes, walltime_s
from asa.requests.variables import MEMORY, VARIABLES, of_variables
from asa.shapes import Moldable
from asa.spec.printed import OF_EACH_JOB, has_pattern
from asa.spec.withheld import remedy, sounds_secret, uses_of
from asa.units import format_duration
from asa.workflow import LONGEST_WALLTIME_S, Stage, Workflow

from .arrays import (
    ArrayOption,
    ElementsOfJob,
    apart_because,
    array_text,
    for_elements,
    parts_of,
    read_array,
    shared,
    together,
)
from .base import Imported, ImportNotes, Names, near_or_all
from .driver import Script, is_driver, read_driver, read_script, refuse_drivers, refuse_rescue
from .site_defaults import default_walltime_s

_DEFAULT_WALLTIME_S: Final = 3600.0

_LEFT_OUT: Final[Mapping[str, str]] = {
    "dependency": "names jobs that nobody knows yet, and is left out: say `# asa: after=STAGE` in the script",
    "input": "is left out, for its file is another for each job: write `<FILE` where the script reads it",
    "test-only": "is left out: `asa run --dry-run` shows what would be submitted",
    "time-min": "is left out: asa must know how long a job may run",
}
"""Notes on options that are left out, for those without a general one."""
_MEANS_NOTHING: Final = "Leave it out."
_NOT_PASSED_ON: Final = SIZES | marked("key") | marked("asa") | {key.option for key in TERMS}

_COUNTS: Final = frozenset({"ntasks", "cpus-per-task"})

_OTHERS: Final[Mapping[str, str]] = {
    "#$": "Grid Engine",
    "#COBALT": "Cobalt",
    "#CCS": "OpenCCS",
    "#MSUB": "Moab",
    "#OAR": "OAR",
    "#PJM": "Fujitsu's TCS",
    "#FLUX:": "Flux",
}
_OF_OTHERS: Final = re.compile(r"(#\$|#COBALT|#CCS|#MSUB|#OAR|#PJM|#FLUX:)\s+-")

_MOST_ROWS: Final = 1000
# if a job takes elements one after the other, its walltime is the sum of at most this number of their walltimes
_MOST_IN_TURN = 4


def import_scripts(
    paths: Sequence[Path],
    *,
    parallel: bool = False,
    array_cores: int | None = None,
    share_arrays: bool = False,
    pack_arrays: bool = False,
    name: str = "",
) -> Imported:
    """Make a workflow of batch scripts; the files are not changed.

    Each script becomes a stage that follows the previous one. A script may name its predecessors in a comment before
    its first command (``# asa: after=prepare,align``, or ``# depends: prepare align``). If any does, each follows those
    that it names, and the others follow none. If a shell script submits batch scripts with ``sbatch``, the dependencies
    are read from it.

    `pack_arrays`: pack elements of a job array into common jobs, if possible; else it stays a job array.
    `array_cores`: upper bound of such a job's cores; if given, arrays are packed. By default 32, or more if there would
    be more than 100 jobs.
    `share_arrays`: make an array whose elements can run in one job a single stage, whose jobs take the elements from
    one bag.
    `name`: of the workflow; by default the single script's, or the folder's.
    Returns the workflow, and notes about the translation.
    Raises `InputError`, with file and line: a file cannot be read, or contains what sbatch would refuse or what cannot
    be translated.
    """
    notes = ImportNotes()
    if len(paths) == 1 and is_driver(paths[0]):
        scripts = read_driver(paths[0], notes)
        header = [f"From {paths[0]} by `asa import scripts`: that script itself is not run any more."]
    else:
        scripts = [read_script(path) for path in paths]
        refuse_drivers(scripts)
        header = [
            "From batch scripts by `asa import scripts`. Their #SBATCH lines are not read again: this file counts."
        ]
    choices = ImportChoices(array_cores, is_shared=share_arrays, is_packed=pack_arrays)
    return workflow_of(scripts, notes, choices, name=name or _called(paths), parallel=parallel, header=header)


@dataclass(frozen=True, slots=True)
class ImportChoices:
    """The way in which job arrays are imported; see `import_scripts`."""

    cores: int | None = None
    is_shared: bool = False
    is_packed: bool = False


def workflow_of(
    scripts: Sequence[Script],
    notes: ImportNotes,
    choices: ImportChoices,
    *,
    name: str,
    parallel: bool = False,
    header: Sequence[str] = (),
) -> Imported:
    """Make a workflow of scripts and the options of their submission."""
    packs = choices.is_packed or choices.is_shared or choices.cores is not None
    translator = _Translator(notes, choices.cores, share_arrays=choices.is_shared, packs=packs)
    made = [translator.stages_of(script) for script in scripts]
    befores = _befores(scripts, made, notes, parallel=parallel)
    stages = [_placed(stage, befores[i], made, scripts[i], notes) for i, group in enumerate(made) for stage in group]
    for script, before, group in zip(scripts, befores, made, strict=True):
        if before and script.when != "always" and any(stage.after for stage in group):
            note = "an element that fails keeps those behind it in its row from beginning until `asa resume --retry`"
            notes.add(f"--array: {note}", script.directives["array"].where)
    return Imported(
        Workflow(name, stages),
        scripts=translator.paths,
        notes=notes.sentences(),
        header=header,
        comments=translator.comments,
    )


def _called(paths: Sequence[Path]) -> str:
    """Return the name of a workflow: its single script's, or that of the scripts' folder."""
    return paths[0].stem if len(paths) == 1 else paths[0].absolute().parent.name or "workflow"


def _placed(
    stage: Stage, befores: Sequence[int], made: Sequence[Sequence[Stage]], script: Script, notes: ImportNotes
) -> Stage:
    """Return a stage with its predecessors. Parts of an array keep the part that they follow.

    As with elements in Slurm, a part follows the part before it however that ended. But if the array follows a stage, a
    part follows only a completed part: it would otherwise run even if that stage had failed. If the array runs in any
    case, so do all its parts.
    """
    if not stage.after:
        by_element = [before for before in script.after_matching if _has_all_elements(made[before], stage)]
        others = [made[before] for before in script.after_matching if before not in by_element]
        if any(stage.array or len(group) > 1 or group[0].array for group in others):
            notes.add("`aftercorr` becomes: after the whole of the other array has completed", script.where)
        after, after_any, after_start, after_matching = (
            tuple(end.name for before in befores if before in some for end in made[before])
            for some in (befores, script.after_any, script.after_start, by_element)
        )
        return replace(
            stage,
            after=after,
            after_any=after_any,
            after_start=after_start,
            start_delay_s=script.start_delay_s if after_start else 0.0,
            after_matching=after_matching,
            when=script.when if after else "success",
        )
    return stage if befores and script.when != "always" else replace(stage, when="always")


def _has_all_elements(befores: Sequence[Stage], stage: Stage) -> bool:
    """Whether the predecessor of a stage is a single array with all elements of the stage."""
    theirs = befores[0].array if len(befores) == 1 else None
    return theirs is not None and stage.array is not None and not stage.array.all - theirs.all


def _befores(
    scripts: Sequence[Script], made: Sequence[Sequence[Stage]], notes: ImportNotes, *, parallel: bool
) -> list[list[int]]:
    """Return for each script the indices of its predecessors."""
    if any(script.submitted_after is not None for script in scripts):
        return [list(script.submitted_after or ()) for script in scripts]
    if parallel:
        return [[] for _ in scripts]
    if all(script.after is None for script in scripts):
        return [[i - 1] if i else [] for i in range(len(scripts))]
    known: dict[str, int] = {}
    for i in reversed(range(len(scripts))):
        path = scripts[i].path
        job = scripts[i].directives.get("job-name")
        for called in (path and path.stem, path and path.name, job and job.value, made[i][0].name):
            if called:
                known[called] = i
    for script in scripts:
        if script.after is None:
            notes.add("says nothing of what it comes after, and may begin at once", script.where)
    return [[_index(called, where, known) for called, where in script.after or ()] for script in scripts]


def _index(called: str, where: str, known: Mapping[str, int]) -> int:
    if called not in known:
        raise InputError(
            f"comes after {called!r}, which is none of the scripts", where=where, hint=near_or_all(called, known)
        )
    return known[called]


def rows_of(number: int, value: str) -> list[str]:
    """Return the rows in which Slurm shows a job that has begun: one for each element of an array.

    Parameters: its number, and the value of its ``--array``, empty if it has none.

    Examples
    --------
    >>> rows_of(7, "1-3%2"), rows_of(7, "")
    (['7_1', '7_2', '7_3'], ['7'])
    """
    if not value:
        return [str(number)]
    return [f"{number}_{index}" for index in islice(parse_array(array_text(value)).elements, _MOST_ROWS)]


class _Translator:
    """Makes the stages of scripts, without their edges, and collects names and notes."""

    def __init__(self, notes: ImportNotes, array_cores: int | None, *, share_arrays: bool, packs: bool) -> None:
        self.paths: dict[str, Path] = {}
        self.comments: dict[str, list[str]] = {}
        self._names = Names()
        self._notes = notes
        self._array_cores = array_cores
        self._share_arrays = share_arrays
        self._packs_arrays = packs

    def stages_of(self, script: Script) -> list[Stage]:
        """Return the stages of a script: several if it is an array whose elements are to share jobs."""
        given = script.directives
        self._tell(script)
        name = self._names.take(text_of(given, "job-name") or (script.path.stem if script.path else "wrap"))
        needs = read_needs(given, self._notes.add)
        is_array = "array" in given
        is_native = is_array and not self._packs_arrays
        request = _request(given) if is_native or not is_array else None
        size: dict[str, Any] = needs.fields() if request is None else {}  # else the size is taken from the request
        stage = Stage(
            name=name,
            **size,
            walltime_s=self._walltime_s(script, name),
            partition=partition_of(text_of(given, "clusters"), text_of(given, "partition")),
            **{key.field: parsed(key.of_option, given[key.option]) for key in TERMS if key.option in given},
            options=_options(given, needs),
            request=request,
            environment=tuple(dict((*self._given_by_the_driver(script), *self._environment(script))).items()),
            secrets=self._secrets(given, name),
            moldable=Moldable(needs.widths) if needs.widths and not is_array else None,
            array=self._native(given["array"]) if is_native else None,
            **self._printed(script, name),
        )
        self._tell_of_withheld(stage, script)
        if is_array and not is_native:
            return self._array(script, stage, needs)
        if script.path is None or script.arguments or "chdir" in given or _read_from(script):
            return [self._with_command(script, stage)]
        self.paths[name] = script.path
        return [replace(stage, script=script.text)]

    def _printed(self, script: Script, name: str) -> dict[str, Any]:
        """Return `stdout` and `stderr`: the files that the job's output goes to."""
        given = script.directives
        may_add = text_of(given, "open-mode").startswith("a")
        made: dict[str, Any] = {}
        for option, key in (("output", "stdout"), ("error", "stderr")):
            pattern, directive = text_of(given, option), given.get(option)
            if directive is None:
                continue
            is_added = may_add and not has_pattern(pattern, OF_EACH_JOB)
            if is_added or not pattern or pattern.endswith("/"):
                why = "asa adds nothing to another job's file" if is_added else "it names no file"
                self._notes.add(f"--{option} is left out, for {why}: `asa logs` shows what jobs print", directive.where)
                continue
            made[key] = _pattern(pattern, script, name)
        return made

    def _secrets(self, given: Mapping[str, Directive], name: str) -> tuple[str, ...]:
        """Return the names of secrets in --export; variables with secrets are otherwise not passed on."""
        words = text_of(given, "export").split(",")
        names = tuple(dict.fromkeys(word for word in words if word.isidentifier() and sounds_secret(word)))
        if names:
            self.comments.setdefault(name, []).append("secrets: as --export names them; set them where you start asa")
        return names

    def _given_by_the_driver(self, script: Script) -> Iterator[tuple[str, str]]:
        """Yield the variables that the driver sets, except secrets, which are not written down."""
        for name, value in script.environment:
            if not may_be_written(name, value):
                note = (
                    f"the driver sets ${name}, which holds a secret and is not written down: set it where you start asa"
                )
                self._notes.add(note, script.where)
            else:
                yield name, value

    def _tell_of_withheld(self, stage: Stage, script: Script) -> None:
        """Note which variables the script uses and will not get, as they hold secrets."""
        for use in uses_of(replace(stage, script=script.text), Path()):
            note = f"${use.name} holds a secret and goes on to no job: if the stage needs it, {remedy([use.name])}"
            self._notes.add(note, f"{use.file}:{use.line}" if use.file else f"{script.path}:{use.line}")

    def _tell(self, script: Script) -> None:
        """Note options and lines that are left out."""
        refuse_together(script.directives)
        if external := script.directives.get("external"):
            hint = "Leave it out, or submit this job by hand."
            raise InputError("--external: such a job runs no script", where=external.where, hint=hint)
        for directive in script.directives.values():
            refuse_value(directive)
            if directive.name == "dependency":
                for part in re.split(r"[,?]", directive.value or ""):
                    refuse_rescue(part.partition(":")[0], directive.where)
            if sentence := _left_out(directive, script):
                self._notes.add(f"--{directive.name} {sentence}", directive.where)
            if directive.name not in KNOWN:
                self._notes.add(f"{directive} is no option of plain Slurm, and is passed on", directive.where)
        for number, line in head(script.text):
            if line.startswith(("#PBS", "#BSUB")):
                self._notes.add(f"{line.split()[0]} is not read here, though sbatch may", f"{script.path}:{number}")
            elif match := _OF_OTHERS.match(line):
                note = f"{match[1]} is an option of {_OTHERS[match[1]]}, which neither sbatch nor asa reads"
                self._notes.add(note, f"{script.path}:{number}")
        self._tell_of_several(script)
        self._tell_of_unseen(script)

    def _tell_of_several(self, script: Script) -> None:
        """Note an option that is given several times and that releases of sbatch read differently."""
        options = [option for option in read_directives(script.text, str(script.path)) if option.name == "mail-type"]
        if len(options) > 1:
            note = "--mail-type: all are asked for, as by sbatch up to 24.11; that of 26.05 takes the last"
            self._notes.add(note, options[-1].where)

    def _tell_of_unseen(self, script: Script) -> None:
        """Note lines that sbatch does not read, and variables of this shell that it would read."""
        for number, why in unseen(script.text):
            self._notes.add(why, f"{script.path}:{number}")
        for name, value in of_variables(os.environ, "").items():
            own = script.directives.get(name)
            if own is None and name in marked("job"):
                self._notes.add(f"{VARIABLES[name]} is set here, and sbatch would read it as {value}; it is left out")
            elif own is not None and own.where != script.where and own.value != value.value:
                note = f"{VARIABLES[name]} is set here, and sbatch would take {value} in place of {own}, which is kept"
                self._notes.add(note, own.where)

    def _with_command(self, script: Script, stage: Stage) -> Stage:
        folder = text_of(script.directives, "chdir")
        command = _command(script)
        if script.path is not None:
            command = f"exec {command}"  # signals then reach the script itself
        if folder:
            command = f"cd {shlex.quote(folder)} {'|| exit;' if script.path is None else '&&'} {command}"
        self._tell_of_path(script)
        return replace(stage, command=command)

    def _tell_of_path(self, script: Script) -> None:
        """Note when and where the script is found."""
        if script.path is not None:
            self._notes.add("the script is read when its stage begins, not when it is submitted", script.where)
            if not Path(_path_of(script)).is_absolute():
                self._notes.add(f"{script.path} is looked for from the folder in which asa is started", script.where)

    def _walltime_s(self, script: Script, name: str) -> float:
        directive = script.directives.get("time")
        if directive is not None and (seconds := parsed(walltime_s, directive)):
            return seconds
        if directive is None and (site_s := default_walltime_s(text_of(script.directives, "partition"))) is not None:
            self.comments.setdefault(name, []).append("walltime: what this site gives to a job that asks for none")
            return min(site_s, LONGEST_WALLTIME_S)
        guess = format_duration(_DEFAULT_WALLTIME_S)
        self.comments.setdefault(name, []).append(f"walltime: {guess} is a guess, for the script asks for none")
        what = "no --time" if directive is None else f"{directive} is no limit, and a stage has one"
        self._notes.add(f"{what}: a walltime of {guess} is put in; correct it", script.where)
        return _DEFAULT_WALLTIME_S

    def _environment(self, script: Script) -> tuple[tuple[str, str], ...]:
        given = script.directives
        words = text_of(given, "export").split(",")
        if "export" in given and "ALL" not in words:
            sentence = "--export: a stage also has the variables of the shell that asa is started in"
            self._notes.add(sentence, given["export"].where)
        pairs = [word.partition("=") for word in words if "=" in word]
        variables = [(name, value) for name, _, value in pairs]
        if "SLURM_JOB_NAME" in (script.text or _command(script)):  # the jobs of a run do not have the script's name
            variables.insert(0, ("SLURM_JOB_NAME", _job_of(script)))
        # asa does not ask for one core, and Slurm sets the variable only if it was asked for
        if text_of(given, "cpus-per-task") == "1":
            variables.insert(0, ("SLURM_CPUS_PER_TASK", "1"))
        return tuple(variables)

    def _native(self, directive: Directive) -> Array:
        """Return the elements of a stage that stays a job array."""
        array = parsed(lambda text: parse_array(array_text(text)), directive)
        count = len(array.elements)
        at_once = f", {array.at_once} at once at most" if array.at_once else ""
        stay = "1 element stays" if count == 1 else f"{count} elements stay"
        note = f"--array: {stay} a job array{at_once}"
        self._notes.add(note, directive.where)
        return array

    def _array(self, script: Script, stage: Stage, needs: Needs) -> list[Stage]:
        """Return the stages of an array, in rows: each stage follows the one before it in its row."""
        directive = script.directives["array"]
        array = read_array(directive)
        why = apart_because(stage, _text_of(script), needs)
        if not why and script.path is None and "\n" in _command(script):
            why = "the command has several lines"
        most = 1 if why else together(array, needs.cores, self._array_cores)
        if not why and (stage.stdout or stage.stderr):
            note = "--output: elements share jobs, and so what these print: it is left out, and `asa logs` shows it"
            self._notes.add(note, directive.where)
            stage = replace(stage, stdout="", stderr="")
        stage = replace(stage, environment=(*stage.environment, ("ASA_ARRAY", stage.name), *array.variables))
        if self._share_arrays and not why and array.at_once > 1:
            self._tell_of_path(script)
            return [self._bag(script, stage, array, needs.cores)]
        parts = parts_of(array, most, directive.where)
        self._tell_of_array(directive, array, parts, why)
        stages: list[Stage] = []
        for part in parts:
            part_stage = replace(stage, after=() if part.follows is None else (stages[part.follows].name,))
            if len(parts) > 1:
                first, last = part.elements[0], part.elements[-1]
                numbers = f"{first}" if first == last else f"{first}-{last}"
                part_stage = replace(part_stage, name=self._names.take(f"{stage.name[:50]}-{numbers}"))
                self.comments[part_stage.name] = list(self.comments.get(stage.name, ()))
            stages.append(
                self._element(script, part_stage, part.elements[0]) if why else _elements(script, part_stage, part)
            )
        if not why:
            self._tell_of_path(script)
        return stages

    def _bag(self, script: Script, stage: Stage, array: ArrayOption, cores: int) -> Stage:
        """Make all elements one stage; jobs take them from a bag; the jobs can hold all that may run at once.

        If not all elements may run at once, a job's walltime is for several elements one after the other.
        """
        count, at_once = len(array.elements), array.at_once
        jobs = max(math.ceil(at_once / shared(array, cores, self._array_cores)), 2)
        width = math.ceil(at_once / jobs) if at_once == count else at_once // jobs
        in_turn = min(math.ceil(count / (width * jobs)), _MOST_IN_TURN)
        made = _elements(script, stage, ElementsOfJob(array.elements, None), at_once=width * jobs)
        times = "an element's walltime" if in_turn == 1 else f"{in_turn} times an element's walltime"
        note = (
            f"--array: {count} elements become tasks of one stage, taken by {jobs} jobs, {width} at a time in each; a "
            f"job asks for {times}, and what has not ended when that is over runs again in another"
        )
        self._notes.add(note, script.directives["array"].where)
        return replace(made, **for_elements(stage, width), jobs=(jobs, jobs), walltime_s=in_turn * stage.walltime_s)

    def _element(self, script: Script, stage: Stage, number: int) -> Stage:
        """Return the stage of one element with its own job."""
        element = replace(
            stage,
            environment=(*stage.environment, ("SLURM_ARRAY_TASK_ID", str(number))),
            options=without_size(stage.options),
            cores=None,  # the size is taken from the request again
            cpus_per_task=1,
            memory_bytes=0,
            gpus=0,
            request=_request(script.directives),
        )
        if script.path is None or script.arguments or "chdir" in script.directives:
            return self._with_command(script, element)
        self.paths[element.name] = script.path
        return replace(element, script=script.text)

    def _tell_of_array(
        self, directive: Directive, array: ArrayOption, parts: Sequence[ElementsOfJob], why: str
    ) -> None:
        count, most = len(array.elements), max(len(part.elements) for part in parts)
        if why:
            made = f"become a stage each, for {why}"
        elif len(parts) == 1:
            made = "become tasks of one stage, side by side"
        else:
            made = f"become tasks of {len(parts)} stages, at most {most} in each"
        note = f"--array: {count} elements {made}; each keeps its walltime, and what follows waits for all"
        self._notes.add(note, directive.where)
        if array.at_once < count:
            note = (
                f"--array: %{array.at_once} is kept: no more elements run at once, for stages follow each other in rows"
            )
            self._notes.add(note, directive.where)


def _left_out(directive: Directive, script: Script) -> str:
    """Return the note that an option is left out and why; empty if it is kept, or leaving it out changes nothing."""
    name = directive.name
    if name == "input" and (_read_from(script) or directive.value == "/dev/null"):
        return ""
    instead = OPTIONS[name].instead if name in marked("asa") else _MEANS_NOTHING
    if instead == _MEANS_NOTHING:
        return ""
    why = f": {instead[0].lower()}{instead[1:].removesuffix('.')}" if instead else ""
    return _LEFT_OUT.get(name, f"is left out{why}")


def may_be_written(name: str, value: str) -> bool:
    """Whether a variable, or a function that bash exports, may be written into a file: it holds no secret."""
    return not is_secret("function" if name.startswith("BASH_FUNC_") else name, value)


def _pattern(pattern: str, script: Script, name: str) -> str:
    r"""Return the pattern of an output file for a stage: in the job's folder, with the job's name if it differs.

    Examples
    --------
    >>> given = {"job-name": Directive("job-name", "fit model", "a.sh:2")}
    >>> _pattern(r"logs/%x-%%x-%j", Script(None, "", given, "a.sh"), "fit_model")
    'logs/fit model-%%x-%j'
    """
    given, job = script.directives, _job_of(script)
    if job != name:
        pattern = with_name(pattern, job)
    folder = text_of(given, "chdir")
    return str(Path(folder.replace("%", "%%")) / pattern) if folder and not pattern.startswith("/") else pattern


def _job_of(script: Script) -> str:
    """Return the name that sbatch gives to a script's job."""
    return text_of(script.directives, "job-name") or (script.path.name if script.path else "wrap")


def with_name(pattern: str, job: str) -> str:
    r"""Put a job's name into the pattern of an output file.

    Examples
    --------
    >>> with_name("%x-%%x-%j", "50%"), with_name(r"a\%x", "fit")
    ('50%%-%%x-%j', 'a\\%x')
    """
    if "\\" in pattern:  # Slurm then replaces nothing
        return pattern
    return _OF_NAME.sub(lambda match: match[0] if match[1] == "%" else job.replace("%", "%%"), pattern)


_OF_NAME = re.compile(r"%(%|\d*x)")


def refuse_options(given: Mapping[str, Directive]) -> None:
    """Refuse a job's options as sbatch and Slurm do on every site.

    Raises `InputError`, with file and line of a refused option.
    """
    for directive in given.values():
        refuse_value(directive)
    refuse_together(given)
    if "time" in given:
        parsed(walltime_s, given["time"])
    if text_of(given, "array"):
        parsed(lambda text: parse_array(array_text(text)), given["array"])
    for name in MEMORY & given.keys():
        parsed(memory_bytes, given[name])
    for name in _COUNTS & given.keys():
        if not text_of(given, name).strip("0"):
            raise InputError(f"{given[name]} is none", where=given[name].where, hint="sbatch would refuse it, too.")


def _request(given: Mapping[str, Directive]) -> tuple[str, ...]:
    """Return the options that give its job's size, unchanged."""
    return tuple(str(directive) for directive in given.values() if directive.name in SIZES)


def _options(given: Mapping[str, Directive], needs: Needs) -> tuple[str, ...]:
    """Return the options that are passed on to Slurm."""
    return (*needs.options, *(str(d) for d in given.values() if d.name not in _NOT_PASSED_ON))


def _elements(script: Script, stage: Stage, part: ElementsOfJob, *, at_once: int = 0) -> Stage:
    """Return the stage of elements that share a job, as tasks; `at_once` at the same time, 0 for all."""
    count = at_once or len(part.elements)
    folder = text_of(script.directives, "chdir")
    there = f"cd {shlex.quote(folder)} && " if folder else ""
    command = _command(script)
    wrapped = "export {}; {}" if script.path is None else "exec env {} {}"  # signals then reach the script itself
    if script.path is not None and _read_from(script):
        wrapped = "export {}; exec {}"  # the shell expands the element's index in the name of the input
    return replace(
        stage,
        cores=(stage.cores or 1) * count,
        memory_bytes=stage.memory_bytes * count,
        request=None,
        **for_elements(stage, count),
        tasks=tuple(there + wrapped.format(f"SLURM_ARRAY_TASK_ID={i}", command) for i in part.elements),
    )


def _text_of(script: Script) -> str:
    return script.text if script.path is not None else _command(script)


def _command(script: Script) -> str:
    """Return the command that runs a script, or the command given with --wrap."""
    source = _read_from(script)
    if script.path is None:
        command = text_of(script.directives, "wrap")
        return f"/bin/sh -c {shlex.quote(command)} {source}" if source else command
    first = script.text.partition("\n")[0]
    command = shlex.join([*first.removeprefix("#!").split(), _path_of(script), *script.arguments])
    return f"{command} {source}".rstrip()


def _read_from(script: Script) -> str:
    r"""Return the redirection of a script's input; empty if there is none, or only the job knows the file's name.

    Examples
    --------
    >>> given = {"input": Directive("input", "in %x.%a", "a.sh:2")}
    >>> print(_read_from(Script(Path("a.sh"), "", given, "a.sh")))
    <'in 'a.sh."$SLURM_ARRAY_TASK_ID"
    """
    pattern = text_of(script.directives, "input")
    if not pattern or pattern == "/dev/null":
        return ""
    if "\\" in pattern:  # Slurm then replaces nothing
        return "<" + shlex.quote(pattern.replace("\\", ""))
    name = text_of(script.directives, "job-name") or (script.path.name if script.path else "wrap")
    in_shell = {"%a": '"$SLURM_ARRAY_TASK_ID"', "%u": '"$USER"', "%x": shlex.quote(name), "%%": "%"}
    parts = re.split("(%.?)", pattern)
    if any(part.startswith("%") and part not in in_shell for part in parts):
        return ""
    return "<" + "".join(in_shell.get(part) or shlex.quote(part) for part in parts if part)


def _path_of(script: Script) -> str:
    """Return the path of a script for a command that runs it."""
    path = script.path or Path()
    return str(path.absolute() if "chdir" in script.directives else path)
