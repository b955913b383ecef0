"""``asa logs``: prints the output of a stage."""

from __future__ import annotations

import codecs
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.runs import (
    OrRunArgument,
    RunsOption,
    command,
    complete_runs,
    complete_stages,
    has_begun_in,
    latest_job,
    open_named,
    own_output,
    print_document,
    read_state,
)
from asa.cli.terminal import write_bytes, write_notice
from asa.core.files import in_words, open_file
from asa.core.options import Output, OutputOption
from asa.errors import JournalError, RunError
from asa.printable import on_one_line, printable, printable_in_colours
from asa.units import MAX_JOBS

if TYPE_CHECKING:
    from asa.runner import RunFolder
    from asa.runner.jobs import Job
    from asa.runner.state import RunState
    from asa.workflow import Stage

_DOES_NOT_RUN = {"blocked", "skipped", "dropped"}  # phases, as asa.strategies names them; it needs numpy
_BLOCK_BYTES = 1 << 16
_OF_HOST_LINES = 1000  # at the end of a log, among which are those that a host prints around the command's
_LOOK_S = 0.5
_ASK_S = 5.0

RunOption = Annotated[
    str,
    typer.Option(
        "--run",
        help="The run: its name, the beginning of it, or its folder. [default: the latest]",
        show_default=False,
        autocompletion=complete_runs,
    ),
]


def logs(
    stage: Annotated[str, typer.Argument(help="The stage.", autocompletion=complete_stages)],
    of_run: OrRunArgument = "",
    run: RunOption = "",
    errors: Annotated[bool, typer.Option("--err", help="Show its standard error.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing as the job writes, until it ends.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", help="Print only the last N lines; 0 for all.", min=0, max=MAX_JOBS)
    ] = 0,
    unit: Annotated[
        int | None,
        typer.Option(
            "--element",
            help="Of a job array, this element. [default: those that failed, or all]",
            min=0,
            max=MAX_JOBS,
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
    runs: RunsOption = None,
) -> None:
    """Show the output of a stage in its latest job, or in every job that takes tasks of the stage.

    If its standard output is empty, show its standard error.

    Of a job array, show the output of the elements that failed, or of all elements if none failed.

    On a terminal control characters are shown escaped; `asa logs STAGE | less -R` shows colours.

    Example: `asa logs search --follow`

    With `--output json`: one object; with --follow one line per part, as it arrives.

    Exit codes: 0 done, 1 there is nothing to show, 2 the input cannot be used, 130 interrupted.
    """
    from asa.cli.kinds import check_unit

    folder, state, stage = open_named(runs, stage, of_run, run, needs_stage=True)
    if unit is not None:
        check_unit(state, stage, unit)
    is_together = _prints_together(state.workflow.stages[stage])
    kind = "err" if errors or is_together else "out"
    files = log_files(folder, state, stage, kind, unit)
    if not (errors or is_together or follow) and (others := _instead(folder, state, stage, files, unit)):
        files, kind = others, "err"
        if output is Output.TABLE:
            write_notice(f"Stage {stage!r} wrote nothing to its standard output; this is its standard error.")
    if not files and not follow:
        _check_folder(folder)
        raise RunError(_nothing(state, stage), where=f"stage {stage!r}", hint=f"See: {command('status', folder)}")
    if follow:
        parts = _followed(folder, stage, kind, lines, unit)
    else:
        parts = ((job_id, chunk) for job_id, file in files for chunk in _read(file, lines))
    if output is Output.TABLE:
        if not _print(parts, _headings(folder, stage) if stage in state.workflow.shared else None) and not follow:
            way_to_see = "without --err: its standard output" if errors else "--err shows its standard error"
            write_notice(
                f"Stage {stage!r} wrote nothing to its standard {'error' if errors else 'output'}; {way_to_see}."
            )
        return
    head = {"run": folder.path.name, "stage": stage, "stream": "err" if errors else "out" if is_together else kind}
    if not follow:
        texts = {job_id: b"".join(_read(file, lines)).decode(errors="replace") for job_id, file in files}
        _, file = files[0]
        jobs = [{"job": job_id, "file": str(file), "text": texts[job_id]} for job_id, file in files]
        shared = {"jobs": jobs} if len(files) > 1 else {}
        print_document({**head, "file": str(file), "text": "".join(texts.values()), **shared}, indent=None)
        return
    decoders = _decoders("replace")
    for job_id, chunk in parts:
        print_document({**head, "job": job_id, "text": decoders[job_id].decode(chunk)}, indent=None)


def _check_folder(folder: RunFolder) -> None:
    """Raise an error if the folder of output files cannot be read."""
    path = folder.path / "logs"
    try:
        os.scandir(path).close()
    except FileNotFoundError:  # no job has written output yet
        return
    except OSError as error:
        raise JournalError(
            f"cannot be read: {error.strerror}", where=str(path), hint="Check its permissions."
        ) from error


def log_file(folder: RunFolder, state: RunState, stage: str, kind: str) -> Path | None:
    """Find an output file of a stage's latest job; None if there is no job."""
    job = _job_that_ran(state, stage)
    if job is None:
        return None
    file = _file_of(folder, job, kind, stage)
    # the job's own file may have the reason of its end
    if file is not None and job.step_of(stage) and not last_lines(file, 1):
        return folder.output_of(job.spec.token, job.status.job_id, kind)
    return file


def log_files(
    folder: RunFolder, state: RunState, stage: str, kind: str, unit: int | None = None
) -> list[tuple[str, Path]]:
    """Find the output files of a stage's latest job, or of all jobs that do its work, with their job numbers.

    `unit`: only the files of this unit, in a stage whose units have numbers.
    """
    from asa.cli.kinds import output_files

    job = _job_that_ran(state, stage)
    if job is None:
        return []
    file_of = partial(_file_of, folder, kind=kind, stage=stage)
    return output_files(folder, state, job, kind, file_of, unit)


def _instead(
    folder: RunFolder, state: RunState, stage: str, files: Sequence[tuple[str, Path]], unit: int | None
) -> list[tuple[str, Path]]:
    """Find the files of standard error, to be shown if all files of standard output are empty."""
    if any(map(_has_text, files)):
        return []
    return list(filter(_has_text, log_files(folder, state, stage, "err", unit)))


def _prints_together(stage: Stage) -> bool:
    """Whether a stage's output and errors go to the same file."""
    return bool(stage.stdout) and stage.stderr in {"", stage.stdout}


def _has_text(file: tuple[str, Path]) -> bool:
    try:
        return file[1].stat().st_size > 0
    except OSError:
        return False


def last_words(
    folder: RunFolder, state: RunState, stage: str, lines: int, *, of_units: bool = False
) -> tuple[Path | None, str]:
    """Return the last lines of a stage's standard error, or else of its standard output, and the file.

    `of_units`: look at the first unit that failed.
    """
    for kind in ("err", "out"):
        failed = log_files(folder, state, stage, kind) if of_units else []
        file = failed[0][1] if failed else log_file(folder, state, stage, kind)
        if file is not None and (last := _own_lines(folder, file, lines).strip("\n")).strip():
            return file, last
    return None, ""


def _own_lines(folder: RunFolder, file: Path, lines: int) -> str:
    """Return the last lines of a file; where a host ran the job's command, of those that the command printed."""
    if not folder.plan.host:
        return last_lines(file, lines)
    return "\n".join(own_output(folder, last_lines(file, _OF_HOST_LINES)).splitlines()[-lines:])


def logs_command(folder: RunFolder, stage: str, file: Path | None) -> str:
    """Write the command that shows the whole of a stage's output of which `last_words` found the last lines."""
    return command("logs", folder, stage, *(["--err"] if file is not None and file.suffix == ".err" else []))


def _file_of(folder: RunFolder, job: Job, kind: str, stage: str) -> Path | None:
    """Find the output file of a stage, by its job's token and number.

    Where several stages share the job, each has its own file; runs of earlier versions have only the job's.
    """
    token, job_id = job.spec.token, job.status.job_id
    if (step := job.step_of(stage)) and (file := folder.output_of(token, job_id, kind, step)) is not None:
        return file
    may_be_in_it = not step or job.status.state.is_final or has_begun_in(job, stage)
    return folder.output_of(token, job_id, kind) if may_be_in_it else None


def last_lines(file: Path, lines: int) -> str:
    """Read the last lines of a file of any length; an unreadable file counts as empty."""
    try:
        with open_file(file) as stream:
            start = stream.seek(0, os.SEEK_END)
            text = b""
            while start > 0 and text.count(b"\n") <= lines:
                step = min(_BLOCK_BYTES, start)
                start = stream.seek(start - step)
                text = stream.read(step) + text
    except OSError:
        return ""
    return b"".join(text.splitlines(keepends=True)[-lines:]).decode(errors="surrogateescape")


def _job_that_ran(state: RunState, stage: str) -> Job | None:
    """Return a stage's present or last job; None if the stage never ran in it."""
    job = latest_job(state, stage)
    is_its = job is not None and (state.stages[stage].job_id is not None or has_begun_in(job, stage))
    return job if is_its else None


def _nothing(state: RunState, stage: str) -> str:
    job, view = _job_that_ran(state, stage), state.stages[stage]
    if job is None and view.phase.value in _DOES_NOT_RUN:
        return f"it does not run: {view.reason}"
    if job is None:
        return "its job has not started yet" if latest_job(state, stage) else "its job was not submitted yet"
    if job.status.start_s is None:
        came = job.status.state
        begun = f"ended as {came.value} before it began" if came.is_final else "has not begun"
        return f"its job {job.status.job_id} {begun}"
    if job.step_of(stage) and not has_begun_in(job, stage):
        return f"its job {job.status.job_id} runs other stages before it"
    return f"there is no output file of its job {job.status.job_id} in the run's folder"


def _headings(folder: RunFolder, stage: str) -> Callable[[str], str]:
    """Return a function that writes the heading of a job's output: its number, and which elements it ran."""
    from asa.cli.kinds import headings

    known: dict[str, str] = {}

    def heading(job_id: str) -> str:
        if job_id not in known:  # of a job that began since
            known.update(headings(read_state(folder)[0], stage))
        return f"==> {known.get(job_id, '')}job {on_one_line(job_id)} <=="

    return heading


def _print(parts: Iterable[tuple[str, bytes]], heading: Callable[[str], str] | None) -> bool:
    """Print jobs' output; return whether there was any.

    `heading`: writes the heading of a job's output, where several jobs wrote it. On a terminal, control characters are
    escaped; a pipe or a file gets the bytes unchanged.
    """
    last, is_whole, is_any = "", True, False
    for job_id, chunk in _for_terminal(parts) if sys.stdout.isatty() else parts:
        if not chunk:
            continue
        if heading is not None and job_id != last:
            write_bytes(f"{'' if is_whole else chr(10)}{heading(job_id)}\n".encode())
        last, is_whole, is_any = job_id, chunk.endswith(b"\n"), True
        write_bytes(chunk)
    return is_any


def _for_terminal(parts: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Escape control characters other than colours; a progress bar that overwrites its line is printed line by line."""
    decoders, begun = _decoders("surrogateescape"), defaultdict[str, str](str)
    for job_id, chunk in parts:
        text = decoders[job_id].decode(chunk).replace("\r\n", "\n").replace("\r", "\n")
        shown, begun[job_id] = printable_in_colours(begun[job_id] + text)
        yield job_id, shown.encode(errors="surrogateescape")
    for job_id, rest in begun.items():
        yield job_id, printable(rest).encode()


def _decoders(errors: str) -> defaultdict[str, codecs.IncrementalDecoder]:
    """Return a decoder for each job, so that no character is split between two parts."""
    return defaultdict(partial(codecs.getincrementaldecoder("utf-8"), errors))


def _read(file: Path, lines: int) -> Iterator[bytes]:
    """Read a whole file, or its last lines."""
    return _all_of(file) if lines == 0 else iter([last_lines(file, lines).encode(errors="surrogateescape")])


def _all_of(file: Path) -> Iterator[bytes]:
    with in_words("cannot be read", file, "Check its permissions.", JournalError), open_file(file) as stream:
        while chunk := stream.read(_BLOCK_BYTES):
            yield chunk


def _followed(folder: RunFolder, stage: str, kind: str, lines: int, unit: int | None) -> Iterator[tuple[str, bytes]]:
    """Yield a stage's output as it is written, until its job ends; switch to the stage's new job if it gets one."""
    files: list[tuple[str, Path]] = []
    offsets: dict[Path, int] = {}
    asked_s, is_over = 0.0, False
    while True:
        if time.monotonic() >= asked_s:
            state, _ = read_state(folder)
            asked_s = time.monotonic() + _ASK_S
            job = latest_job(state, stage)
            is_out = state.stages[stage].phase.value in _DOES_NOT_RUN
            is_over = state.outcome is not None or is_out or (job is not None and job.status.state.is_final)
            is_first = not offsets
            files = log_files(folder, state, stage, kind, unit) or files
            for _, file in files:
                offsets.setdefault(file, _offset_of_last(file, lines) if is_first and lines else 0)
        is_quiet = True
        for job_id, file in files:
            if fresh := _from(file, offsets[file]):
                offsets[file] += len(fresh)
                is_quiet = False
                yield job_id, fresh
        if is_quiet and is_over:
            return
        if is_quiet:
            time.sleep(_LOOK_S)


def _offset_of_last(file: Path, lines: int) -> int:
    return max(file.stat().st_size - len(last_lines(file, lines).encode(errors="surrogateescape")), 0)


def _from(file: Path, offset: int) -> bytes:
    try:
        with open_file(file) as stream:
            stream.seek(offset)
            return stream.read(_BLOCK_BYTES)
    except OSError:
        return b""
