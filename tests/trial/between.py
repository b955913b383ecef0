"""Stands between a client and Slurm, and corrupts answers of commands and over HTTP.

As a script it runs a command as `between.py SPOIL COMMAND...`, where the file SPOIL holds `Spoil` as JSON.
"""

import http.client
import json
import os
import random
import re
import socket
import socketserver
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

PROGRAMS = ("squeue", "sacct", "scontrol", "sbatch", "scancel")
READ = ("squeue", "sacct")
STATES = ("FROBNICATING", "SIGNALING", "STAGE_OUT", "LAUNCHING")
"""States of jobs, none of which any release had in 2022."""
REASONS = ("FrobnicationPending", "QOSMaxFrobsPerUser", "ReservationDeletedHold")
_STATE = re.compile(r"\b(PENDING|RUNNING|COMPLETING|COMPLETED|FAILED|TIMEOUT|CANCELLED)\b")
_REASON = re.compile(r"\b(Resources|Priority|Dependency|JobHeldUser|BeginTime)\b")
PASSING = (
    (1, ("error: {doing}: Unable to contact slurm controller (connect failure)",)),
    (1, ("error: {doing}: Zero Bytes were transmitted or received",)),
    (1, ("error: {doing}: Socket timed out on send/recv operation",)),
    (1, ("error: {doing}: Unexpected message received",)),
    (1, ("error: {doing}: Protocol authentication error",)),
    (1, ("error: {doing}: Slurm backup controller in standby mode",)),
    (1, ("error: {doing}: Cannot allocate memory",)),
    (1, ("error: Munge encode failed: Socket communication error", "error: {doing}: Protocol authentication error")),
    (1, ("error: resolve_ctls_from_dns_srv: Unknown host", "fatal: Could not establish a configuration source")),
    (1, ("error: s_p_parse_file: file is empty", "fatal: Unable to process configuration file")),
    (1, ("error: plugin_load_from_file: auth_munge.so: Stale file handle", "fatal: failed to initialize auth plugin")),
    (127, ("error while loading shared libraries: libslurmfull.so: cannot open shared object file",)),
    (126, ("Input/output error",)),
    (254, ("bash: fork: Resource temporarily unavailable",)),
    (255, ("ssh: connect to host login port 22: Connection timed out",)),
    (137, ()),
)
"""How a command fails of a fault that passes: its exit code, and its lines; `doing` is what it was at."""
_DOING = {"sbatch": "Batch job submission failed", "scancel": "Kill job error", "squeue": "slurm_load_jobs error"}
HTTP_PASSING = (
    (500, 1800, "Unable to contact slurm controller (connect failure)"),
    (502, 1800, "Unable to contact slurm controller (connect failure)"),
    (500, 1007, "Protocol authentication error"),
    (500, 5005, "Zero Bytes were transmitted or received"),
    (500, 5004, "Socket timed out on send/recv operation"),
    (
        503,
        0,
        "<html><body><h1>503 Service Unavailable</h1>No server is available to handle this request.</body></html>",
    ),
    (504, 0, "<html><head><title>504 Gateway Time-out</title></head></html>"),
)


@dataclass(frozen=True)
class Spoil:
    """How answers are spoiled, of which programs, and what part of them."""

    kind: str  # empty, partial, cut, shuffled, states, reasons, late, before, after, two_numbers, conf
    of: tuple[str, ...] = PROGRAMS
    share: float = 1.0
    conf: str = ""  # path of a file in place of slurm.conf
    job: str = ""  # of which it is told that it ran out of memory

    def write(self, path: Path) -> None:
        """Let it hold from now on."""
        path.with_suffix(".new").write_text(json.dumps(asdict(self)))
        path.with_suffix(".new").rename(path)


def spoiled_text(spoil: Spoil, printed: bytes, chance: random.Random) -> bytes:
    """Spoil what a command printed, whose lines are records."""
    kind = spoil.kind
    lines = printed.splitlines(keepends=True)
    if kind == "empty":
        return b""
    if kind == "partial":
        return b"".join(line for line in lines if chance.random() < 0.5)
    if kind == "cut":
        return printed[: chance.randrange(len(printed) + 1)]
    if kind == "shuffled":
        chance.shuffle(lines)
        return b"".join(lines)
    if kind == "memory":
        of_job = re.compile(rb"^%s\D" % spoil.job.encode())
        ended = re.compile(rb"\bCOMPLET(ED|ING)\b")
        return b"".join(ended.sub(b"OUT_OF_MEMORY", line) if of_job.match(line) else line for line in lines)
    return _with_other_words(kind, printed.decode(errors="surrogateescape"), chance).encode(errors="surrogateescape")


def _with_other_words(kind: str, text: str, chance: random.Random) -> str:
    known, words = {"states": (_STATE, STATES), "reasons": (_REASON, REASONS)}.get(kind, (None, ()))
    return text if known is None else known.sub(lambda _: chance.choice(words), text)


def spoiled_json(spoil: Spoil, body: bytes, chance: random.Random) -> bytes:
    """Spoil a document of slurmrestd, whose records are below `jobs`."""
    kind = spoil.kind
    if kind == "cut":
        return body[: chance.randrange(len(body) + 1)]
    if kind in ("states", "reasons"):
        return _with_other_words(kind, body.decode(), chance).encode()
    try:
        document = json.loads(body)
    except ValueError:
        return body
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list):
        return body
    jobs = document["jobs"]
    if kind == "empty":
        jobs = []
    elif kind == "partial":
        jobs = [job for job in jobs if chance.random() < 0.5]
    elif kind == "shuffled":
        chance.shuffle(jobs)
    elif kind == "memory":
        jobs = [_out_of_memory(job) if str(job.get("job_id")) == spoil.job else job for job in jobs]
    return json.dumps(document | {"jobs": jobs}).encode()


def _out_of_memory(job: dict[str, Any]) -> dict[str, Any]:
    """Say of a job that completed that it ran out of memory, in the words of each version."""
    text = re.sub(r'"COMPLET(ED|ING)"', '"OUT_OF_MEMORY"', json.dumps(job))
    return dict(json.loads(text))


# ---------------------------------------------------------------------- commands


def _program(command: list[str]) -> str:
    return next((word for word in command if word in PROGRAMS), "")


def _fails(program: str, chance: random.Random) -> int:
    code, lines = chance.choice(PASSING)
    for line in lines:
        begin = "" if ": " in line and line.startswith(("bash", "ssh")) else f"{program}: "
        sys.stderr.write(f"{begin}{line.format(doing=_DOING.get(program, 'slurm_update error'))}\n")
    return code


def through(spoil: Spoil, command: list[str]) -> int:
    """Run a command and answer for it; returns the exit code."""
    chance, program = random.Random(), _program(command)
    if program not in spoil.of or chance.random() >= spoil.share:
        return subprocess.run(command, check=False).returncode
    if spoil.kind == "before":
        return _fails(program, chance)
    if spoil.kind == "conf":
        at = next(index for index, word in enumerate(command) if word.startswith("SLURM_CONF="))
        return subprocess.run([*command[:at], f"SLURM_CONF={spoil.conf}", *command[at + 1 :]], check=False).returncode
    if spoil.kind == "late":
        time.sleep(chance.uniform(2.0, 8.0))
    done = subprocess.run(command, capture_output=True, check=False)
    if spoil.kind == "after":
        return _fails(program, chance)
    printed = done.stdout
    if spoil.kind == "two_numbers" and program == "sbatch" and done.returncode == 0:
        printed = chance.choice([printed + b"1200\n", b"1200\n" + printed, printed + b"\n7\n", printed[:-2]])
    elif program in READ:
        printed = spoiled_text(spoil, printed, chance)
    sys.stdout.buffer.write(printed)
    sys.stdout.buffer.flush()
    sys.stderr.buffer.write(done.stderr)
    return done.returncode


# ---------------------------------------------------------------------- HTTP


def _asks(method: str, path: str) -> str:
    """Return which program would do what a request asks for."""
    if method == "GET":
        return "sacct" if path.startswith("/slurmdb/") else "squeue" if "/job" in path else "scontrol"
    return "scancel" if method == "DELETE" else "sbatch" if path.endswith("/submit") else "scontrol"


class _ToSocket(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60.0)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


class Relay(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A server on a socket of its own that passes requests on to slurmrestd, and may spoil its answers."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, path: Path, to: str) -> None:
        super().__init__(str(path), _Passes)
        self.to, self.spoil = to, None
        self.mode = ""  # of all answers: "lost" or "slow"

    spoil: Spoil | None

    def handle_error(self, *_: Any) -> None:
        """Say nothing of clients that are gone."""


class _Passes(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Relay
    _hop: ClassVar[set[str]] = {"connection", "content-length", "transfer-encoding", "keep-alive", "host"}

    def address_string(self) -> str:
        return "client"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _pass(self) -> None:
        spoil, chance = self.server.spoil, random.Random()
        asked = _asks(self.command, self.path)
        if spoil is not None and (asked not in spoil.of or chance.random() >= spoil.share):
            spoil = None
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = spoil.kind if spoil is not None else ""
        if kind == "before":
            return self._fails(chance)
        if kind == "late":
            time.sleep(chance.uniform(2.0, 8.0))
        daemon = _ToSocket(self.server.to)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in self._hop}
            daemon.request(self.command, self.path, body or None, headers)
            answer = daemon.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # as where the daemon itself is away
            return None
        finally:
            daemon.close()
        if self.server.mode == "slow":
            time.sleep(3.0)
        if self.server.mode == "lost":
            self.close_connection = True
            return None
        if kind == "after":
            return self._fails(chance)
        whole = len(said)
        if spoil is not None and asked in READ:
            said = spoiled_json(spoil, said, chance)
        self._say(answer.status, answer.headers.get("Content-Type", ""), said, whole if kind == "cut" else len(said))
        return None

    do_GET = do_POST = do_DELETE = do_PUT = _pass  # noqa: N815 - as http.server wants them

    def _say(self, status: int, content: str, body: bytes, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.close_connection or length != len(body)

    def _fails(self, chance: random.Random) -> None:
        status, number, text = chance.choice(HTTP_PASSING)
        error = {"description": text, "error_number": number, "error": text, "source": "slurm"}
        body = json.dumps({"errors": [error], "warnings": []}).encode() if number else text.encode()
        self._say(status, "application/json" if number else "text/html", body, len(body))


if __name__ == "__main__":
    try:
        spoil = Spoil(**json.loads(Path(sys.argv[1]).read_text()))
    except (OSError, ValueError):  # it is over
        os.execvp(sys.argv[2], sys.argv[2:])
    raise SystemExit(through(spoil, sys.argv[2:]))
