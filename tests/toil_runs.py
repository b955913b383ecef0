"""Real Toil for tests: as `tests/toil/install.sh` installs it, with this asa beside it."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from slurm_testbed import OLDEST, tree_of
from snakemake_runs import PATIENCE_S, Begun, asa_folder

from asa.runner import list_runs

INSTALLED = Path(os.environ.get("ASA_TOIL") or "/var/tmp/asa/toil")


def missing(release=OLDEST):
    """Return why no Toil can be run here, or on the nodes of that release; empty if one can."""
    tree = tree_of(release)
    place = tree / INSTALLED.absolute().relative_to("/") if tree else INSTALLED
    if not (place / ".installed").is_file():
        return f"no Toil in {place}: install it with tests/toil/install.sh"
    return ""


class ToilProject:
    """A folder with a workflow, in which Toil is run.

    `on`: options of asa that name the batch system.
    `prefix`: a command that runs others as the user whose jobs they are.
    `asa`: where those see this asa, if not where it is unpacked.
    """

    def __init__(self, folder, *, on=(), prefix=(), env=None, asa=None):
        if why := missing():
            pytest.skip(why)
        self.folder, self.on, self.prefix = folder, list(on), list(prefix)
        self.env = {
            **(os.environ if env is None else env),
            "PYTHONPATH": str(asa or asa_folder()),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ASA_BANK": str(folder / "bank"),
            "ASA_SITES": str(folder / "no-sites"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "HOME": str(folder),
        }
        self.env["PATH"] = f"{INSTALLED / 'bin'}:{self.env['PATH']}"
        for name in ("PYTHONHOME", "PYTHONSTARTUP"):
            self.env.pop(name, None)
        self.begun = []
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, name, text):
        (self.folder / name).write_text(text if isinstance(text, str) else json.dumps(text))
        return name

    def command(self, flow, *arguments, batch_system="asa"):
        runner = "toil-cwl-runner" if flow.endswith(".cwl") else "toil-wdl-runner"
        on = self.on if batch_system == "asa" else []
        how = ["--batchSystem", batch_system, *on, "--jobStore", self.folder / f"store-{batch_system}"]
        how += [
            "--workDir",
            self.work,
            "--coordinationDir",
            self.work,
            "--outdir" if "cwl" in runner else "--outputDirectory",
        ]
        how += [self.folder / f"out-{batch_system}", "--disableProgress", "--statePollingWait", "1", "--clean", "never"]
        env = [f"{name}={self.env[name]}" for name in _OURS if name in self.env]
        return [*map(str, [*self.prefix, "env", "-C", self.folder, *env, INSTALLED / "bin" / runner, *how, *arguments])]

    @property
    def work(self):
        made = self.folder / "work"
        made.mkdir(exist_ok=True)
        made.chmod(0o777)
        return made

    def begin(self, flow, *arguments, batch_system="asa", inputs=()):
        command = self.command(flow, *arguments, flow, *inputs, batch_system=batch_system)
        self.begun.append(Begun(command, self.folder, self.env))
        return self.begun[-1]

    def run(self, flow, *arguments, code=0, within_s=PATIENCE_S, **how):
        """Run Toil to its end; give what it said."""
        return self.begin(flow, *arguments, **how).ends(code, within_s)

    def close(self):
        for one in self.begun:
            one.kill()

    @property
    def runs(self):
        """Its runs by asa, the latest last."""
        return list_runs(self.folder / "store-asa-asa")

    @property
    def state(self):
        return self.runs[-1].state()[0]

    def results(self, batch_system="asa"):
        """Return the digests of all files of the results."""
        files = (path for path in (self.folder / f"out-{batch_system}").rglob("*") if path.is_file())
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


_OURS = ("HOME", "PATH", "PYTHONPATH", "ASA_BANK", "ASA_SITES", "XDG_CACHE_HOME", "PYTHONDONTWRITEBYTECODE", "LANG")
