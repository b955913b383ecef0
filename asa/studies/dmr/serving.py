"""``asa dmr serve``, ``submit`` and ``beside``: resource managers for programs that shrink and grow."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.core import safe, temporary
from asa.core.documents import read_json
from asa.core.files import in_words
from asa.core.peers import stranger_at_socket
from asa.core.variables import secrets_of
from asa.errors import InputError, UnavailableError
from asa.units import MAX_CORES, MAX_PROCESSES

if TYPE_CHECKING:
    from asa.backend import JobSpec

_ANSWER_S = 10.0
_OF_A_JOB = ("SLURM_JOB_ID", "ASA_JOB_ID")  # variables with the id of a job

_Folder = Annotated[
    Path | None,
    typer.Option(help="Of the manager's socket, and of what jobs write; one of the user's own, if not given.",
                 metavar="DIR", show_default=False),
]  # fmt: skip


def serve(
    nodes: Annotated[int, typer.Option(help="How many nodes, with one process each.", min=1, max=MAX_PROCESSES)],
    folder: _Folder = None,
    *,
    no_grow: Annotated[bool, typer.Option("--no-grow", help="Let running jobs give nodes back, and get none.")] = False,
) -> None:
    """Run jobs on this machine, and resize those that ask by `asa.dmr`, until it is interrupted.

    Jobs start in the order of their submission. Prints what happens. All jobs end with it.

    Exit codes: 0 interrupted, 2 the input cannot be used.
    """
    from asa.backends.dmr.manager import LocalManager

    is_over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: is_over.set())
    with LocalManager(nodes, grows=not no_grow, folder=_made(folder), tell=_tell) as manager:
        _tell(f"{nodes} nodes; asked at {manager.address}")
        is_over.wait()


def submit(
    command: Annotated[list[str], typer.Argument(help="A program and its arguments, after --.", metavar="COMMAND...")],
    nodes: Annotated[int, typer.Option(help="On how many it is to start.", min=1, max=MAX_PROCESSES)] = 1,
    name: Annotated[str, typer.Option(help="For people.")] = "",
    folder: _Folder = None,
) -> None:
    """Submit a job to the manager that `asa dmr serve` started.

    The job gets the variables of this shell except secrets: variables with names such as HF_TOKEN.

    Exit codes: 0 submitted, 1 no manager answers, 2 the input cannot be used.
    """
    from asa.backends.dmr.manager import SOCKET
    from asa.backends.shell.environment import inherited
    from asa.dmr.protocol import MAX_BYTES
    from asa.spec.withheld import left_in_words

    request = {
        "what": "submit",
        "command": command,
        "nodes": nodes,
        "name": name,
        "environment": inherited(),
        "folder": str(Path.cwd()),
    }
    place = folder or _default_folder()
    try:
        with _own_folder(place) as within, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(str(within / SOCKET))
            if who := stranger_at_socket(connection):
                hint = "Start your own with `asa dmr serve`, and name a --folder that only you can write to."
                raise InputError(f"{who} answers there, and nothing was sent", where=str(place / SOCKET), hint=hint)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as heard:
                answer = read_json(heard.readline(MAX_BYTES))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UnavailableError(
            f"no resource manager answers: {why}", where=str(place / SOCKET), hint="Start one with `asa dmr serve`."
        ) from error
    if "error" in answer:
        raise InputError(answer["error"], where=answer["where"], hint=answer["hint"])
    if left := secrets_of(os.environ):
        sys.stderr.write(f"{left_in_words(left)} A program that needs one can read it from a file of yours alone.\n")
    sys.stdout.write(f"job {answer['job']}, which writes to {answer['output']}\n")


def run_in_job(
    command: Annotated[list[str], typer.Argument(help="A program and its arguments, after --.", metavar="COMMAND...")],
    *,
    processes: Annotated[int, typer.Option(help="How many the program begins with.", min=1, max=MAX_CORES)],
    cores: Annotated[int, typer.Option(help="Of the job, for each process.", min=1, max=MAX_CORES)] = 1,
    job: Annotated[str, typer.Option(help="Its id; that of the job that this runs in, if not given.")] = "",
    partition: Annotated[str, typer.Option(help="Where the job runs, likewise.")] = "",
    backend: Annotated[str | None, typer.Option(help="The batch system.", metavar="NAME", show_default=False)] = None,
    site: Annotated[str | None, typer.Option(help="Site file.", metavar="NAME", show_default=False)] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--option", help="An option of the backend.", metavar="NAME=VALUE")
    ] = None,
    no_grow: Annotated[bool, typer.Option("--no-grow", help="Ask for no more nodes.")] = False,
    no_shrink: Annotated[bool, typer.Option("--no-shrink", help="Give no nodes back.")] = False,
) -> None:
    """Run a program inside a job of a batch system, and let it shrink and grow as it asks by `asa.dmr`.

    Nodes that its processes have left are given back to the batch system. Where nobody waits, or the program's minimum
    asks for it, more nodes are asked for: on Slurm where the site permits it (`asa doctor` tells), by a job that waits
    for them in the queue. The program goes on until a check finds them there. Which jobs wait is known as of the latest
    look at the queue, which may be minutes ago: a site is not asked more often.

    Exit codes: the program's; 2 the input cannot be used.
    """
    from asa.backends.dmr.desk import ManagerDesk
    from asa.backends.dmr.in_job import JobManager
    from asa.backends.dmr.manager import SOCKET
    from asa.dmr.protocol import ADDRESS, JOB, PROCESSES
    from asa.sites import open_facility

    own = next((os.environ[name] for name in _OF_A_JOB if os.environ.get(name)), "")
    number = job or own
    if not number:
        raise InputError("this is no job of a batch system", where="--job", hint="Say which job it is.")
    where = partition or os.environ.get("SLURM_JOB_PARTITION", "")
    site_settings = dict(_setting(text) for text in settings or [])
    with temporary.folder("asa-dmr-") as name:
        opened = open_facility(backend, site, site_settings).facility.connect(Path(name, "run"))
        manager = JobManager(
            opened,
            number,
            processes,
            cores_per_process=cores,
            partition=where,
            shrinks=not no_shrink,
            growth=_more_nodes(where)
            if number == own and not no_grow
            else None,  # only inside the job; see `TakesOver`
        )
        desk = ManagerDesk(Path(name, SOCKET), manager)
        variables = {ADDRESS: str(desk.path), JOB: number, PROCESSES: str(processes)}
        try:
            code = _run(command, {**os.environ, **variables})
        finally:
            desk.close()
            manager.close()
    raise typer.Exit(code)


def _more_nodes(partition: str) -> JobSpec:
    """Return a request for more nodes on the terms of the job that this runs in."""
    from asa.backend import JobSpec

    quality = os.environ.get("SLURM_JOB_QOS", "")
    options = (f"--qos={quality}",) if quality else ()
    account = os.environ.get("SLURM_JOB_ACCOUNT", "")
    return JobSpec("more-nodes", 1, 1.0, partition=partition, account=account, options=options)


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run a program, pass on signals that this process gets, and return its exit code as a shell does."""
    with in_words("cannot be started", command[0], "Name a program."):
        program = subprocess.Popen(command, env=environment)  # noqa: S603 - the user's command
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda signum, _: program.send_signal(signum))
    code = program.wait()
    return code if code >= 0 else 128 - code


def _setting(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise InputError(f"{text!r} sets nothing", where="--option", hint="Write it as in --option poll=5s.")
    return name, value


def _default_folder() -> Path:
    """Return the folder of the user's manager."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        return Path(runtime, "asa-dmr")
    return Path(tempfile.gettempdir(), f"asa-dmr-{os.getuid()}")


def _made(folder: Path | None) -> Path:
    """Make the folder; other users must not be able to write to it."""
    path = (folder or _default_folder()).absolute()
    with in_words("cannot be made a folder", f"--folder {path}", "Name another."):
        safe.provide_folder(path)
        with _own_folder(path):
            return path


@contextmanager
def _own_folder(path: Path) -> Iterator[Path]:
    """Open a folder that no other user can change; paths below the result are in that very folder.

    Raises `OwnerError`: another user owns it, or can change it.
    """
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        safe.check(path, os.fstat(descriptor))
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _tell(what: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {what}\n")
    sys.stdout.flush()
