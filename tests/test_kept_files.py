"""What earlier releases wrote is read by today's commands, or refused with what to do: `tools/kept_release.py`."""

import hashlib
from pathlib import Path
from typing import get_args, get_type_hints

import kept_runs as kept
import pytest
from asa.backends.dras import weights
from asa.backends.simulated import model_file
from asa.backends.twin.model import About
from typer.testing import CliRunner

from asa.cli import runs
from asa.cli.app import app
from asa.errors import InputError
from asa.estimators import stored
from asa.runner import folder
from asa.runtimes import log
from asa.studies.compare.kept import KeptComparison

RELEASES = ["0.2.0"]
ROWS = {
    "runs": (["runs", "--runs", "runs"], 0, "flow "),
    "status": (["status", "runs/flow"], 0, "flow  completed"),
    "explain": (["explain", "--run", "runs/flow"], 0, "flow has completed"),
    "explain a stage": (["explain", "a", "--run", "runs/flow"], 0, "a: done"),
    "logs": (["logs", "a", "--run", "runs/flow"], 0, "a 2"),
    "report": (["report", "runs/flow", "--out", "page.html"], 0, "Written to page.html"),
    "resume": (["resume", "runs/flow"], 0, "has ended already"),
    "tick": (["tick", "runs/flow"], 0, "has ended already"),
    "a line in a crontab": (["tick", "runs/flow", "--quiet", "--kept=0123456789ab"], 0, ""),
    "a job that keeps it": (["tick", "runs/flow", "--keeper=2", "--lasts=3600"], 0, ""),
    "cancel": (["cancel", "runs/flow", "--yes"], 0, "Nothing to cancel"),
    "delete": (["runs", "--runs", "runs", "--delete", "--older", "0d", "--yes"], 0, "1 run of runs deleted"),
    "check": (["check", "flow.toml"], 0, "no errors"),
    "run": (["run", "flow.toml", "--site", "./site.toml", "--bank", "bank", "--runs", "more", "--dry-run"], 0, "a"),
    "advise": (["advise", "flow.toml", "--bank", "bank"], 0, "a "),
    "predict": (
        ["predict", "--bank", "bank", "--system", "here", "--partition", "normal", "--cores", "4", "--walltime", "1h"],
        0, "half of such jobs",
    ),
    "bank": (["bank", "show", "--bank", "bank"], 0, "here normal"),
    "bank export": (["bank", "export", "anew.jsonl.gz", "--bank", "bank"], 0, "30"),
    "bank import": (["bank", "import", "bank.jsonl.gz", "--bank", "anew"], 0, "new observations"),
    "learn": (["learn", "--from", "jobs.sacct", "--bank", "bank", "--system", "here"], 0, "0 of them are new"),
    "a comparison": (["report", "compare.json", "--out", "page.html"], 0, "Written to page.html"),
    "what a comparison printed": (
        ["report", "compare-printed.json", "--out", "page.html"], 2, "compare anew: asa compare --results",
    ),
    "a model": (["workload", "generate", "model.json", "--days", "1", "--seed", "1", "--out", "log.swf"], 0, ""),
    "a twin": (
        ["worth", "flow.toml", "--twin", "site.twin", "--moments", "2", "--strategies", "per-stage"], 2, "no strategy",
    ),
}  # fmt: skip
"""Words of a command, its exit code, and what it says."""
CHANGING = {"resume", "tick", "a line in a crontab", "a job that keeps it", "cancel", "delete"}


@pytest.fixture(scope="module", params=RELEASES)
def written(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("kept")
    kept.unpack(kept.KEPT / f"{request.param}.tar.xz", root)
    return root


@pytest.fixture
def place(written, tmp_path, monkeypatch, own_home):
    """Go where the files are, each test to its own copy of them."""
    kept.copy(written / "files", tmp_path / "files")
    monkeypatch.chdir(tmp_path / "files")
    return tmp_path / "files"


def contents(root):
    """Return what is in the files of a folder."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink())
    return {path.relative_to(root): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("row", ROWS)
def test_a_command_reads_it_or_says_what_to_do(place, row):
    words, code, said = ROWS[row]
    before = contents(place / "runs")
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200", "NO_COLOR": "1"})
    if code == 2:  # what `asa` itself then prints
        assert isinstance(done.exception, InputError), done.output
        assert said in str(done.exception)
    else:
        assert done.exit_code == code, (done.output, done.exception)
        assert said in done.output
    if row == "delete":
        assert not (place / "runs" / "flow").exists()
    elif row in CHANGING:
        left = contents(place / "runs")
        assert {path: left[path] for path in before if path.name not in {"client.log", "run.json"}} == {
            path: digest for path, digest in before.items() if path.name not in {"client.log", "run.json"}
        }
    else:
        assert contents(place / "runs") == before


def test_an_agent_is_read(place):
    assert weights.load_agent(place / "agent.npz")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "flow"], "no client"),
        (["explain", "b", "--run", "flow"], "b: "),
        (["report", "flow", "--out", "page.html"], "Written"),
        (["runs", "--runs", "."], "no client"),
        (["runs", "--runs", ".", "--delete", "--older", "0d", "--yes"], "Nothing was deleted"),
    ],
)
def test_a_run_that_was_left_is_shown_and_stays(written, tmp_path, monkeypatch, own_home, words, said):
    kept.copy(written / "left" / "chain-chained", tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    before = contents(tmp_path / "run" / "flow")
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code == 0, (done.output, done.exception)
    assert said in done.output
    assert contents(tmp_path / "run" / "flow") == before


def test_the_page_has_the_formats_of_the_code():
    """A number that rises is in the table, with what becomes of earlier files."""
    page = (Path(__file__).parents[1] / "docs" / "reference" / "files.md").read_text()
    _, _, rest = page.partition("## Files of other versions")
    table = rest.partition("\n## ")[0]
    formats = {
        "`schema`": folder._SCHEMA,
        f"`{stored.FORMAT}`": stored.VERSION,
        f"`{log._FORMAT}`": log._VERSION,
        "`asa_comparison`": get_args(get_type_hints(KeptComparison)["asa_comparison"])[0],
        f"`{model_file._FORMAT}`": model_file._VERSION,
        "`asa_twin`": get_args(get_type_hints(About)["asa_twin"])[0],
        f"`{weights._FORMAT}`": weights._VERSION,
    }
    for name, version in formats.items():
        assert f"| {name} {version}" in table, name
    assert f"`--output json` prints | `schema` {runs.SCHEMA} |" in table
