"""What the page of the five papers says can be looked up: its commands can be given, its tests exist."""

import ast
import importlib
import re
import shlex
from functools import cache
from pathlib import Path

import papers_page
import pytest
import typer

from asa.core import plugins

ROOT = Path(__file__).parents[1]
Refusal = typer.BadParameter.__base__  # of all that is wrong on a command line
PAPERS = papers_page.papers()
PARTS = [(paper.name, kind, part) for paper in PAPERS for kind in papers_page.KINDS for part in paper.parts[kind]]
COMMANDS = sorted({part.command for _, _, part in PARTS if part.command})
OWN = {  # words of a command by which it is of a paper's system; of ASA is what is of no other
    "ASA": (),
    "BBSched": ("bbsched",),
    "OpenCCS": ("ccs", "openccs"),
    "DRAS": ("dras",),
    "DMR": ("dmr", "elastic", "malleable"),
}
NAMED = {  # options whose words are names of what is installed
    "strategies": "asa.strategies",
    "strategy": "asa.strategies",
    "estimators": "asa.estimators",
    "estimator": "asa.estimators",
    "scheduler": "asa.schedulers",
    "backend": "asa.backends",
}


@cache
def _tree():
    return typer.main.get_command(importlib.import_module("asa.cli.app").app)


def _given(words):
    """Parse a command line of asa, and return the command's context; nothing is run."""
    command, words = _tree(), list(words)
    while hasattr(command, "commands"):
        assert words, f"{command.name} needs a command"
        name = words.pop(0)
        assert name in command.commands, f"there is no command {name!r}"
        command = command.commands[name]
    return command.make_context(command.name, words)


@cache
def _tests_of(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_page_is_made_of_the_file():
    """`python tools/papers_page.py` makes it."""
    assert papers_page.PAGE.read_text() == papers_page.page(PAPERS)


def test_each_paper_is_there_with_all_of_its_kinds():
    assert [paper.name for paper in PAPERS] == ["ASA", "BBSched", "OpenCCS", "DRAS", "DMR"]
    assert all(paper.parts[kind] for paper in PAPERS for kind in papers_page.KINDS)
    assert len(PARTS) >= 150
    keys = [(paper, kind, part.at, part.what) for paper, kind, part in PARTS]
    assert len(set(keys)) == len(keys)


def test_each_part_says_what_it_has_to():
    """What is there names its test; what is otherwise says how; what is not there claims neither."""
    assert {part.state for _, _, part in PARTS} == set(papers_page.STATES)
    for paper, _, part in PARTS:
        where = f"{paper}, {part.at}: {part.what}"
        assert bool(part.command) == (part.state != "not there"), where
        assert part.test or part.state != "there", where
        assert not part.test or part.state != "not there", where
        assert part.why or part.state != "differs", where
        assert not re.search(r"[|\n]", part.at + part.what + part.why), where


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_can_be_given(command):
    """With these arguments; names of strategies and the like are those of what is installed."""
    program, *words = shlex.split(command)
    if program == "mpirun":
        program, *words = words[words.index("python") :]
    if program == "python":
        assert (ROOT / words[0]).exists()
        return
    assert program == "asa"
    context = _given(words)
    for option, group in NAMED.items():
        for name in str(context.params.get(option) or "").split(","):
            assert not name or name == "auto" or plugins.load(group, name.partition(":")[0])


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_each_command_is_of_its_paper(paper):
    """It has the subcommand, the scheduler or the backend of its paper's system, and none of another one's."""
    of_others = {word for name, words in OWN.items() if name != paper.name for word in words} - set(OWN[paper.name])
    for part in (part for parts in paper.parts.values() for part in parts if part.command):
        words = shlex.split(part.command)
        assert not of_others.intersection(words), part.command
        assert paper.name == "ASA" or any(word in part.command for word in OWN[paper.name]), part.command


def test_a_command_that_is_wrong_is_found():
    """The check before can fail: by command, option, and what an option takes."""
    for wrong, told in (
        ("ccs plans jobs.txt", "plans"),
        ("bbsched compare --metods bbsched", "--metods"),
        ("dmr study --seeds many", "many"),
        ("ccs why", "(?i)job"),
    ):
        with pytest.raises((AssertionError, Refusal), match=told):
            _given(shlex.split(wrong))


def test_each_test_exists():
    tests = {part.test for _, _, part in PARTS if part.test}
    assert len(tests) > 100
    missing = []
    for test in tests:
        path, _, name = test.partition("::")
        if not (ROOT / path).exists() or name not in _tests_of(path):
            missing.append(test)
    assert not missing
