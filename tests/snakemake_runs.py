"""Real Snakemake for tests: as `tests/snakemake/install.sh` installs it, with this asa beside it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from slurm_testbed import OLDEST, tree_of, until

from asa.runner import list_runs

ROOT = Path(__file__).parent.parent
INSTALLED = Path(os.environ.get("ASA_SNAKEMAKE") or "/var/tmp/asa/snakemake")
PATIENCE_S = 240
_KEPT = []


def missing(release=OLDEST):
    """Return why no Snakemake can be run here, or on the nodes of that release; empty if one can."""
    tree = tree_of(release)
    place = tree / INSTALLED.absolute().relative_to("/") if tree else INSTALLED
    if not (place / ".installed").is_file():
        return f"no Snakemake in {place}: install it with tests/snakemake/install.sh"
    return ""


def version():
    return tuple(map(int, (INSTALLED / ".installed").read_text().split()[0].split("==")[1].split(".")[:2]))


@cache
def asa_folder():
    """Unpack this asa's wheel where every user can read it: Snakemake looks for plug-ins in folders."""
    folder = TemporaryDirectory(prefix="asa-wheel-")
    _KEPT.append(folder)
    place = Path(folder.name)
    source = place / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("asa", "backends", "workflows"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps"]
    isolated = subprocess.run(
        [*pip, "--no-build-isolation", "-w", str(place), str(source)], capture_output=True, text=True, check=False
    )
    if isolated.returncode:  # there is no setuptools here
        subprocess.run([*pip, "-w", str(place), str(source)], check=True, capture_output=True)
    shutil.rmtree(source)
    [wheel] = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "site")
    for path in (place, *place.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return place / "site"


class Project:
    """A workflow's folder, in which Snakemake is run.

    `prefix`: a command that runs others as the user whose jobs they are.
    `asa`: where those see this asa, if not where it is unpacked.
    """

    def __init__(self, folder, snakefile, *, options=(), prefix=(), python=sys.executable, env=None, asa=None):
        if why := missing():
            pytest.skip(why)
        self.folder, self.options, self.prefix, self.python = folder, list(options), list(prefix), python
        self.env = dict(os.environ if env is None else env)
        for name in ("PYTHONHOME", "PYTHONSTARTUP"):
            self.env.pop(name, None)
        self.env |= {
            "PYTHONPATH": f"{asa or asa_folder()}:{INSTALLED}",
            "ASA_BANK": str(folder / "bank"),
            "ASA_SITES": str(folder / "no-sites"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.begun = []
        folder.mkdir(parents=True, exist_ok=True)
        if snakefile is not None:
            (folder / "Snakefile").write_text(snakefile)

    @property
    def runs(self):
        """Its runs by asa, the latest last."""
        return list_runs(self.folder / ".snakemake" / "asa")

    @property
    def state(self):
        return self.runs[-1].state()[0]

    def phases(self):
        """Return how the stages of the latest run stand."""
        return {name: view.phase.value for name, view in self.state.stages.items()}

    def command(self, *arguments, executor="asa"):
        how = ["--executor", executor, *(["--cores", "2"] if executor == "local" else self.options)]
        # -P: what lies in the folder is not imported
        words = [
            "env",
            "-C",
            str(self.folder),
            *(f"{name}={value}" for name, value in self.env.items() if name in _OURS),
            self.python,
            "-P",
        ]
        return [*self.prefix, *words, "-m", "snakemake", *how, *map(str, arguments)]

    def run(self, *arguments, code=0, executor="asa", within_s=PATIENCE_S):
        """Run Snakemake to its end; give what it said."""
        begun = self.begin(*arguments, executor=executor)
        return begun.ends(code, within_s)

    def begin(self, *arguments, executor="asa"):
        self.begun.append(Begun(self.command(*arguments, executor=executor), self.folder, self.env))
        return self.begun[-1]

    def close(self):
        for one in self.begun:
            one.kill()

    def results(self):
        """Return all files of the folder with what is in them, but what Snakemake and asa keep for themselves."""
        own = {".snakemake", "bank", "cache", "no-sites", "spool", "said"}
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in files
            if path.relative_to(self.folder).parts[0] not in own and path.suffix != ".said"
        }


_OURS = ("HOME", "PATH", "PYTHONPATH", "ASA_BANK", "ASA_SITES", "XDG_CACHE_HOME", "PYTHONDONTWRITEBYTECODE")


class Begun:
    """A Snakemake that runs, in a session of its own."""

    _count = 0

    def __init__(self, command, folder, env):
        Begun._count += 1
        self.said_in = folder / f"{Begun._count}.said"
        with self.said_in.open("wb") as said:
            self.process = subprocess.Popen(
                command, cwd=folder, env=env, stdout=said, stderr=said, stdin=subprocess.DEVNULL, start_new_session=True
            )

    @property
    def said(self):
        return self.said_in.read_text(errors="replace")

    def says(self, words, within_s=PATIENCE_S):
        until(lambda: words in self.said, within_s=within_s, what=lambda: f"{words!r} in:\n{self.said}")

    def ends(self, code=0, within_s=PATIENCE_S):
        try:
            found = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"Snakemake did not end:\n{self.said}") from None
        assert code is None or (found == code if code in {0, -9} else found != 0), self.said
        return self.said

    def interrupt(self):
        """Do what Ctrl-C does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def jobs_of(said):
    """Count the jobs that Snakemake says have ended well."""
    return len(re.findall(r"^Finished jobid", said, re.MULTILINE))


CHAIN = """
rule all:
    input: "3.txt"
rule first:
    output: "1.txt"
    shell: "echo first >> ran.txt; {then}; echo 1 > {{output}}"
rule second:
    input: "1.txt"
    output: "2.txt"
    shell: "echo second >> ran.txt; cat {{input}} > {{output}}"
rule third:
    input: "2.txt"
    output: "3.txt"
    shell: "echo third >> ran.txt; cat {{input}} > {{output}}"
"""
"""Rules that follow each other, of which the first does something more."""

SLOW = "touch began; while [ ! -e go ]; do sleep 0.1; done"
"""For `CHAIN`: wait until a file is there."""
