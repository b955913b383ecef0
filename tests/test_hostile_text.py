"""Nothing raw to a terminal or a page: what others' files, names and servers say is shown escaped, by every command."""

import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace

import cli_fuzz
import pytest
from asa.backends.slurm.backend import SlurmBackend
from forked import ASA, Command
from hostile_text import HOSTILE, MARKUP, acting, written
from hypothesis import given
from hypothesis import strategies as st
from slurm_fake_link import FakeLink, VirtualClock
from told_link import ToldLink

from asa.backend import Capabilities
from asa.errors import AsaError, SubmitRejectedError
from asa.estimators.store import WaitStore
from asa.estimators.stored import WaitRecord
from asa.printable import acts, on_one_line, printable, printable_in_colours, printable_json
from asa.runner import RunFolder, RunPlan, drive
from asa.spec.model import StageSpec
from asa.waits import QueuedJob, exactly
from asa.workflow import Stage

pytestmark = pytest.mark.usefixtures("own_home")

SHOWN = printable(HOSTILE)
STAGE = 'name = "a"\ncommand = "true"\ncores = 1\nwalltime = "1m"\n'


def toml(text):
    """Write a string of TOML in which everything that acts is escaped."""
    return json.dumps(text).replace("\x7f", "\\u007f")


@given(st.text())
def test_what_is_escaped_does_not_act_and_nothing_else_changes(text):
    assert not acts(printable(text))
    assert "\n" not in on_one_line(text)
    assert acts(text) or printable(text) == text
    kept = json.dumps(text, ensure_ascii=False)
    assert not acts(printable_json(kept))
    assert json.loads(printable_json(kept)) == text


def test_an_error_becomes_text_that_does_not_act():
    error = AsaError(f"says {HOSTILE}", where=HOSTILE, hint=f"ask {HOSTILE}")
    assert not acts(str(error))
    assert str(error).count(SHOWN) == 3
    assert str(AsaError("one\n\ttwo", where="étape → 1")) == "étape → 1: one\n\ttwo"


def test_every_command_escapes_what_it_is_given(tmp_path, monkeypatch):
    """A shell gives them the names of files."""
    monkeypatch.chdir(tmp_path)
    acting_alone = {"init", "list", "schema"}
    words = []
    for path, parameters in cli_fuzz.commands().items():
        given = [HOSTILE for one in parameters if not one.is_option]
        words += [[*path, *given, f"--{HOSTILE}"]]
        if given and path[0] not in acting_alone | {"dmr", "resume", "tick", "cancel"}:
            words += [[*path, *given]]
    shown = 0
    for (code, data), command in zip(written(*words), words, strict=True):
        assert not acting(data), command
        assert code in {1, 2}, command
        shown += b"\\x1b" in data
    assert shown > 0.9 * len(words)


def fields():
    """Yield a workflow file for each key of a stage, and for every other place of a file that holds a name."""
    for name in StageSpec.model_fields:
        for value in (toml(HOSTILE), f"[{toml(HOSTILE)}]", f"{{ {toml(HOSTILE)} = {toml(HOSTILE)} }}"):
            kept = "".join(line for line in STAGE.splitlines(keepends=True) if not line.startswith(f"{name} "))
            kept = kept.replace('command = "true"\n', "") if name in {"script", "tasks", "tasks_file"} else kept
            yield f'name = "w"\n[[stage]]\n{kept}{name} = {value}\n'
    yield f'name = "w"\n[[stage]]\n{STAGE}{toml(HOSTILE)} = 1\n'
    yield f'{toml(HOSTILE)} = 1\nname = "w"\n[[stage]]\n{STAGE}'
    yield f"name = {toml(HOSTILE)}\n[[stage]]\n{STAGE}"
    yield f'name = "w"\n[parameters]\np = {toml(HOSTILE)}\n[[stage]]\n{STAGE}partition = "{{{{p}}}}"\n'
    yield f"{HOSTILE} = ["


@pytest.mark.full
def test_no_field_of_a_workflow_file_acts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = []
    for number, text in enumerate(fields()):
        (tmp_path / f"{number}.toml").write_text(text)
        words += [["check", f"{number}.toml"], ["show", f"{number}.toml"]]
        words += [["run", f"{number}.toml", "--dry-run", "--scripts", "--backend", "local", "--bank", "none"]]
    found = written(*words)
    for (_, data), command in zip(found, words, strict=True):
        assert not acting(data), (tmp_path / command[1]).read_text()
    assert sum(b"\\x1b" in data for _, data in found) > 100


def test_no_setting_of_a_site_acts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = ("backend", "url", "user", "token_file", "token_command", "prefix", "partition", "account", "strategy")
    words = []
    for number, key in enumerate((*keys, "notify", "input_patience", "poll", "qos", "constraint", HOSTILE)):
        backend = "" if key == "backend" else f'backend = "slurm-{"cli" if number % 2 else "rest"}"\n'
        (tmp_path / f"{number}.toml").write_text(f"{backend}{toml(key)} = {toml(HOSTILE)}\n")
        words += [["doctor", "--site", f"./{number}.toml"], ["predict", "--site", f"./{number}.toml", "--cores", "1"]]
    for (_, data), command in zip(written(*words, environment={"PATH": "."}), words, strict=True):
        assert not acting(data), command


def hostile(told):
    """Return a value with hostile text wherever it has text."""
    if isinstance(told, str):
        return told + HOSTILE
    if isinstance(told, dict):
        return {key: hostile(value) for key, value in told.items()}
    if isinstance(told, (list, tuple)):
        return type(told)(map(hostile, told)) if not hasattr(told, "_fields") else told
    return told


def test_no_word_of_slurm_acts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def slurm():
        from asa.backends.slurm import facility

        link = ToldLink(accrues=False)
        link.told_about = replace(link.told_about, version=HOSTILE, cluster=HOSTILE)
        link.told_settings = hostile(dict(link.told_settings))
        site = {
            name: [replace(one, name=one.name + HOSTILE) for one in values]
            for name, values in link.site.items()
        }  # fmt: skip
        link.site = site
        facility._command_link = lambda _settings: link

    def away():
        from asa.backends.slurm import facility

        link = ToldLink(fails={"about": AsaError(HOSTILE), "settings": SubmitRejectedError(HOSTILE)})
        facility._command_link = lambda _settings: link

    (tmp_path / "w.toml").write_text(f'name = "w"\n[[stage]]\n{STAGE}')
    words = [
        ["doctor", "--backend", "slurm-cli"],
        ["doctor", "--backend", "slurm-cli", "--output", "json"],
        ["plan", "w.toml", "--backend", "slurm-cli", "--bank", "none"],
    ]
    for found in (written(*words, before=slurm), written(*words, before=away)):
        for (_, data), command in zip(found, words, strict=True):
            assert not acting(data), command
            assert b"\\x1b" in data or b"\\u001b" in data, command


@pytest.fixture
def runs(tmp_path):
    """A run that another user may have left: refused in hostile words."""
    site = Capabilities(f"cluster{HOSTILE}", 1120, 28, age_accrues=False)
    stage = Stage("a", cores=1, walltime_s=60.0, command=f"true # {HOSTILE}", partition=f"p{HOSTILE}")
    plan = RunPlan("abcd1234", f"n{HOSTILE}", "w", (stage,), "per-stage", "slurm-cli", site, created_s=1.7e9)
    folder, clock = RunFolder.create(tmp_path / "runs", plan), VirtualClock()
    link = FakeLink(clock, folder.path)

    def refuse(job):
        raise SubmitRejectedError(HOSTILE)

    link.submit = refuse
    drive(folder, lambda run: SlurmBackend(link, run.path, site, clock=clock, sleep=clock.sleep))
    folder.log_note(HOSTILE)
    return folder


LOOKS = [
    ["runs"], ["runs", "--output", "json"], ["status"], ["status", "--output", "json"], ["explain"],
    ["explain", "a"], ["explain", "--output", "json"], ["logs", "a"], ["report"], ["export", "wfformat", "--run", ""],
    ["resume"], ["cancel", "--yes"], ["tick"], ["explain", HOSTILE],
]  # fmt: skip


def test_nothing_of_a_run_acts(tmp_path, monkeypatch, runs):
    monkeypatch.chdir(tmp_path)
    found = written(*LOOKS, environment={"ASA_RUNS": "runs", "COLUMNS": "200"})
    for (_, data), command in zip(found, LOOKS, strict=True):
        assert not acting(data), command
    assert sum(b"\\x1b" in data or b"\\u001b" in data for _, data in found) >= 6
    assert sum(MARKUP.encode() in data for _, data in found) >= 6, "square brackets were taken for markup"
    pages = list(tmp_path.glob("**/*.html"))
    assert pages
    assert not any(acting(page.read_bytes()) for page in pages)
    assert not acting(b"".join(path.read_bytes() for path in runs.path.glob("*.log")))


def test_no_string_of_a_run_s_files_acts(tmp_path, monkeypatch, runs):
    """Each in its turn: most are refused, in words that name them."""
    monkeypatch.chdir(tmp_path)
    path = runs.path / "run.json"
    whole = json.loads(path.read_text())
    words = [["runs"], ["status"], ["explain"]]
    commands = []
    for number, place in enumerate(leaves(whole)):
        other = tmp_path / f"other{number}" / runs.path.name
        other.parent.mkdir()
        subprocess.run(["cp", "-r", str(runs.path), str(other)], check=True)
        changed = json.loads(json.dumps(whole))
        at = changed
        for step in place[:-1]:
            at = at[step]
        at[place[-1]] = HOSTILE
        (other / "run.json").write_text(json.dumps(changed))
        commands += [[*one, "--runs", str(other.parent)] for one in words]
    for (_, data), command in zip(written(*commands), commands, strict=True):
        assert not acting(data), command
    assert len(commands) > 60


def leaves(value, at=()):
    """Find each string in a document."""
    if isinstance(value, str):
        yield at
    for step, one in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        yield from leaves(one, (*at, step))


def test_nothing_of_a_bank_acts_and_none_of_it_is_markup(tmp_path, monkeypatch):
    """Which others may have exported."""
    monkeypatch.chdir(tmp_path)
    with WaitStore(tmp_path / "bank") as bank:
        bank.extend(
            WaitRecord(QueuedJob(60.0 * n, 4, 3600.0, f"u{HOSTILE}", f"s{HOSTILE}", f"p{HOSTILE}"), exactly(5.0))
            for n in range(60)
        )
    (tmp_path / "log.txt").write_text(
        f"Cluster|JobID|User|Partition|Submit|Eligible|Start|End|State|TimelimitRaw|ReqCPUS\n"
        f"c{MARKUP}|7|ada|p{MARKUP}|1799990000|1799990000|1799990300|1799990400|COMPLETED|60|4\n"
    )
    words = [
        ["bank", "show", "--bank", "bank", "--all"],
        ["bank", "show", "--bank", "bank", "--output", "json"],
        ["predict", "--cores", "4", "--walltime", "1h", "--bank", "bank", "--bank-only", "--system", f"s{HOSTILE}"],
        ["predict", "--cores", "2,4", "--walltime", "1h", "--bank", "bank", "--bank-only", "--system", f"s{HOSTILE}"],
        ["learn", "--from", "log.txt", "--bank", "other"],
        ["bank", "show", "--bank", "other"],
    ]
    found = written(*words, environment={"COLUMNS": "300"})
    for (code, data), command in zip(found, words, strict=True):
        assert not acting(data), command
        assert MARKUP.encode() in data, command
        assert code == 0, (command, data)


SEQUENCE = re.compile(rb"\x1b\[[0-9;]*m|\r(?=\n)")  # colours, and what a terminal makes of a line's end


def on_a_terminal(*words, environment=()):
    ours, its = pty.openpty()
    command = Command(*words, terminal=its, env={**os.environ, "TERM": "xterm-256color", **dict(environment)})
    os.close(its)
    data = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:
            break
        if not part:
            break
        data += part
    os.close(ours)
    command.wait()
    return data


def test_a_terminal_gets_our_colours_and_no_one_else_s(tmp_path, monkeypatch, runs):
    monkeypatch.chdir(tmp_path)
    for words in (["runs"], ["status"], ["explain"], ["run", "--help"], [f"nix{HOSTILE}"]):
        data = on_a_terminal(*words, environment={"ASA_RUNS": "runs", "COLUMNS": "200"})
        assert b"\x1b[" in data, words
        assert b"\x1b[8m" not in data
        assert not acting(SEQUENCE.sub(b"", data)), words
        assert b"\\x1b" in data or words == ["run", "--help"]


def test_logs_are_escaped_on_a_terminal_and_whole_in_a_pipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = "50 %\r100 %\r\n\x1b[2J\x1b[31métape\n"
    (tmp_path / "w.toml").write_text(
        f'name = "w"\n[[stage]]\n{STAGE}'.replace(
            '"true"', toml("printf '50 %%\\r100 %%\\r\\n\\033[2J\\033[31m\\303\\251tape\\n'")
        )
    )
    assert written(["run", "w.toml", "--backend", "local", "--bank", "none", "--runs", "runs"])[0][0] == 0
    ((_, whole),) = written(["logs", "a", "--runs", "runs"])
    assert whole.decode() == said
    assert on_a_terminal("logs", "a", "--runs", "runs").decode().split("\r\n") == [
        "50 %", "100 %", "\\x1b[2J\x1b[31métape", "\x1b[0m"
    ]  # fmt: skip


COLOURS = st.sampled_from(["0", "", "1", "31", "1;32", "38;5;208", "38;2;1;2;3", "39", "4;97"])
OTHERS = st.sampled_from(["8", "5", "7", "40", "48;5;1", "38;5", "1;8", "38;2;1;2", "999", "31;", ";;8"])


@given(
    st.lists(
        st.one_of(COLOURS.map("\x1b[{}m".format), OTHERS.map("\x1b[{}m".format), st.text("\x1b[0;2Jmé\n", max_size=6))
    )
)
def test_colours_of_a_jobs_output_are_shown_and_nothing_else_of_it_acts(parts):
    """However it comes in pieces; and what follows it has no colour of its."""
    whole, left = printable_in_colours("".join(parts))
    pieces, rest = [], ""
    for part in parts:
        shown, rest = printable_in_colours(rest + part)
        pieces.append(shown)
    for text in (whole, "".join(pieces)):
        colours = re.findall("\x1b.*?m", text)
        assert not acts(re.sub(r"\x1b\[[0-9;]*m", "", text))
        assert not colours or colours[-1] == "\x1b[0m"
        assert not {"5", "7", "8", "999"} & {
            code for one in colours if "38;" not in one for code in one[2:-1].split(";")
        }
        assert not [one for one in colours if re.search(r"[\[;]4[0-9]", one)]
    assert left == rest
    assert whole.replace("\x1b[0m", "") == "".join(pieces).replace("\x1b[0m", "")


def test_a_print_that_nobody_thought_of_is_escaped(tmp_path):
    """By any way: of ours, of a plug-in's, of a library's; with and without colours."""

    def unthinking():
        import logging
        import warnings

        import rich
        import rich.live
        import rich.panel
        import typer

        from asa.core.console import Console

        def command():
            print(HOSTILE)  # noqa: T201
            sys.stdout.buffer.write(f"{HOSTILE}\n".encode())
            sys.stderr.write(f"{HOSTILE}\n")
            typer.echo(HOSTILE)
            rich.print(HOSTILE.replace("[", "("))
            rich.console.Console(stderr=True).print(rich.text.Text(HOSTILE), rich.panel.Panel(rich.text.Text(HOSTILE)))
            with rich.live.Live(rich.text.Text("now"), console=Console(), auto_refresh=False):
                sys.stderr.write(f"{HOSTILE}\x1b[8mhidden\n")
            logging.getLogger("other").error(HOSTILE)
            warnings.simplefilter("always")
            warnings.warn(HOSTILE, stacklevel=1)
            raise ValueError(HOSTILE)

        import asa.cli.lists

        asa.cli.lists.lists = command

    for environment in ({}, {"FORCE_COLOR": "1"}):
        ((code, data),) = written(["list"], environment=environment, before=unthinking)
        assert code == 1
        assert b"\x1b[8m" not in data
        assert not acting(re.sub(rb"\x1b\[[?0-9;]*[mlhAK]|\r(?=\x1b\[[A2]|\Z)", b"", data) if environment else data)
        assert data.count(b"\\x1b") >= 12
        assert b"a bug in asa, or in a package that extends it: ValueError" in data


def test_what_a_shell_completes_does_not_act(tmp_path, monkeypatch):
    (tmp_path / f"x{HOSTILE}y".replace("/", "")).with_suffix(".toml").write_text("")
    for shell in ("bash", "zsh", "fish"):
        environment = {
            **os.environ, "_ASA_COMPLETE": f"complete_{shell}", "COMP_WORDS": "asa check x", "COMP_CWORD": "2",
            "_TYPER_COMPLETE_ARGS": "asa check x", "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }  # fmt: skip
        for more in ({}, {"LC_ALL": "C"}):
            done = subprocess.run(
                [ASA], cwd=tmp_path, env=environment | more, capture_output=True, check=False, stdin=subprocess.DEVNULL
            )
            assert not acting(done.stdout + done.stderr), (shell, more)


def test_a_notice_is_one_line_that_does_not_act(tmp_path):
    """Its first line is a mail's subject."""
    from asa.records import RunEnded
    from asa.runner.notify import Notifier

    site = Capabilities("c", 4, 4, age_accrues=False)
    stage = Stage("a", cores=1, walltime_s=60.0, command="true")
    said = tmp_path / "said"
    plan = RunPlan(
        "abcd1234", "n", "w", (stage,), "per-stage", "slurm-cli", site, created_s=1.7e9, notify=f"cat >{said}"
    )
    folder = RunFolder.create(tmp_path / "runs", plan)
    Notifier(folder).ended([RunEnded(time_s=2.0, run="n", outcome="failed", reason=f"so\nBcc: all{HOSTILE}")])
    assert said.read_text().count("\n") == 1
    assert not acting(said.read_bytes())


def test_a_document_of_what_is_hostile_says_the_same_and_does_not_act(tmp_path):
    from asa.spec import load_workflow
    from asa.spec.writing import write_workflow
    from asa.workflow import Workflow

    flow = Workflow(
        "w", [Stage("a", cores=1, walltime_s=60.0, command=f"echo {HOSTILE}\nls '{HOSTILE}'", partition="p")]
    )
    text = write_workflow(flow)
    assert not acting(text.encode())
    (tmp_path / "w.toml").write_text(text)
    assert load_workflow(tmp_path / "w.toml").stages["a"].command == flow.stages["a"].command
    ((_, document),) = written(["export", "wfformat", str(tmp_path / "w.toml")])
    assert not acting(document)


def test_a_figure_holds_no_name_that_acts(tmp_path):
    pytest.importorskip("matplotlib")
    from asa.core.drawing import new_figure, save_figure

    figure = new_figure(2, 2)
    figure.add_subplot().set_title(HOSTILE.replace("\x1b", "").replace("$", ""))
    with pytest.MonkeyPatch.context() as patch:
        import matplotlib as mpl

        patch.setitem(mpl.rcParams, "svg.fonttype", "none")
        patch.setattr("warnings.warn", lambda *_, **__: None)
        save_figure(figure, tmp_path / "f.svg")
    assert not acting((tmp_path / "f.svg").read_bytes())
