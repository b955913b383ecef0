"""Text that would act on a terminal or a page, and the output of commands that meet it."""

import os
import re
import sys
import tempfile

MARKUP = "[red on red]m[/]"
HOSTILE = f"\x1b[8m\x1b]0;t\x07\r\x08\x0b\x7f\x9b2J\u202egnp\u2066\u200f\u2028{MARKUP}"
"""Hides, names the window, rings, overwrites, clears, turns, breaks a line; and is markup to rich."""
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f]")
LONE = re.compile(rb"(?<![\xc2-\xf4\x80-\xbf])[\x80-\x9f]")  # of a name that is no UTF-8, to a terminal of 8 bits


def acting(data):
    """Return the parts of an output that act on a terminal, which reads UTF-8, or byte by byte."""
    return RAW.findall(data.decode(errors="replace")) + LONE.findall(data)


def written(*commands, environment=(), before=lambda: None):
    """Run commands of asa in a process of its own, as if each were alone; give what each wrote to its streams."""
    from asa.cli.app import run_command

    with tempfile.TemporaryFile() as both, tempfile.TemporaryFile() as ends:
        sys.stdout.flush()
        sys.stderr.flush()
        if not (pid := os.fork()):
            code = 1
            try:
                nothing = os.open(os.devnull, os.O_RDONLY)
                os.dup2(nothing, 0)
                os.environ.update(environment)
                before()
                for words in commands:
                    for number in (1, 2):
                        os.dup2(both.fileno(), number)
                    sys.stdout = sys.__stdout__ = os.fdopen(os.dup(1), "w", encoding="utf-8")
                    sys.stderr = sys.__stderr__ = os.fdopen(os.dup(2), "w", encoding="utf-8")
                    sys.argv = ["asa", *words]
                    ended = 0
                    try:
                        run_command()
                    except SystemExit as end:
                        ended = end.code or 0
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os.write(ends.fileno(), f"{ended} {os.lseek(both.fileno(), 0, os.SEEK_CUR)}\n".encode())
                code = 0
            except BaseException:  # noqa: BLE001 - said by the assertion
                import traceback

                os.write(both.fileno(), traceback.format_exc().encode())
            finally:
                os._exit(code)
        died = os.waitpid(pid, 0)[1]
        both.seek(0)
        assert not died, both.read().decode(errors="backslashreplace")
        ends.seek(0)
        data, place, found = both.read(), 0, []
        for line in ends.read().decode().splitlines():
            ended, end = map(int, line.split())
            found.append((ended, data[place:end]))
            place = end
        assert len(found) == len(commands)
        return found
