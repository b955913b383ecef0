"""A timer of the user's systemd. It looks at a run once a minute, also after the user has logged out."""

from __future__ import annotations

import os
import shutil
import subprocess

from asa.core.reading import run_command
from asa.errors import InputError

_TIMEOUT_S = 20.0
_EVERY_S = 60
_HINT = "Take another way: --detach-by cron, or job."


def trouble() -> str:
    """Return why no timer can be used here; empty if one can."""
    if shutil.which("systemd-run") is None or shutil.which("systemctl") is None:
        return "there is no systemd here"
    done = _call("systemctl", "--user", "show-environment")
    if done.returncode != 0:
        return "there is no systemd session of yours here (`systemctl --user` fails)"
    if not _lingers():
        return "systemd would end it when you log out: `loginctl enable-linger` changes that, where it is allowed"
    return ""


def begin(command: list[str], mark: str) -> None:
    """Begin a timer."""
    done = _call(
        "systemd-run", "--user", "--collect", f"--unit={_unit(mark)}", "--on-active=5",
        f"--on-unit-inactive={_EVERY_S}", "--timer-property=AccuracySec=5s", "--", *command,
    )  # fmt: skip
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise InputError(f"systemd-run says {words!r}", where="timer", hint=_HINT)


def end(mark: str) -> None:
    """End a timer, if there is one."""
    _call("systemctl", "--user", "stop", f"{_unit(mark)}.timer")


def _unit(mark: str) -> str:
    return f"asa-run-{mark}"


def _lingers() -> bool:
    import getpass  # noqa: PLC0415 - few commands ask for timers

    done = _call("loginctl", "show-user", getpass.getuser(), "--property=Linger", "--value")
    return done.returncode == 0 and done.stdout.strip() == "yes"


def _call(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return run_command(command, timeout_s=_TIMEOUT_S, env={**os.environ, "LC_ALL": "C"})
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
