"""Streams that are closed, full or of a small character set, and impossible widths: output and exit codes."""

import os
import subprocess
from contextlib import suppress

import pytest
from forked import ASA

FLOW = 'name = "w"\n[[stage]]\nname = "a"\ncommand = "echo hi"\ncores = 1\nwalltime = "1m"\n'
STREAMS = (">&-", "2>&-", "<&-", "<&- >&- 2>&-", "2>/dev/full")
# what prints, what refuses, and what the parser says; of the latter two, what they write to, and all at once
FEW = {"check w.toml": STREAMS, "check nix.toml": ("2>&-", "2>/dev/full"), "--help": (">&-", "<&- >&- 2>&-")}
MORE = ["check nix.toml", "--help", "list", "status", "--version", "nix"]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "w.toml").write_text(FLOW)
    return tmp_path


def shell(place, line, **environment):
    """Run a line of shell in a minimal environment."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHON", "COLUMNS"))}
    kept |= {"ASA": ASA, "ASA_RUNS": "none", **environment}
    return subprocess.run(
        ["bash", "-c", line],
        cwd=place,
        env=kept,
        capture_output=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "ways"), [*FEW.items(), *(pytest.param(one, STREAMS, marks=pytest.mark.full) for one in MORE)]
)
def test_a_closed_stream_changes_no_exit_code(place, arguments, ways):
    usual = shell(place, f"$ASA {arguments}")
    for streams in ways:
        done = shell(place, f"$ASA {arguments} {streams}")
        assert done.returncode == usual.returncode, streams
        assert b"Traceback" not in done.stderr + done.stdout


def test_what_is_opened_later_does_not_get_a_closed_stream_s_place(place):
    """Otherwise the output of jobs would go into one of asa's files."""
    done = shell(place, "$ASA run w.toml --backend local --bank none >&- 2>&-", HOME=str(place), ASA_RUNS="runs")
    assert done.returncode == 0
    told = [path for path in (place / "runs").rglob("*") if path.is_file() and b"completed in" in path.read_bytes()]
    assert not told


def test_a_full_disk_is_told(place):
    done = shell(place, "$ASA list >/dev/full")
    assert (done.returncode, b"No space left" in done.stderr) == (1, True)


@pytest.fixture(scope="module")
def usual():
    """Return the output where nothing gives the terminal's width."""
    return {arguments: shell(".", f"$ASA {arguments}").stdout for arguments in ("list", "--help")}


@pytest.mark.full
@pytest.mark.parametrize(
    "columns", ["0", "9" * 5000, *(pytest.param(one, marks=pytest.mark.full) for one in ("1", "-3", "x", "1000000000"))]
)
def test_a_width_that_nothing_has_is_passed_over(place, usual, columns):
    assert shell(place, "$ASA list", COLUMNS=columns, LINES=columns, TERMINAL_WIDTH=columns).stdout == usual["list"]
    assert shell(place, "$ASA --help", TERMINAL_WIDTH=columns).stdout == usual["--help"]
    assert "list" in usual["--help"].decode()


@pytest.mark.parametrize("arguments", ["list", "--help", "show w.toml", "check nix.toml", "nix", "show étape.toml"])
def test_the_c_locale_gets_ascii(place, arguments):
    done = shell(place, f"$ASA {arguments}", LC_ALL="C")
    assert (done.stdout + done.stderr).isascii()
    assert done.stdout + done.stderr


def test_what_a_locale_has_no_letters_for_is_written_otherwise(place):
    done = shell(place, "$ASA show w.toml", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0
    assert b"+-----" in done.stdout


def test_a_document_is_utf_8_in_any_locale(place):
    (place / "été.sh").write_text("#!/bin/bash\n#SBATCH -n 1 -t 1\necho été\n")
    for locale in ({"LC_ALL": "C"}, {"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C.UTF-8"}):
        done = shell(place, "$ASA import scripts ./*.sh", **locale)
        assert done.returncode == 0, done.stderr
        assert "echo été" in done.stdout.decode() or "été.sh" in done.stdout.decode()


def test_a_path_of_any_bytes_can_be_printed(place):
    done = shell(place, r"$ASA check $'caf\xe9.toml'", LC_ALL="C.UTF-8")
    assert done.returncode == 2
    assert b"No such file" in done.stdout + done.stderr


def test_a_mistake_in_what_is_installed_is_told_in_words(place):
    """There is no traceback unless one is requested."""
    package = place / "broken-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[asa.commands]\nburst = broken:burst\n")
    (place / "broken.py").write_text("def burst():\n    '''Burst.'''\n    return {}['gone']\n")
    done = shell(place, "$ASA burst", PYTHONPATH=str(place))
    assert done.returncode == 1
    assert b"KeyError: 'gone'" in done.stderr
    assert b"broken.py:3" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Traceback" in shell(place, "$ASA burst", PYTHONPATH=str(place), ASA_TRACEBACK="1").stderr


OF_RUN = ("run", "long.toml", "--dry-run", "--backend", "local", "--option", "spool=spool")


def on_a_terminal(place, *arguments, columns=60):
    """Run a command whose output is a terminal; return its lines."""
    terminal, end = os.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "dumb", "ASA_RUNS": str(place / "runs")}
    try:
        subprocess.run([ASA, *arguments], stdin=end, stdout=end, stderr=end, cwd=place, env=environment, check=False)
        os.close(end)
        shown = b""
        with suppress(OSError):  # all has been read
            while part := os.read(terminal, 1 << 16):
                shown += part
    finally:
        os.close(terminal)
    return shown.decode().splitlines()


@pytest.mark.parametrize("arguments", [("check", "long.toml"), OF_RUN])
def test_notes_and_errors_on_a_terminal_have_no_line_that_is_wider(place, arguments):
    """On a pipe each is one line."""
    text = FLOW.replace("echo hi", "no-such-program-anywhere").replace("cores = 1", "cores = 9999")
    (place / "long.toml").write_text(text)
    shown = on_a_terminal(place, *arguments)
    assert "no-such-program-anywhere" in " ".join(shown)
    assert max(map(len, shown)) <= 60
    piped = subprocess.run([ASA, *arguments], cwd=place, capture_output=True, text=True, check=False)
    assert max(map(len, (piped.stdout + piped.stderr).splitlines())) > 60
