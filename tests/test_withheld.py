"""A stage that uses a secret without asking for it is named: before it runs, and after it failed."""

import os
import sys

import pytest
from asa.backends.dmr.manager import LocalManager
from forked import asa
from local_queue import Queue

from asa import Flow
from asa.cli.detaching import say_what_is_not_kept
from asa.importers import as_toml, import_scripts
from asa.spec import write_workflow
from asa.spec.checks import check_here
from asa.spec.withheld import uses_in_words, uses_of
from asa.workflow import Preparation, Stage

HEAD = 'name = "flow"\n[defaults]\ncores = 1\nwalltime = "1min"\n'
FLOW = f"""{HEAD}
[[stage]]
name = "asks"
command = "test -n \\"$HF_TOKEN\\""
secrets = "HF_TOKEN"
[[stage]]
name = "fetch"
command = "test -n \\"$HF_TOKEN\\" # of the hub"
after = ["asks"]
[[stage]]
name = "train"
command = "python3 train.py"
after = ["fetch"]
"""
WRITE = 'write secrets = ["HF_TOKEN"] in it'


@pytest.fixture(autouse=True)
def _token(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "abcdef")
    monkeypatch.setenv("MY_DATA", "/data")


@pytest.mark.parametrize(
    ("text", "is_use"),
    [
        ("echo $HF_TOKEN", True), ("echo ${HF_TOKEN:-}", True), ("a=${#HF_TOKEN}", True), ("printenv HF_TOKEN", True),
        ("srun --export=ALL,HF_TOKEN ./a", True), ("export HF_TOKEN=$HF_TOKEN; ./a", True),
        ("python -c 'import os; os.environ[\"HF_TOKEN\"]'", True), ("python -c 'os.getenv(\"HF_TOKEN\")'", True),
        ("Rscript -e 'Sys.getenv(\"HF_TOKEN\")'", True), ("perl -e 'print $ENV{HF_TOKEN}'", True),
        ("#SBATCH --export=ALL,HF_TOKEN\n./a", True),
        ("HF_TOKEN=$(cat token)\necho $HF_TOKEN", False), ("echo $HF_TOKENS $MY_DATA", False), ("# $HF_TOKEN", False),
        ("srun --export=ALL,HF_TOKEN=x ./a", False), ("echo a # of $HF_TOKEN", False), ("echo '#' $HF_TOKEN", True),
        ("read -r HF_TOKEN <token\necho $HF_TOKEN", False), ("echo ${HF_TOKEN:=none}; echo $HF_TOKEN", False),
        ("source not-there\necho $HF_TOKEN", False), ("echo $HF_TOKEN\nsource not-there", True),
        ('. "$(dirname $0)/x.sh" && echo $HF_TOKEN', False), ("echo $HF_TOKEN; read HF_TOKEN", True),
    ],
)  # fmt: skip
def test_what_uses_a_secret(text, is_use):
    uses = uses_of(Stage("a", cores=1, command=text))
    assert [use.name for use in uses] == ["HF_TOKEN"] * is_use
    assert uses_of(Stage("a", cores=1, script=text))[: len(uses)] or not is_use
    assert uses_of(Stage("a", cores=1, command=text, secrets=("HF_TOKEN",))) == []
    assert uses_of(Stage("a", cores=1, command=text, environment=(("HF_TOKEN", "x"),))) == []
    if "export" not in text:
        assert uses_of(Stage("a", cores=1, command=text, preparation=Preparation(setup="HF_TOKEN=x"))) == []


def test_the_files_of_a_stage_are_looked_into(tmp_path):
    """Those that it gives to an interpreter or runs; a folder, what is binary and what waits for a writer are not."""
    (tmp_path / "train.py").write_text('import os\nkey = os.environ["HF_TOKEN"]\n')
    (tmp_path / "go.sh").write_text("#!/bin/sh\npython3 train.py\nsh go.sh\n")
    (tmp_path / "core").write_bytes(b"\xff\xfe$HF_TOKEN")
    os.mkfifo(tmp_path / "pipe")
    for command in ("sh go.sh", "srun ./go.sh", "python3 train.py"):
        [use] = uses_of(Stage("a", cores=1, command=command), tmp_path)
        assert (use.name, use.file, use.line) == ("HF_TOKEN", str(tmp_path / "train.py"), 2)
    assert uses_of(Stage("a", cores=1, command="sh pipe; ./core; sh .; sh gone"), tmp_path) == []


def test_a_file_that_is_sourced_is_looked_into(tmp_path):
    """What it does not set is used all the same."""
    (tmp_path / "sets.sh").write_text("export HF_TOKEN=$(cat token)\n")
    (tmp_path / "other.sh").write_text("module load gcc\n")
    command = ". ./{}\necho $HF_TOKEN"
    assert uses_of(Stage("a", cores=1, command=command.format("sets.sh")), tmp_path) == []
    assert uses_of(Stage("a", cores=1, command=command.format("other.sh")), tmp_path) != []


def test_functions_modules_and_makefiles_are_looked_into(tmp_path):
    """Which run a text that no interpreter is given by name."""
    (tmp_path / "pkg").mkdir()
    for name in ("pkg/mod.py", "pkg/__main__.py", "tools.py"):
        (tmp_path / name).write_text('import os\n\nkey = os.environ["HF_TOKEN"]\n')
    (tmp_path / "Makefile").write_text("all:\n\tcurl -H $(HF_TOKEN) x\n")
    function = f"{sys.executable} -P -m asa.call tools '{tmp_path}/tools.py' fit '[[], {{}}]'"
    for command, file in (
        ("python3 -m pkg.mod a", "pkg/mod.py"), ("python -u -m pkg", "pkg/__main__.py"), ("make -j2 all", "Makefile"),
        (function, "tools.py"),
    ):  # fmt: skip
        [use] = uses_of(Stage("a", cores=1, command=command), tmp_path)
        assert (use.name, use.file) == ("HF_TOKEN", str(tmp_path / file)), command


def test_a_run_in_python_says_what_stays_and_who_uses_it(tmp_path, capsys):
    """As the command does."""
    queue = Queue(tmp_path, cores=2)
    try:
        flow = Flow("flow")
        flow.stage("fetch", 'test -z "$HF_TOKEN"', cores=1, walltime="1min")
        settings = {"cores": 2, "spool": str(queue.root / "spool")}
        flow.run(backend="local", settings=settings, strategy="per-stage", runs=tmp_path / "runs", bank=None)
    finally:
        queue.close()
    said = capsys.readouterr().err
    assert "Not passed on to jobs, since they hold secrets: " in said
    assert f"Warning: stage fetch uses $HF_TOKEN and will not have it: {WRITE}, or" in said


def test_of_several_stages_each_is_to_ask():
    stages = [Stage(name, cores=1, command="curl -H $HF_TOKEN") for name in ("r", "jl")]
    [said] = uses_in_words(stages, None)
    assert "stages r, jl use $HF_TOKEN and will not have it" in said
    assert 'write secrets = ["HF_TOKEN"] in each' in said


def test_check_warns_of_a_secret_that_a_stage_does_not_ask_for(tmp_path):
    (tmp_path / "flow.toml").write_text(FLOW)
    (tmp_path / "train.py").write_text('import os\nkey = os.environ["HF_TOKEN"]\n')
    warned = [problem for problem in check_here(tmp_path / "flow.toml") if "$HF_TOKEN" in problem.message]
    places = [(problem.severity, problem.where.rpartition("/")[2]) for problem in warned]
    assert sorted(places) == [("warning", "flow.toml:12"), ("warning", "train.py:2")]
    assert all(WRITE in problem.hint for problem in warned)


def test_run_dry_run_and_detach_name_what_stays_and_who_uses_it(tmp_path):
    """Also where another stage asks for it; and `explain` does so after the failure, in another shell, too."""
    queue = Queue(tmp_path, cores=2)
    try:
        (tmp_path / "flow.toml").write_text(FLOW)
        environment = {**os.environ, "ASA_RUNS": "runs", "ASA_BANK": "bank", "ASA_SITES": "sites", "AN_API_KEY": "abc"}
        how = ("--backend", "local", "--option", "cores=2", "--option", f"spool={queue.root / 'spool'}")
        begin = ("run", "flow.toml", *how, "--strategy", "per-stage")
        done = asa(*begin, "--dry-run", cwd=tmp_path, env=environment)
        assert "Not passed on to jobs, since they" in done.stderr
        assert "AN_API_KEY" in done.stderr
        assert f"Warning: stage fetch uses $HF_TOKEN and will not have it: {WRITE}, or" in done.stderr
        assert done.stderr.count("$HF_TOKEN") == 1, "it is said once"
        assert "stage asks" not in done.stderr
        done = asa(*begin, "--dry-run", "--quiet", cwd=tmp_path, env=environment)
        assert "HF_TOKEN" not in done.stderr
        done = asa(*begin, cwd=tmp_path, env=environment, code=1)
        assert "stage fetch uses $HF_TOKEN" in done.stderr
        told = asa("explain", "fetch", cwd=tmp_path, env=environment).stdout
        assert "Of this shell it also lacked AN_API_KEY, as it holds a secret" in " ".join(told.split())
        del environment["HF_TOKEN"]
        told = asa("explain", "fetch", cwd=tmp_path, env=environment).stdout
        assert "It uses $HF_TOKEN, which it has not asked for" in " ".join(told.split())
    finally:
        queue.close()


def test_import_writes_what_export_names_and_says_what_scripts_use(tmp_path):
    (tmp_path / "a.sh").write_text("#!/bin/sh\n#SBATCH --time=1:00 --export=ALL,HF_TOKEN,MY_DATA\necho $HF_TOKEN\n")
    (tmp_path / "b.sh").write_text("#!/bin/sh\n#SBATCH --time=1:00\n\necho $HF_TOKEN\n")
    made = import_scripts([tmp_path / "a.sh", tmp_path / "b.sh"])
    assert [stage.secrets for stage in made.workflow.stages.values()] == [("HF_TOKEN",), ()]
    assert 'secrets = ["HF_TOKEN"]' in as_toml(made, tmp_path, write_workflow)
    [note] = [note for note in made.notes if "$HF_TOKEN" in note]
    assert note.startswith(f"{tmp_path / 'b.sh'}:4: ")
    assert WRITE in note


def test_a_run_is_not_gone_on_with_without_what_its_stages_ask_for(tmp_path):
    """Nothing of it is changed, and the stage is named; one that is done needs it no more."""
    queue = Queue(tmp_path, cores=2)
    try:
        asks = '[[stage]]\nname = "{}"\ncommand = "{}"\nsecrets = "HF_TOKEN"\n'
        (tmp_path / "flow.toml").write_text(
            f'{HEAD}{asks.format("first", "true")}{asks.format("second", "test -e there")}after = ["first"]\n'
        )
        environment = {**os.environ, "ASA_RUNS": "runs", "ASA_BANK": "bank", "ASA_SITES": "sites"}
        how = ("--backend", "local", "--option", "cores=2", "--option", f"spool={queue.root / 'spool'}")
        asa("run", "flow.toml", *how, "--strategy", "per-stage", cwd=tmp_path, env=environment, code=1)
        [journal] = (tmp_path / "runs").glob("*/journal*")
        before = journal.read_bytes()
        bare = {name: value for name, value in environment.items() if name != "HF_TOKEN"}
        done = asa("resume", "--retry", cwd=tmp_path, env=bare, code=2)
        assert "HF_TOKEN is not set here, and stage 'second' asks for it" in done.stderr
        assert "goes on" not in done.stderr
        assert journal.read_bytes() == before
        (tmp_path / "there").touch()
        asa("resume", "--retry", cwd=tmp_path, env=environment)
        asa("resume", cwd=tmp_path, env=bare)
    finally:
        queue.close()


def test_dmr_submit_names_the_secrets_that_stay(tmp_path):
    tmp_path.chmod(0o700)
    with LocalManager(1, folder=tmp_path) as manager:
        done = asa("dmr", "submit", "--folder", tmp_path, "--", "true")
        manager.wait(1, 30)
    assert "Not passed on to jobs, since they" in done.stderr
    assert "HF_TOKEN" in done.stderr


def test_what_a_detached_run_does_not_keep_is_said_before_it_begins(monkeypatch, capsys):
    """All of it, and first what a command uses."""
    for name in os.environ:
        monkeypatch.delenv(name)
    names = [f"ODD_{number:02}" for number in range(30)]
    for name in names:
        monkeypatch.setenv(name, "hunter2")
    stages = [Stage("a", cores=1, command="echo $ODD_07"), Stage("b", cores=1, command="echo $ODD_07 $HOME")]
    say_what_is_not_kept(stages, "/")
    warned, note, rest = capsys.readouterr().err.split("\n")
    assert warned == "Warning: stages a, b use $ODD_07, which is not kept: later jobs will not have it."
    assert ", ".join(names) in note
    assert note.endswith(f"export ASA_KEEP={','.join(['ODD_07', *(name for name in names if name != 'ODD_07')])}")
    assert rest == ""
    given = Stage("a", cores=1, command="echo $ODD_07", environment=(("ODD_07", "2"),))
    say_what_is_not_kept([given], "/")
    assert "Warning" not in capsys.readouterr().err
