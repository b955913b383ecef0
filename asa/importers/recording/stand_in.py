"""Stands in for a program of Slurm: asks the recorder, over a socket, how to answer.

    python -I -S stand_in.py SOCKET PROGRAM ARGUMENTS...

It needs only the standard library and starts quickly, since drivers call it in loops. It reads files that the recorder
needs, as only the driver's processes see them.
"""

from __future__ import annotations

import json
import os
import socket
import sys


def _script(name: str, search: str) -> dict[str, object]:
    """Read a batch script from where sbatch looks for it."""
    paths = [name] if "/" in name else [name, *(os.path.join(folder, name) for folder in search.split(":") if folder)]
    path = next((path for path in paths if os.path.isfile(path)), name)
    try:
        with open(path, "rb") as file:
            text = file.read(16 << 20)
    except OSError as error:
        return {"path": os.path.abspath(path), "trouble": error.strerror}
    return {"path": os.path.abspath(path), "text": text.decode(errors="surrogateescape")}


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # the current folder was removed
        return os.environ.get("PWD", "/")


def main(path: str, program: str, arguments: list[str]) -> int:
    """Ask the recorder, answer its questions, and print its answer."""
    with socket.socket(socket.AF_UNIX) as desk:
        try:
            folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)  # a socket's path may be too long
            desk.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
            os.close(folder)
        except OSError:
            sys.stderr.write(f"{program}: the recording has ended\n")
            return 1
        with desk.makefile("rw") as talk:
            message: dict[str, object] = {
                "program": program, "arguments": arguments, "folder": _folder(), "environment": dict(os.environ),
            }  # fmt: skip
            while True:
                talk.write(json.dumps(message) + "\n")
                talk.flush()
                answer = json.loads(talk.readline() or '{"code": 1}')
                if "script" in answer:
                    message = _script(answer["script"], os.environ.get("PATH", ""))
                elif "input" in answer:
                    is_open = sys.stdin is not None and not os.isatty(0)
                    text = sys.stdin.buffer.read(16 << 20) if is_open else b""
                    message = {"text": text.decode(errors="surrogateescape")}
                else:
                    break
    for out, name in ((sys.stdout, "output"), (sys.stderr, "error")):
        if out is not None:
            out.buffer.write(answer.get(name, "").encode(errors="surrogateescape"))
            out.flush()
    return int(answer["code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
