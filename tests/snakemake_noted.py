"""With which options of sbatch Snakemake's jobs are submitted: by asa, and by Snakemake's own executor for Slurm.

That executor is really run, with an `sbatch` that only notes its arguments; asa with a batch system that notes them.
"""

import getpass
import json
import os
import re
import sys
from dataclasses import dataclass

import noting_backend
import pytest
from slurm_testbed import until
from snakemake_runs import INSTALLED, Project

from asa.requests.directives import take_options
from asa.units import parse_memory

NEWEST, FORMER = (INSTALLED.with_name(f"{INSTALLED.name}-{name}") for name in ("slurm", "slurm-1"))
"""Folders with that executor, of its newest version and of the last with a 1."""

_OF_THEMSELVES = {"parsable", "job-name", "output", "error", "export", "export-file", "comment", "chdir", "wrap"}
"""How jobs are found again, where they print, and what they run."""

_SBATCH = """#!{python}
import json, os, sys
with open(os.environ["NOTES"], "a") as file:
    file.write(json.dumps(sys.argv) + "\\n")
print(1)
"""
_OTHERS = {
    "sinfo": "#!/bin/sh\necho 'normal*'\n",
    **dict.fromkeys(("sacct", "sacctmgr", "sshare", "squeue", "scontrol", "scancel", "srun"), "#!/bin/sh\n"),
}


@dataclass(frozen=True)
class Noted:
    """By rule the options of its job, with memory in MiB; and what Snakemake said."""

    jobs: dict
    said: str


class Noting:
    """Runs workflows without running any job; each rule has one job."""

    def __init__(self, folder):
        self._folder, self._made = folder, []

    def close(self):
        for one in self._made:
            one.close()

    def asa(self, text, *arguments, plugin=None, **settings):
        """Submit a workflow's jobs by asa. `plugin`: a folder with the other executor. `settings`: of the cluster."""
        on = [f"{name}={value}" for name, value in settings.items()]
        how = ["--asa-backend", "noting", "--asa-strategy", "per-stage", *(["--asa-option", *on] if on else [])]
        made = self._project("asa", text, how, plugin)
        made.env["PYTHONPATH"] += f":{noting_backend.install(made.folder / 'packages')}"
        return self._noted(made, text, made.begin(*arguments), lambda job: job["name"], lambda job: job["words"])

    def other(self, text, *arguments, plugin=NEWEST):
        """Submit a workflow's jobs by the other executor."""
        made = self._project("slurm", text, [], plugin)
        commands = made.folder / "bin"
        commands.mkdir()
        for name, body in {"sbatch": _SBATCH.format(python=sys.executable), **_OTHERS}.items():
            (commands / name).write_text(body)
            (commands / name).chmod(0o755)
        made.env |= {"PATH": f"{commands}:{os.environ['PATH']}", "USER": getpass.getuser()}
        begun = made.begin(*arguments, executor="slurm")
        return self._noted(made, text, begun, " ".join, lambda job: job)

    def _project(self, name, text, how, plugin):
        if plugin and not (plugin / ".installed").exists():
            pytest.skip(f"no plug-in in {plugin}: install it with tests/snakemake/install.sh")
        folder = self._folder / f"{name}{len(self._made)}"
        made = Project(folder, text, options=["--jobs", "2000", "--keep-going", *how])
        self._made.append(made)
        made.env["NOTES"] = str(folder / "notes")
        if plugin:
            made.env["PYTHONPATH"] += f":{plugin}"
        return made

    @staticmethod
    def _noted(made, text, begun, name, words):
        rules, notes = re.findall(r"^rule (?!all\b)(\w+)", text, re.MULTILINE), made.folder / "notes"

        def found():
            lines = notes.read_text().splitlines() if notes.exists() else []
            refused = set(re.findall(r"in run_job for rule (\w+)", begun.said))
            is_all = len(lines) + len(refused) >= len(rules)
            return (lines, begun.said) if is_all or begun.process.poll() is not None else None

        lines, said = until(found, within_s=240, what=lambda: f"{len(rules)} jobs:\n{begun.said[-5000:]}")
        begun.kill()
        jobs = list(map(json.loads, lines))
        by_rule = {rule: job for job in jobs for rule in rules if re.search(rf"(\b|rule_){rule}(\.\d+)?\b", name(job))}
        return Noted({rule: _options(words(job)) for rule, job in by_rule.items()}, said)


def _options(words):
    given = {one.name: one.value for one in take_options(words[1:], "sbatch")[0] if one.name not in _OF_THEMSELVES}
    for name in ("mem", "mem-per-cpu"):
        if name in given:
            text = given[name] if given[name][-1].isalpha() else f"{given[name]}M"
            given[name] = parse_memory(text) >> 20
    return given


def workflow(rules):
    """Write a workflow of rules that do not depend on each other.

    `rules`: by name its threads, and what else it asks for, by name: texts are quoted.
    """
    inputs = ", ".join(f'"{name}.txt"' for name in rules)
    parts = [f"rule all:\n    input: {inputs}\n"]
    for name, (threads, resources) in rules.items():
        said = ", ".join(f"{key}={value!r}" for key, value in resources.items())
        asks = f"    threads: {threads}\n" + (f"    resources: {said}\n" if said else "")
        parts.append(f'rule {name}:\n    output: "{name}.txt"\n{asks}    shell: "touch {{output}}"\n')
    return "".join(parts)
