"""The command line as a whole: what its help lists, how options are spelled, what a shell completes."""

import importlib
import inspect
import json
import os
import re
import subprocess
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from cli_fuzz import choices_of
from forked import ASA, asa
from typer.main import get_command

from asa.cli import main
from asa.core import plugins

pytestmark = pytest.mark.usefixtures("own_home")

HEADINGS = ["Workflow", "Run", "Queue", "Simulate", "Research"]
LINE = re.compile(r"^  ([a-z-]+)(?:  |$)", re.MULTILINE)


def tree():
    return get_command(importlib.import_module("asa.cli.app").app)


def every_command():
    """Yield all commands that do something, with the words that call each."""
    queue = [((name,), command) for name, command in tree().commands.items()]
    while queue:
        path, command = queue.pop()
        below = getattr(command, "commands", {})
        queue += [((*path, name), one) for name, one in below.items()]
        if not below:
            yield path, command


def test_commands_come_under_five_headings_in_the_order_of_a_newcomer():
    text = asa("--help", env={**os.environ, "COLUMNS": "100"}).stdout
    assert re.findall(r"^(\w+): ", text.partition("Options:")[2], re.MULTILINE) == HEADINGS
    names = LINE.findall(text.partition("Workflow:")[2])
    assert set(names) == set(tree().commands) - {"advise"}
    order = ["init", "check", "run", "status", "report", "doctor", "predict", "walltimes", "worth", "evaluate"]
    assert sorted(order, key=names.index) == order


def test_commands_of_other_packages_are_listed_apart(monkeypatch):
    app = importlib.import_module("asa.cli.app")
    mine = EntryPoint("mine", "asa.cli.lists:lists", "asa.commands")
    given = plugins._group
    monkeypatch.setattr(plugins, "_group", lambda of: given(of) | ({"mine": mine} if of == "asa.commands" else {}))
    command = get_command(app.app)
    assert "mine" in command.commands
    assert command.list_commands(None)[-1] == "mine"


def test_headings_of_tables_and_names_of_commands_are_whole_at_80_columns():
    text = asa("--help", env={**os.environ, "COLUMNS": "80"}).stdout
    assert set(LINE.findall(text.partition("Workflow:")[2])) == set(tree().commands) - {"advise"}


# ---------------------------------------------------------------------- options


def test_whatever_prints_json_does_so_by_output():
    """There is one spelling; older ones are hidden."""
    options = {path: {name: one for one in command.params for name in one.opts} for path, command in every_command()}
    told = {path for path, of in options.items() if "--output" in of}
    assert len(told) > 25
    assert not [path for path, of in options.items() if "--json" in of]
    assert not [path for path in told if not {"table", "json"} <= choices_of(options[path]["--output"])]
    assert all(of["--set"].hidden for of in options.values() if "--set" in of)


def test_older_spellings_mean_the_same(tmp_path):
    log = tmp_path / "log.swf"
    log.write_text(
        "; MaxProcs: 4\n" + "".join(f"{i} {60 * i} -1 300 2 -1 -1 2 600 -1 1 1 1 1 1 1 -1 -1\n" for i in range(9))
    )
    new = asa("simulate", log, "--output", "json", "--scheduler", "multifactor", "--option", "size=2000").stdout
    assert asa("simulate", log, "--scheduler", "multifactor", "--json", "--set", "size=2000").stdout == new
    assert asa("simulate", log, "--scheduler", "multifactor", "--json", "--set=size=2000").stdout == new
    assert json.loads(new)["settings"] == {"size": "2000"}
    few = ("compare", "blast", "--cores", 28, "--seeds", 1, "--strategies", "big-job", "--jobs", 1)
    assert asa(*few, "--csv").stdout == asa(*few, "--output", "csv").stdout
    assert "one format" in asa(*few, "--json", "--csv", code=2).stderr


def test_what_follows_two_dashes_is_left_alone():
    """These arguments belong to another program."""
    command = tree().commands["dmr"].commands["submit"]
    ctx = command.make_context("submit", ["--nodes", "1", "--", "program", "--json", "--set", "x=1"])
    assert list(ctx.params["command"]) == ["program", "--json", "--set", "x=1"]


def test_a_workflow_file_is_found_without_its_suffix(tmp_path, monkeypatch):
    """An installed workflow of that name comes first."""
    monkeypatch.chdir(tmp_path)
    text = 'name = "f"\n[[stage]]\nname = "a"\ncores = 1\nwalltime = "1h"\ncommand = "x"\n'
    for name in ("flow", "montage"):
        (tmp_path / f"{name}.toml").write_text(text)
    show = tree().commands["show"]
    assert show.make_context("show", ["flow"]).params["workflow"] == "flow.toml"
    assert show.make_context("show", ["montage"]).params["workflow"] == "montage"
    assert show.make_context("show", ["other"]).params["workflow"] == "other"


def test_advise_goes_on_as_walltimes(tmp_path):
    env = {**os.environ, "ASA_BANK": str(tmp_path)}
    assert asa("advise", env=env).stdout == asa("walltimes", env=env).stdout


# ---------------------------------------------------------------------- parameters of files, options of backends


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASA_BANK", str(tmp_path / "bank"))
    monkeypatch.setenv("ASA_SITES", str(tmp_path / "sites"))
    asa("init")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--param", "prts=3"), "Did you mean 'parts'?"),
        (("--param", "cores=3"), "cores is an option of the backend: --option cores=3"),
        (("--option", "parts=3"), "parts is a parameter of flow.toml: --param parts=VALUE"),
        (("--option", "core=3"), "Did you mean 'cores'?"),
        (("--param", "parts"), "'parts' has no value"),
        (("--param", "=3"), "has no name before the ="),
    ],
)
def test_a_parameter_and_an_option_that_are_mistaken_are_told_apart(place, given, told):
    for verb in ("run", "plan"):
        refused = asa(verb, "flow.toml", "--backend", "local", *given, code=2)
        assert told in refused.stderr
    assert not (place / "asa-runs").exists()


def test_parameters_and_options_reach_what_they_are_for(place):
    """Every command that takes them accepts both, and also `--set`, which finds out which is meant."""
    for given in (("--param", "parts=7", "--option", "cores=3"), ("--set", "parts=7", "--set", "cores=3")):
        told = asa("run", "flow.toml", "--backend", "local", *given, "--dry-run", "--scripts").stdout
        assert "seq 7" in told
        assert "seq 7" in asa("show", "flow.toml", *given[:2], env={**os.environ, "COLUMNS": "200"}).stdout
    told = asa("compare", "flow.toml", "--param", "malleable=0.5", "--backend", "dmr", "--seeds", 1, code=2).stderr
    assert "malleable is an option of the backend" in told


# ---------------------------------------------------------------------- a file to begin with


def test_the_file_to_begin_with_runs_at_once(place):
    """The example file passes its check without a warning; each of its stages works; no file is overwritten."""
    assert "no errors, no warnings" in asa("check", "flow.toml").stdout + asa("check", "flow.toml").stderr
    asa("run", "flow.toml", "--backend", "local", "--param", "parts=3")
    assert asa("logs", "collect").stdout.strip() == "3"
    (place / "flow.toml").write_text("mine")
    assert "exists already" in asa("init", code=2).stderr
    assert (place / "flow.toml").read_text() == "mine"
    done = asa("init", "--force")
    assert "asa check flow.toml" in done.stderr
    assert "asa run flow.toml" in done.stderr


def test_a_file_of_any_name_has_a_name_that_a_workflow_may_have(place):
    asa("init", "my flow (2).toml")
    assert "no errors" in asa("check", "my flow (2).toml").stderr + asa("check", "my flow (2).toml").stdout
    assert "asa run 'my flow (2).toml'" in Path("my flow (2).toml").read_text()


# ---------------------------------------------------------------------- what a shell completes


def completed(*words, cwd):
    env = {**os.environ, "_ASA_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["asa", *words])}
    env["COMP_CWORD"] = str(len(words))
    done = subprocess.run([ASA], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.stdout.split()


@pytest.mark.full
def test_a_shell_completes_names(place):
    (place / "data").mkdir()
    asa("run", "flow.toml", "--backend", "local", "--name", "first")
    assert completed("wall", cwd=place) == ["walltimes"]
    assert completed("run", "fl", cwd=place) == ["flow.toml"]
    assert {"montage", "flow.toml", "data/"} <= set(completed("plan", "", cwd=place))
    assert completed("run", "flow.toml", "--strategy", "big", cwd=place) == ["big-job"]
    assert completed("compare", "montage", "--strategies", "asa,per", cwd=place) == ["asa,per-stage"]
    assert completed("run", "flow.toml", "--backend", "slurm-r", cwd=place) == ["slurm-rest"]
    assert completed("run", "flow.toml", "--estimator", "asa-qu", cwd=place) == ["asa-queue", "asa-queue-boost"]
    assert completed("run", "flow.toml", "--param", "p", cwd=place) == ["parts="]
    assert completed("run", "flow.toml", "--backend", "local", "--option", "co", cwd=place) == ["cores="]
    assert [one.partition("-")[0] for one in completed("status", "fi", cwd=place)] == ["first"]
    assert completed("logs", "c", cwd=place) == ["compute", "collect"]


def test_where_nothing_is_known_nothing_is_completed(tmp_path):
    for words in (("logs", ""), ("status", ""), ("run", "none.toml", "--param", "")):
        assert completed(*words, cwd=tmp_path) == []


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("comprae", "montage"), "compare"),
        (("compare", "montage", "--sysem", "hpc2n"), "--system"),
        (("compare", "montge", "--cores", "28"), "montage"),
        (("compare", "montage", "--strategies", "bigjob"), "big-job"),
        (("compare", "montage", "--estimator", "asa-quee"), "asa-queue"),
        (("compare", "montage", "--system", "hpcn"), "hpc2n"),
        (("compare", "montage", "--scheduler", "esy"), "easy"),
        (("compare", "montage", "--strategies", "asa-plan:at-mst=1"), "at-most"),
        (("compare", "montage", "--scheduler", "multifactor", "--option", "half_lif=3d"), "Did you mean 'half_life_s'"),
        (("compare", "montage", "--backend", "opencss"), "openccs"),
        (("run", "flow.toml", "--backend", "locl"), "local"),
        (("plan", "flow.toml", "--explain", "prepar"), "prepare"),
        (("bank", "shw"), "show"),
        (("evaluate", "flow.toml", "--by", "geometri"), "geometry"),
    ],
)
def test_mistyped_names_get_the_nearest(place, words, meant):
    assert meant in asa(*words, code=2).stderr


def test_mistyped_names_of_a_run_and_its_stages_get_the_nearest(place):
    asa("run", "flow.toml", "--backend", "local", "--name", "first", "--quiet")
    for words, meant in (
        (("explain", "colect"), "collect"),
        (("logs", "prepar"), "prepare"),
        (("status", "frist"), "first"),
    ):
        assert f"Did you mean '{meant}'" in asa(*words, code=2).stderr


def test_an_interrupt_before_a_command_begins_leaves_no_traceback(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("asa.cli.app.make_usable", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "asa: interrupted\n"


def test_help_says_of_each_command_what_the_command_says_of_itself():
    """It reads sources in place of importing them."""
    app = importlib.import_module("asa.cli.app")
    commands = tree().commands
    texts = {name: inspect.cleandoc(commands[name].help).split("\n\n")[0] for name in app._OURS}
    assert {name: app._summary(name) for name in texts} == {
        name: " ".join(text.split()) for name, text in texts.items()
    }
