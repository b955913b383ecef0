"""The page of what one sees: runs the commands of docs/examples.md, puts what they print there, and draws the run.

A block of code of the page begins with a line `$ COMMAND`; what follows is replaced by what the command prints on a
terminal of 80 columns. The commands run, in a copy of examples/forecast, on a throw-away Slurm cluster of real daemons,
the tests' own, on which somebody else always has jobs waiting. A block after `<!-- while it runs -->` is run in the
course of `asa run`, once the stage WAITS_FOR waits in the queue. Drawn are the terminal at that time
(examples-run.svg), and what each job did when (examples-timeline.svg).

    python tools/examples_page.py          # as root; some minutes. Slurm must be installed, as for the tests
"""

from __future__ import annotations

import fcntl
import os
import pty
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "docs")]  # the tests start the daemons

from picture import LEFT, RIGHT, ROW, STYLE, WIDTH, row
from rich.console import Console
from rich.text import Text
from slurm_testbed import Testbed, make_home, missing, until

from asa.estimators.compile_all import compile_all
from asa.metrics import measure
from asa.runner import RunFolder, run_paths
from asa.timeline import timeline
from asa.units import format_duration

PAGE = ROOT / "docs" / "examples.md"
EXAMPLE = ROOT / "examples" / "forecast"
COLUMNS, ROWS = 80, 60
HOME, HOST = "/home/me", "login1"
"""What the page has in place of the home folder and of this computer, whose names are other ones each time."""
RUN, REPORT = "asa run flow.toml", "asa report"
MEANWHILE = "while it runs"
WAITS_FOR = "verify"
WAITING = re.compile(rf"^{WAITS_FOR} +queued +\d.*^{WAITS_FOR}: (Resources|Priority)", re.MULTILINE | re.DOTALL)
COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "sacctmgr", "sshare", "sdiag", "sprio", "id")
BLOCK = re.compile(r"(?:<!-- (?P<said>[^\n]*) -->\n)?```\n\$ (?P<command>[^\n]+)\n.*?```\n", re.DOTALL)
REDRAWN = re.compile(r"(?:\r?\x1b\[(?:1A|2K|\?25[lh]))+")
"""What rich's live displays write before they draw themselves again."""


# ---------------------------------------------------------------------- the cluster


class SomebodyElse(threading.Thread):
    """Another user, of whom a constant number of jobs waits in the queue."""

    JOBS = 3

    def __init__(self, cluster: Testbed) -> None:
        super().__init__(daemon=True)
        self.cluster, self.draw, self.over = cluster, random.Random(1), threading.Event()

    def run(self) -> None:
        """Submit a job whenever fewer wait."""
        while not self.over.wait(0.5):
            waiting = self.cluster.run_as_root("squeue", "-h", "-t", "PD", "-u", "root", check=False)
            for _ in range(self.JOBS - len(waiting.splitlines())):
                cores, lasts_s = self.draw.choice([28, 56, 84]), self.draw.randint(15, 30)
                asks = ("-n", str(cores), "-t", "1", "-o", "/dev/null", "--wrap", f"sleep {lasts_s}")
                self.cluster.run_as_root("sbatch", "-Q", *asks, check=False)


# ---------------------------------------------------------------------- the terminal


@dataclass
class Terminal:
    """A command on a terminal of its own, and all that it has written there."""

    command: str
    folder: Path
    env: Mapping[str, str]
    written: bytes = b""
    _done: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        shell = ["sh", "-c", self.command]
        self._process = subprocess.Popen(
            shell, cwd=self.folder, env=dict(self.env), stdin=its, stdout=its, stderr=its, start_new_session=True
        )
        os.close(its)
        self._done = threading.Thread(target=self._read, args=(ours,), daemon=True)
        self._done.start()

    def _read(self, ours: int) -> None:
        while True:
            try:
                some = os.read(ours, 1 << 16)
            except OSError:  # so Linux says that nobody has it open any more
                break
            self.written += some
        os.close(ours)

    def end(self) -> list[str]:
        """Wait until it has ended; give what it showed, one drawing after the other."""
        code = self._process.wait(timeout=600)
        self._done.join()
        if code:
            raise SystemExit(f"{self.command} ended with exit code {code}:\n{self.written.decode()}")
        return self.shown()

    def shown(self) -> list[str]:
        """Give what it has shown so far, one drawing after the other; what stays above them is in the first."""
        text = self.written.decode().replace("\r\n", "\n").replace(self.env["HOME"], HOME)
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", HOST, text)
        return [part for part in REDRAWN.split(text) if part.strip()]

    def waits(self) -> bool:
        """Whether the table of a run shows WAITS_FOR in the queue, and kept back by nothing else."""
        if self._process.poll() is not None:
            raise SystemExit(f"{WAITS_FOR} did not wait: once more, please")
        shown = self.shown()
        return bool(shown and WAITING.search(Text.from_ansi(shown[-1]).plain))


def plain(shown: str) -> str:
    """Give what is shown as the page has it, without colours."""
    text = Text.from_ansi(shown).plain
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


# ---------------------------------------------------------------------- pictures

TERMINAL_STYLE = """
.ground{fill:#f6f8fa}.edge{stroke:#d5dae0;fill:none}.text{fill:#1b1f24}.dim{fill:#5b6470}.green{fill:#00684c}
.red{fill:#a33c00}.yellow{fill:#7d5600}.blue{fill:#0a58a8}.bold{font-weight:700}
@media (prefers-color-scheme:dark){
.ground{fill:#14171b}.edge{stroke:#363d46}.text{fill:#e7eaee}.dim{fill:#a2abb6}.green{fill:#5fd3a4}
.red{fill:#ff9d6c}.yellow{fill:#e3b34f}.blue{fill:#7ab8ff}}
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}
"""
COLOURS = {1: "red", 2: "green", 3: "yellow", 4: "blue"}
LETTER, LINE, EDGE = 7.8, 18, 14


def draw_terminal(shown: str, command: str) -> str:
    """Draw what a terminal shows, with its colours, as light or dark as the reader's page is."""
    whole = Text.from_ansi(f"$ {command}\n{shown}".rstrip("\n")).split("\n", allow_blank=True)
    lines = [part for line in whole for part in line.divide(range(COLUMNS, len(line), COLUMNS))]
    wide, high = COLUMNS * LETTER + 2 * EDGE, LINE * len(lines) + 2 * EDGE
    pieces = []
    for index, line in enumerate(lines):
        at = 0
        for segment in line.render(Console(width=COLUMNS), end=""):
            text, style = segment.text, segment.style
            begin, text = at + len(text) - len(text.lstrip()), text.strip()
            at += len(segment.text)
            if text:
                number = style.color.number if style and style.color else None
                colour = COLOURS.get(number or 0, "dim" if style and style.dim else "text")
                kind = colour + (" bold" if style and style.bold else "")
                pieces.append(
                    f'<text x="{EDGE + LETTER * begin:.1f}" y="{EDGE + LINE * index + 13}" '
                    f'textLength="{LETTER * len(text):.1f}" class="{kind}">{escape(text)}</text>'
                )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" width="{wide:.0f}" role="img">'
        f"<title>{escape(command)}, in a terminal</title><style>{TERMINAL_STYLE}</style>"
        f'<rect x=".5" y=".5" width="{wide - 1:.0f}" height="{high - 1}" rx="8" class="ground"/>'
        f'<rect x=".5" y=".5" width="{wide - 1:.0f}" height="{high - 1}" rx="8" class="edge"/>{"".join(pieces)}</svg>\n'
    )


def draw_timeline(folder: RunFolder) -> str:
    """Draw what each job of a run did, as the README's first picture does."""
    state, records = folder.state()
    run = timeline(records, state.workflow, age_accrues=state.capabilities.age_accrues)
    took = measure(state.workflow, records)
    lasts_s = run.end_s - run.begin_s
    scale = (WIDTH - LEFT - RIGHT) / lasts_s
    y, rows = 38.0, list[str]()
    for lane in run.lanes:
        rows += row(state.workflow, lane, y, (run.begin_s, scale))
        y += ROW
    step_s = next(step for step in (10, 20, 30, 60, 120, 300, 600) if lasts_s / step <= 10)
    grid = []
    for second in range(0, int(lasts_s) + 1, step_s):
        at = LEFT + scale * second
        grid.append(f'<line x1="{at:.1f}" y1="32" x2="{at:.1f}" y2="{y + 4}" class="rule"/>')
        grid.append(f'<text x="{at:.1f}" y="{y + 18}" text-anchor="middle" class="faint">{second}</text>')
    words = f"{format_duration(took.makespan_s)}, {took.core_hours:.2f} core-hours"
    where = "seconds since submission; next to each name: its cores"
    grid.append(f'<text x="{LEFT}" y="{y + 36}" class="faint">{where}</text>')
    grid.append(f'<text x="{WIDTH - RIGHT}" y="19" text-anchor="end" class="ink">{words}</text>')
    for kind, at, meaning in (("pending", 12, "waits in the queue"), ("held", 162, "idle"), ("running", 230, "runs")):
        grid.append(f'<rect x="{at}" y="9" width="14" height="11" class="{kind}"/>')
        grid.append(f'<text x="{at + 20}" y="19" class="ink">{meaning}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 46:.0f}" width="{WIDTH}" role="img">'
        f"<title>What each job of the run did: {escape(words)}</title><style>{STYLE}</style>"
        f'<rect width="100%" height="100%" rx="8" class="paper"/>{"".join(grid)}{"".join(rows)}</svg>\n'
    )


# ---------------------------------------------------------------------- all of it


def commands_of(page: str) -> list[tuple[str, str]]:
    """Give the commands of a page, each with what is said of it."""
    return [(found["command"], found["said"] or "") for found in BLOCK.finditer(page)]


def filled(page: str, printed: Mapping[str, str]) -> str:
    """Put what commands print below them."""

    def of(found: re.Match[str]) -> str:
        said = f"<!-- {found['said']} -->\n" if found["said"] else ""
        return f"{said}```\n$ {found['command']}\n{printed[found['command']]}```\n"

    return BLOCK.sub(of, page)


def environment(cluster: Testbed) -> dict[str, str]:
    """Make a user's environment, in which the cluster's commands are those of Slurm."""
    home = Path(make_home(cluster.folder("user")))
    programs = home / "bin"
    programs.mkdir()
    for name in COMMANDS:
        (programs / name).write_text(f'#!/bin/sh\nexec {" ".join(cluster.prefix)} {name} "$@"\n')
        (programs / name).chmod(0o755)
    known = {name: os.environ[name] for name in ("ASA_TRUSTED", "NUMBA_CACHE_DIR") if name in os.environ}
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")  # has what was compiled
    path = f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin"
    terminal = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "COLUMNS": str(COLUMNS)}
    return known | terminal | {"HOME": str(home), "XDG_CACHE_HOME": cache, "PATH": path}


def record(cluster: Testbed, page: str) -> tuple[dict[str, str], str, RunFolder]:
    """Run the commands of a page; give what each printed, the terminal in the course of the run, and the run."""
    env = environment(cluster)
    folder = Path(env["HOME"], "forecast")
    shutil.copytree(EXAMPLE, folder)
    folder.chmod(0o777)
    printed: dict[str, str] = {}

    def run(command: str) -> str:
        return "\n".join(Terminal(command, folder, env).end())

    past(cluster, folder)
    run("asa doctor --save here; asa learn --since 1d")
    picture = ""
    for command, said in commands_of(page):
        if said == MEANWHILE:
            continue
        if command == RUN:
            driven = Terminal(command, folder, env)
            until(driven.waits, within_s=300.0, what=f"{WAITS_FOR} in the queue")
            beside = {other: Terminal(other, folder, env) for other, when in commands_of(page) if when == MEANWHILE}
            first, *_, picture = driven.shown()
            head = first.partition("\n\n")[0].strip()
            picture = f"{head}\n\n{picture}"
            printed |= {other: plain("\n".join(shown.end())) for other, shown in beside.items()}
            printed[command] = plain(f"{head}\n\n{driven.end()[-1].strip()}")
        else:
            printed[command] = plain(run(command))
    [path] = run_paths(folder / "asa-runs")
    return printed, picture, RunFolder(path)


def past(cluster: Testbed, folder: Path) -> None:
    """Let the user have run jobs, of whose waits accounting tells."""
    for cores in (1, 14, 112, 1, 14, 112):
        asks = ("-n", str(cores), "-t", "5", f"--chdir={folder}", "-o", "/dev/null", "--wrap", "sleep 2")
        cluster.run("sbatch", "-Q", *asks)
    until(
        lambda: not cluster.run("squeue", "-h", "-u", cluster.user).strip(), within_s=300.0, what="the end of past jobs"
    )


def main() -> None:
    """Start a cluster, run the page's commands there, and write the page and its pictures."""
    if reason := missing():
        raise SystemExit(reason)
    os.umask(0)  # jobs are another user's, and write into folders that are made here
    root = Path(tempfile.mkdtemp(prefix="asa-", dir="/tmp"))
    root.chmod(0o755)
    cluster = Testbed(root, accounting=True, accrue=True)
    compile_all()  # else commands say that it is due
    try:
        other = SomebodyElse(cluster.start())
        other.start()
        printed, shown, run = record(cluster, PAGE.read_text())
        other.over.set()
        other.join()
        PAGE.with_name("examples-run.svg").write_text(draw_terminal(shown, RUN))
        PAGE.with_name("examples-timeline.svg").write_text(draw_timeline(run))
        PAGE.write_text(filled(PAGE.read_text(), printed))
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
