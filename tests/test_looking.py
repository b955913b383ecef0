"""Commands that only look run nothing that the file names: each command, with a trap in every place of a file."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import cli_fuzz
import pytest
from asa.backends.local.facility import LocalMachine
from asa.backends.slurm.backend import SlurmBackend
from hostile_text import written
from slurm_fake_link import FakeLink, VirtualClock

from asa.backend import Capabilities
from asa.keepers import Way
from asa.runner import RunFolder, RunPlan, drive
from asa.spec.model import StageSpec
from asa.workflow import Stage

pytestmark = pytest.mark.usefixtures("own_home")

FLOW, RUN, DATA = "FLOW", "RUN", "DATA"
LOOK = {
    "check": [["check", FLOW], ["check", FLOW, "--site"], ["check", FLOW, "--output", "json"]],
    "show": [["show", FLOW]],
    "import scripts": [["import", "scripts", "job.sh"]],
    "import wfformat": [["import", "wfformat", DATA]],
    "import snakemake": [["import", "snakemake", DATA]],
    "import nextflow": [["import", "nextflow", DATA]],
    "export wfformat": [["export", "wfformat", FLOW], ["export", "wfformat", "--run", RUN]],
    "run": [["run", FLOW, "--dry-run", "--scripts", "--backend", "local", "--bank", "none"]],
    "status": [["status", RUN], ["status", RUN, "--output", "json"]],
    "explain": [["explain", "--run", RUN], ["explain", "s", "--run", RUN]],
    "logs": [["logs", "s", "--run", RUN], ["logs", "s", "--run", RUN, "--err"]],
    "report": [["report", RUN]],
    "runs": [["runs", "--all"], ["runs", "--output", "json"]],
    "plan": [["plan", FLOW, "--backend", "local", "--bank", "none"]],
    "walltimes": [["walltimes", FLOW, "--bank", "none", "--backend", "local"], ["walltimes", "w"]],
    "predict": [["predict", "--cores", "1", "--bank", "bank", "--bank-only", "--system", "x"]],
    "bank show": [["bank", "show", "--bank", "bank"]],
    "bank import": [["bank", "import", DATA, "--bank", "bank"]],
    "worth": [["worth", FLOW, "--twin", DATA]],
    "compare": [["compare", FLOW, "--system", "hpc2n", "--trace", DATA]],
    "simulate": [["simulate", DATA]],
    "workload fit": [["workload", "fit", DATA]],
    "evaluate": [["evaluate", DATA]],
    "learn": [["learn", "--from", DATA, "--bank", "bank"]],
    "twin": [["twin", DATA, "--out", "twin.json"]],
    "ccs plan": [["ccs", "plan", DATA]],
    "ccs why": [["ccs", "why", "1", DATA]],
    "ccs drift": [["ccs", "drift", DATA]],
    "dras evaluate": [["dras", "evaluate", DATA, "--weights", DATA]],
    "dras jobs": [["dras", "jobs", DATA]],
    "dras network": [["dras", "network", DATA]],
    "dmr study": [["dmr", "study", "--costs", DATA]],
    "dras rewards": [["dras", "rewards", DATA, "--weights", DATA]],
}
"""How each command is run that reads a file, without asking a batch system."""
NO_FILE = {
    "init", "list", "schema", "bank export", "bank forget", "workload check", "workload calibrate", "workload generate",
    "experiment strategies", "experiment shapes", "experiment bags", "experiment legs", "experiment adoption",
    "campaign paper", "campaign schedulers", "ccs bench", "bbsched compare", "bbsched gd", "bbsched bench",
    "bbsched scaling", "bbsched requests", "dras train", "dras orders", "dras ablation",
}  # fmt: skip
"""They read nothing but what asa itself kept, and logs of jobs, which the others try."""
ACTS = {
    "resume", "cancel", "tick",  # on a run, which is to be its user's own
    "doctor",  # asks the batch system, by the command that the site file is there to name
    "dmr serve", "dmr submit", "dmr beside", "dmr measure",
    "record",  # runs what it is given
    "pool",  # runs what its user's runs hand over
}  # fmt: skip
ALIASES = {"advise": "walltimes"}

VARIABLES = (
    "PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "ASA_MODULES_INIT", "LMOD_PKG", "MODULESHOME", "MODULEPATH",
    "CONDA_EXE", "MAMBA_EXE", "CONDA_ENVS_PATH", "ASA_CONTAINER", "ASA_CONTAINER_OPTIONS", "BASH_ENV", "ENV", "ZDOTDIR",
    "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "SHELL", "PAGER", "EDITOR", "BROWSER", "SLURM_CONF", "IFS", "PS4",
)  # fmt: skip


def test_every_command_is_tried_or_has_a_reason():
    names = {" ".join(path) for path in cli_fuzz.commands()} - ALIASES.keys()
    assert names == LOOK.keys() | NO_FILE | ACTS
    assert not LOOK.keys() & (NO_FILE | ACTS)


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A program that leaves a mark, by its path and by the names of others; nothing has stepped into it at the end."""
    monkeypatch.chdir(tmp_path)
    folder, mark = tmp_path / "trap" / "bin", tmp_path / "mark"
    folder.mkdir(parents=True)
    program = folder / "trap"
    program.write_text(f"#!/bin/sh\necho \"$0 $*\" >>'{mark}'\n")
    program.chmod(0o755)
    others = ("sh", "bash", "dash", "zsh", "env", "conda", "micromamba", "module", "srun", "sbatch", "squeue", "ssh")
    for name in (*others, "apptainer", "singularity", "cksum", "awk", "uname", "git", "python3", "cat", "mpirun"):
        (folder / name).symlink_to(program)
    for place in ("init/sh", "etc/conda/activate.d/x.sh", "conda-meta/history", "x"):  # of modules and environments
        (tmp_path / "trap" / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(program, tmp_path / "trap" / place)
    (tmp_path / "trap" / "x").write_text(f"#%Module\nexec {program}\n")
    yield program
    assert not mark.exists(), mark.read_text()


def run_of(folder):
    """Return what programs a process of asa began, by its audit events."""
    import sys

    events = folder / "events"

    def hook(event, arguments):
        if event in {"subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "pty.spawn"}:
            with events.open("a") as file:
                program, words, _, variables = (*arguments, None, None, None)[:4]
                file.write(f"{program} {words[:2]!r} {variables}\n")

    return lambda: sys.addaudithook(hook)


def look(tmp_path, *commands, environment=()):
    """Run commands; return what they ran, which named no trap."""
    found = written(*commands, environment=environment, before=run_of(tmp_path))
    for (code, data), words in zip(found, commands, strict=True):
        assert b"Traceback" not in data, words
        assert b"a bug in asa" not in data, (words, data.decode(errors="replace"))
        assert code in {0, 1, 2}
    ran = tmp_path / "events"
    text = ran.read_text() if ran.exists() else ""
    ran.unlink(missing_ok=True)
    assert str(tmp_path / "trap") not in text, text
    return text


def flows(program):
    """Yield workflow files with a trap in each key of a stage, in all of its kinds; and with all variables set."""
    whole = {"name": "s", "command": str(program), "cores": 1, "walltime": "1m", "expected": "10s"}
    for name in StageSpec.model_fields:
        text = str(program)
        for value in (text, f"; $({text})", [text], {text: text}):
            stage = whole | {name: value}
            if name in {"script", "tasks", "tasks_file"}:
                stage.pop("command")
            yield stage
    tree = str(program.parents[1])
    variables = dict.fromkeys(VARIABLES, str(program)) | {"PATH": str(program.parent)}
    variables |= dict.fromkeys(("LMOD_PKG", "MODULESHOME", "MODULEPATH"), tree)
    said = (
        {"modules": ["x"]}, {"modules": ["x/../../../../../../../.." + tree + "/x"]}, {"conda": tree}, {"conda": "x"},
        {"conda": "e.yml"}, {"container": "x.sif"}, {"container": "docker://x"}, {"launcher": f"srun {program}"},
        {"setup": str(program)}, {"modules": ["x"], "conda": tree, "setup": str(program), "launcher": "mpirun"},
        {"container": tree, "binds": [tree]},
    )  # fmt: skip
    for one in said:
        yield whole | one | {"environment": variables}
        yield whole | one


def toml(stage):
    def of(value):
        if isinstance(value, dict):
            return f"{{ {', '.join(f'{json.dumps(key)} = {of(one)}' for key, one in value.items())} }}"
        return f"[{', '.join(map(of, value))}]" if isinstance(value, list) else json.dumps(value)

    return 'name = "w"\n[[stage]]\n' + "".join(f"{key} = {of(value)}\n" for key, value in stage.items())


@pytest.mark.full
def test_a_workflow_file_is_looked_at_and_nothing_of_it_runs(tmp_path, trap):
    (tmp_path / "e.yml").write_text("name: e\n")
    name = subprocess.run(["cksum"], input="name: e\n", capture_output=True, text=True, check=True)
    made = tmp_path / ".asa" / "conda" / "-".join(name.stdout.split()[:2])
    made.parent.mkdir(parents=True)
    made.symlink_to(tmp_path / "trap")
    commands = []
    for number, stage in enumerate(flows(trap)):
        (tmp_path / f"{number}.toml").write_text(toml(stage))
        own = [["check", f"{number}.toml", "--site"]]
        if number % 11 == 0 or "environment" in stage or "setup" in stage:
            own += [[f"{number}.toml" if word == FLOW else word for word in words] for words in LOOK["run"]]
        commands += own
    ran = look(tmp_path, *commands)
    assert "/bin/sh" in ran  # there was something to try
    whole = [words for name in LOOK for words in LOOK[name] if FLOW in words]
    (tmp_path / "w.toml").write_text(toml(list(flows(trap))[-2]))
    look(tmp_path, *([("w.toml" if word == FLOW else word) for word in words] for words in whole))


def strings(value, at=()):
    """Find each string in a document, and each place of one."""
    if isinstance(value, str):
        yield at
    for step, one in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        yield from strings(one, (*at, step))


def settings(program):
    """Yield what opens a backend, with a trap for each setting that a backend takes."""
    import inspect

    from asa.backends.slurm.facility import SlurmCommands, SlurmRest

    from asa.core import plugins

    for name in plugins.names("asa.backends"):
        made = plugins.load("asa.backends", name)
        keys = set(inspect.signature(made).parameters)
        keys |= {"prefix", "token_command", "token_file", "url", "environment"} & keys
        yield name, dict.fromkeys(keys - {"self", "kwargs", "args"}, str(program))
        yield name, {}
        for key in keys:
            yield name, {key: [str(program)]}
    assert {SlurmCommands, SlurmRest, LocalMachine}


@pytest.mark.full
def test_a_run_of_anybody_s_is_looked_at_and_nothing_of_it_runs(tmp_path, trap):
    site = Capabilities("c", 1120, 28, age_accrues=False)
    stage = Stage("s", cores=1, walltime_s=60.0, command=f"{trap} {trap}", environment=(("PATH", str(trap.parent)),))
    plan = RunPlan(
        "abcd1234", "n", "w", (stage,), "per-stage", "slurm-cli", site, created_s=1.7e9, notify=str(trap),
        settings={"prefix": str(trap)}, folder=str(tmp_path), source=str(trap), bank=str(trap),
    )  # fmt: skip
    folder, clock = RunFolder.create(tmp_path / "whole", plan), VirtualClock()
    link = FakeLink(clock, folder.path)
    drive(folder, lambda run: SlurmBackend(link, run.path, site, clock=clock, sleep=clock.sleep))
    (tmp_path / "mark").unlink()  # the run has told of its end
    kept = {
        "way": Way.JOB, "mark": "m", "number": 1, "since_s": 0.0, "chain": "c", "umask": 18,
        "environment": {name: str(trap) for name in VARIABLES} | {"PATH": str(trap.parent)},
    }  # fmt: skip
    (folder.path / "kept.json").write_text(json.dumps(kept))
    document = json.loads((folder.path / "run.json").read_text())
    variants = [document]
    for name, given in settings(trap):
        variants.append(document | {"backend": name, "settings": given})
    for place in strings(document):
        changed = json.loads(json.dumps(document))
        at = changed
        for step in place[:-1]:
            at = at[step]
        at[place[-1]] = str(trap)
        variants.append(changed)
    commands = []
    for number, variant in enumerate(variants):
        other = tmp_path / "runs" / f"{number}" / folder.path.name
        other.mkdir(parents=True)
        for path in folder.path.iterdir():
            (other / path.name).symlink_to(path) if path.name != "run.json" else None
        (other / "run.json").write_text(json.dumps(variant))
        words = [one for name in LOOK for one in LOOK[name] if RUN in one or name == "runs"]
        for one in words if number % 5 == 0 else [["status", RUN], ["explain", "--run", RUN]]:
            asked = [str(other) if word == RUN else word for word in one]
            commands.append([*asked, *(["--runs", str(other.parent)] if one[0] == "runs" else [])])
    assert len(variants) > 60
    assert look(tmp_path, *commands) == ""


def test_a_file_of_data_is_looked_at_and_nothing_of_it_runs(tmp_path, trap):
    (tmp_path / "w.toml").write_text(toml({"name": "s", "command": "true", "cores": 1, "walltime": "1m"}))
    (tmp_path / "job.sh").write_text(f"#!{trap}\n#SBATCH -n 1 -t 1 --wrap {trap}\nsbatch $({trap}) `{trap}`\n")
    document = dict.fromkeys(("format", "backend", "import", "__reduce__", "scheduler"), str(trap))
    pickled = f"cposix\nsystem\n(S'{trap}'\ntR."
    kinds = {
        "data.json": json.dumps(document), "data.pkl": pickled, "data.npz": pickled,
        "data.swf": f"; Note: {trap}\n1 0 0 1 1 -1 -1 1 1 -1 1 1 1 1 1 1 -1 -1\n",
        "data.txt": f"#!{trap}\n$({trap})\n", "data.py": f"import os; os.system('{trap}')\n",
        "data.smk": f"shell('{trap}')\n", "data.toml": f'backend = "{trap}"\nprefix = "{trap}"\n',
    }  # fmt: skip
    commands = []
    for name, text in kinds.items():
        (tmp_path / name).write_text(text)
        named = {FLOW: "w.toml", DATA: name}
        commands += [[named.get(word, word) for word in one] for key in LOOK for one in LOOK[key] if DATA in one]
    look(tmp_path, *commands)


@pytest.mark.full
def test_completing_runs_nothing(tmp_path, trap):
    """Beside a file of anybody's, in a folder of runs of anybody's."""
    (tmp_path / "w.toml").write_text(toml({"name": "s", "command": str(trap), "cores": 1, "walltime": "1m"}))
    for words in ("check ", "check w.toml --param ", "run w.toml --option ", "status --runs . ", "logs --run . "):
        environment = {
            **os.environ, "_ASA_COMPLETE": "complete_bash", "COMP_WORDS": f"asa {words}",
            "COMP_CWORD": str(len(words.split()) + 1),
        }  # fmt: skip
        done = subprocess.run(
            [shutil.which("asa", path=str(Path(os.sys.executable).parent))],
            env=environment, cwd=tmp_path, capture_output=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode in {0, 1}
