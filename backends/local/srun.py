"""In place of Slurm's ``srun``, in jobs of this computer: starts the tasks of one step, as processes here.

Options that only place tasks on a cluster are ignored. Options that would change what the tasks do, and cannot be met
here, are refused with a sentence. Only the standard library is needed: jobs may outlive the asa that asked for them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn


def _among(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LETTERS = {
    "A": "account", "C": "constraint", "D": "chdir", "G": "gpus", "I": "immediate", "J": "job-name",
    "K": "kill-on-bad-exit", "N": "nodes", "O": "overcommit", "Q": "quiet", "S": "core-spec", "W": "wait",
    "X": "disable-status", "c": "cpus-per-task", "d": "dependency", "e": "error", "i": "input", "k": "no-kill",
    "l": "label", "m": "distribution", "n": "ntasks", "o": "output", "p": "partition", "q": "qos", "r": "relative",
    "s": "oversubscribe", "t": "time", "u": "unbuffered", "v": "verbose", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_WITH_VALUE = _among(
    "account acctg-freq bb bbf begin chdir clusters comment compress constraint core-spec cores-per-socket cpu-bind "
    "cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution epilog error exclude export "
    "extra-node-info gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input "
    "job-name jobid licenses mail-type mail-user mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi msg-timeout network "
    "nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output partition "
    "power priority profile prolog qos relative reservation signal slurmd-debug sockets-per-node switches "
    "threads-per-core time time-min tmp tres-bind tres-per-task wait wckey"
)
_PERHAPS_WITH_VALUE = frozenset(["exclusive", "immediate", "kill-on-bad-exit", "nice", "no-kill", "propagate", "pty"])
_WITHOUT = _among(
    "contiguous disable-status exact interactive label overcommit overlap oversubscribe preserve-env quiet "
    "quit-on-interrupt reboot spread-job unbuffered use-min-nodes verbose whole"
)
_KNOWN = _WITH_VALUE | _PERHAPS_WITH_VALUE | _WITHOUT
_FIELD = re.compile(r"%(\d*)(.)?")
_MPI = re.compile(r"\blib(mpi|mpich|mpi_\w+|mpicxx)[.-]")
_SIGNALS = (signal.SIGCONT, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_LOOK_S = 20.0  # seconds that `ldd` may take


class StandInError(Exception):
    """A requested option cannot be met on this computer."""


@dataclass(frozen=True, slots=True)
class Request:
    """The options and the command of one call."""

    command: Sequence[str]
    tasks: int
    cores_per_task: int
    folder: str = ""
    added: Mapping[str, str] = field(default_factory=dict)  # variables
    output: str = ""
    error: str = ""
    input: str = ""
    labels: bool = False
    ends_together: bool = False  # if one fails, all others are ended
    is_mpi: bool = False


def read(words: Sequence[str], variables: Mapping[str, str]) -> Request:
    """Read a command line.

    Raises `StandInError`.

    Examples
    --------
    >>> read(["-n4", "--label", "-c", "2", "./fit", "-n", "8"], {"SLURM_CPUS_ON_NODE": "8"}).command
    ['./fit', '-n', '8']
    """
    given, command = _options(words)
    if not command:
        raise StandInError("there is no program to run")
    for name, only in (("nodes", "1"), ("relative", "0")):
        if given.get(name, only).partition("-")[0] != only:
            raise StandInError(f"--{name}={given[name]}: this computer is one node")
    tasks, cores = _size(given, variables)
    names = [given.get(name, "") for name in ("output", "error", "input")]
    for name in names:
        if bad := [match[0] for match in _FIELD.finditer(name) if match[2] not in {*"jJtnNsu%"}]:
            raise StandInError(f"{name}: {bad[0]} is not replaced here, but %j, %J, %N, %n, %s, %t and %u are")
    return Request(
        command=command,
        tasks=tasks,
        cores_per_task=cores,
        folder=given.get("chdir", ""),
        added=_added(given.get("export", "ALL")),
        output=names[0],
        error=names[1],
        input=names[2],
        labels="label" in given,
        ends_together=given.get("kill-on-bad-exit", "0") != "0",
        is_mpi=given.get("mpi", "none") not in {"none", "list"},
    )


def _options(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options by their long names, and the command."""
    given, rest = dict[str, str](), list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            name = _whole_name(name)
            if name in _WITH_VALUE and not has_value:
                value = _next(rest, word)
            given[name] = value
            continue
        letters = word[1:]
        while letters:
            name = _whole_name(_LETTERS.get(letters[0], f"-{letters[0]}"))
            letters = letters[1:]
            given[name] = ""
            if name in _WITH_VALUE:
                given[name], letters = letters.removeprefix("=") or _next(rest, word), ""
            elif name in _PERHAPS_WITH_VALUE:
                given[name], letters = letters.removeprefix("="), ""
    if given.get("kill-on-bad-exit") == "":
        given["kill-on-bad-exit"] = "1"
    return given, rest


def _whole_name(name: str) -> str:
    if name in _KNOWN:
        return name
    begun = [known for known in sorted(_KNOWN) if known.startswith(name)]
    if len(begun) != 1:
        word = name if name.startswith("-") else f"--{name}"
        raise StandInError(f"there is no {word} here; run this stage on a cluster, or start its program without srun")
    return begun[0]


def _next(rest: list[str], word: str) -> str:
    if not rest:
        raise StandInError(f"{word} needs a value")
    return rest.pop(0)


def _size(given: Mapping[str, str], variables: Mapping[str, str]) -> tuple[int, int]:
    """Count tasks, and cores of each."""
    per_node = _number(given, "ntasks-per-node", 0)
    tasks = _number(given, "ntasks", per_node or _in(variables, "SLURM_NTASKS", 1))
    cores = _number(given, "cpus-per-task", _in(variables, "SRUN_CPUS_PER_TASK", 1))
    has = _in(variables, "SLURM_CPUS_ON_NODE", 0)
    if per_node and tasks > per_node:
        raise StandInError(f"{tasks} tasks, of which a node runs {per_node}, need more nodes than this computer is")
    if has and tasks * cores > has and "overcommit" not in given:
        hint = "Let the stage ask for more, or give --overcommit."
        raise StandInError(f"{tasks} tasks with {cores} each are more than the job's cores, {has}. {hint}")
    return tasks, cores


def _number(given: Mapping[str, str], name: str, otherwise: int) -> int:
    text = given.get(name, str(otherwise))
    if not text.isdecimal() or (name in given and int(text) < 1):
        raise StandInError(f"--{name}={text} is no number of at least 1")
    return int(text)


def _in(variables: Mapping[str, str], name: str, otherwise: int) -> int:
    text = variables.get(name, "")
    return int(text) if text.isdecimal() else otherwise


def _added(export: str) -> dict[str, str]:
    first, _, rest = export.partition(",")
    pairs = [pair.partition("=") for pair in rest.split(",") if pair]
    if first != "ALL" or not all(sign for _, sign, _ in pairs):
        raise StandInError(f"--export={export}: variables can be added, as --export=ALL,NAME=value, and none left out")
    return {name: value for name, _, value in pairs}


def _file(name: str, task: int) -> str:
    """Replace the patterns for task, node and job in a file's name."""
    job = os.environ.get("SLURM_JOB_ID", "0")
    node = os.environ.get("SLURM_JOB_NODELIST", os.uname().nodename)
    values = {"t": str(task), "n": "0", "N": node, "j": job, "J": f"{job}.0", "s": "0", "%": "%"}

    def value(match: re.Match[str]) -> str:
        text = values.get(match[2]) or os.environ.get("USER", "")
        return text.zfill(min(int(match[1] or 0), 10)) if text.isdecimal() else text

    return _FIELD.sub(value, name)


# ---------------------------------------------------------------------- running a step


def _is_of_mpi(program: str) -> bool:
    """Whether a program is linked with an MPI library; a script is not, although it may start such a program."""
    try:
        done = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=_LOOK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return _MPI.search(done.stdout) is not None


# The queue may have more slots than this computer has cores, which Open MPI refuses by default: 4 and 5 each have
# their own variable.
_CROWDED = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def _by_mpiexec(asked: Request) -> NoReturn:
    """Start an MPI program with mpiexec; without it, each process would take itself for the only one."""
    program = asked.command[0]
    if shutil.which("mpiexec") is None:
        raise StandInError(f"{program} is to run in {asked.tasks} processes of MPI, and there is no mpiexec here")
    if asked.labels or asked.output or asked.error or asked.input:
        raise StandInError(f"{program} is of MPI, whose output cannot be parted here: leave out -l, -o, -e and -i")
    os.execvpe("mpiexec", ["mpiexec", "-n", str(asked.tasks), *asked.command], _CROWDED | {**os.environ, **asked.added})


class _Step:
    """The tasks that run."""

    def __init__(self, asked: Request) -> None:
        self._asked = asked
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []
        self._signalled: list[int] = []
        self._begun: set[Path] = set()  # files

    def run(self) -> int:
        """Run all tasks; return the highest of their exit codes."""
        for number in _SIGNALS:
            signal.signal(number, self._pass_on)
        for task in range(self._asked.tasks):
            self._start(task)
            for early in self._signalled:
                self._processes[-1].send_signal(early)
        for process in self._processes:
            self._begin(self._await, process)
        for thread in self._threads:
            while thread.is_alive():
                thread.join(0.5)  # a signal is heard in between
        codes = [process.returncode for process in self._processes]
        return max(128 - code if code < 0 else code for code in codes)

    def _pass_on(self, number: int, _frame: Any) -> None:
        self._signalled.append(number)
        for process in self._processes:
            process.send_signal(number)

    def _begin(self, what: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=what, args=arguments))
        self._threads[-1].start()

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        if process.wait() and self._asked.ends_together:
            for other in self._processes:
                other.terminate()

    def _start(self, task: int) -> None:
        asked = self._asked
        files: list[IO[bytes]] = []
        stdin = self._input(task, files)
        stdout = self._output(asked.output, task, files)
        stderr = self._output(asked.error, task, files) if asked.error else stdout if asked.output else None
        pipe = subprocess.PIPE
        is_piped = asked.labels and stdout is None, asked.labels and stderr is None
        process = subprocess.Popen(
            asked.command,
            stdin=stdin,
            stdout=pipe if is_piped[0] else stdout,
            stderr=pipe if is_piped[1] else stderr,
            cwd=asked.folder or None,
            env={**os.environ, **asked.added, **_of_task(task, asked)},
        )
        for file in files:
            file.close()
        self._processes.append(process)
        for stream, to in ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer)):
            if stream is not None:
                self._begin(_label, task, stream, to)

    def _input(self, task: int, files: list[IO[bytes]]) -> int | IO[bytes] | None:
        wanted = self._asked.input
        if wanted.isdecimal() or wanted == "none":
            return None if wanted == str(task) else subprocess.DEVNULL
        if wanted in {"", "all"} and not (task and stat.S_ISREG(os.fstat(0).st_mode)):
            return None
        # each task reads the whole of a file
        files.append(Path(_file(wanted, task) if wanted not in {"", "all"} else "/dev/fd/0").open("rb"))  # noqa: SIM115
        return files[-1]

    def _output(self, name: str, task: int, files: list[IO[bytes]]) -> int | IO[bytes] | None:
        if name in {"", "none"}:
            return subprocess.DEVNULL if name else None
        path = Path(_file(name, task))
        if path not in self._begun:
            path.write_bytes(b"")
            self._begun.add(path)
        files.append(path.open("ab"))  # tasks that share a file append to it in turn
        return files[-1]


def _of_task(task: int, asked: Request) -> dict[str, str]:
    tasks = str(asked.tasks)
    of_step = ("NTASKS", "NPROCS", "TASKS_PER_NODE", "STEP_NUM_TASKS", "STEP_TASKS_PER_NODE")
    return {
        **{f"SLURM_{name}": tasks for name in of_step},
        "SLURM_PROCID": str(task),
        "SLURM_LOCALID": str(task),
        "SLURM_NODEID": "0",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_GTIDS": ",".join(map(str, range(asked.tasks))),
        "SLURM_CPUS_PER_TASK": str(asked.cores_per_task),
    }


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    for line in stream:
        yield line if line.endswith(b"\n") else line + b"\n"


def _label(task: int, stream: IO[bytes], to: IO[bytes]) -> None:
    for line in _lines(stream):
        to.write(b"%d: %s" % (task, line))
        to.flush()


def _run(asked: Request) -> int:
    program = shutil.which(asked.command[0])
    if program is None:
        raise StandInError(f"there is no program {asked.command[0]}")
    if asked.tasks > 1 and (asked.is_mpi or _is_of_mpi(program)):
        _by_mpiexec(asked)
    if asked.tasks == 1 and not (asked.labels or asked.output or asked.error or asked.input):
        os.chdir(asked.folder or ".")
        os.execvpe(asked.command[0], list(asked.command), {**os.environ, **asked.added, **_of_task(0, asked)})
    if asked.tasks > 1 and asked.input in {"", "all"} and stat.S_ISFIFO(os.fstat(0).st_mode):
        raise StandInError("each task would get a part of what is piped into it: say --input=FILE, or --input=none")
    return _Step(asked).run()


def main(words: Sequence[str]) -> int:
    """Run a step; return its exit code."""
    if words and words[0] in {"-V", "--version"}:
        print("srun of asa, for jobs of this computer")
        return 0
    try:
        return _run(read(words, os.environ))
    except StandInError as error:
        print(f"srun (of asa, on this computer): {error}", file=sys.stderr)
    except OSError as error:
        print(f"srun (of asa, on this computer): {error.filename or ''}: {error.strerror}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
