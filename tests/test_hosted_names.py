"""What jobs of a host are called, and what of their output is their own."""

import sys
import types
from importlib import import_module
from pathlib import Path

import pytest

from asa.hosted.graph import Graph, HostJob
from asa.runner.driver import kind_of
from asa.workflow import LONGEST_NAME, Stage

PLUGINS = Path(__file__).parents[1] / "asa" / "hosted" / "plugins"


@pytest.fixture
def reading(monkeypatch):
    """Import the module of the plug-in that reads; its package needs Snakemake."""
    package = types.ModuleType("snakemake_executor_plugin_asa")
    package.__path__ = [str(PLUGINS / package.__name__)]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    yield import_module("snakemake_executor_plugin_asa.reading")
    for name in [name for name in sys.modules if name.startswith(f"{package.__name__}.")]:
        monkeypatch.delitem(sys.modules, name)


def names(*jobs):
    news, _ = Graph().read(HostJob((kind, detail), kind, None, (), detail) for kind, detail in jobs)
    return [name for name, *_ in news]


def test_a_stage_is_named_by_rule_wildcards_and_number():
    """So people know it everywhere; and it learns as its rule."""
    found = names(("bwa_map", "B"), ("all", ""), ("call", "a/b.bam-3"))
    assert found == ["bwa_map.B.1", "all.2", "call.a_b_bam-3.3"]
    assert [kind_of(name) for name in found] == ["bwa_map", "all", "call"]


@pytest.mark.parametrize("kind", ["map", "a" * 45, "a" * 51, "a" * 80])
def test_a_name_is_never_too_long_and_keeps_what_differs(kind):
    """Which is more often the end."""
    found = names((kind, "x" * 80 + "1"), (kind, "x" * 80 + "2"))
    assert all(len(name) <= LONGEST_NAME and Stage(name, cores=1) for name in found)
    assert [kind_of(name) for name in found] == [kind[:52]] * 2
    assert len(kind) > 50 or [name.split(".")[1][-1] for name in found] == ["1", "2"]


BEFORE = """Building DAG of jobs...
Execute 1 jobs...

[Tue Dec  1 03:29:12 2026]
localrule bwa_map:
    output: B.txt
    jobid: 0
    wildcards: sample=B
    resources: tmpdir=/tmp
"""
AFTER = """[Tue Dec  1 03:29:12 2026]
Error in rule bwa_map:
    message: None
Shutting down, this might take some time.
"""
OF_A_SHELL = 'RuleException:\nCalledProcessError in file "Snakefile", line 6:\n'


@pytest.mark.parametrize(("log", "own"), [
    (f"{BEFORE}one line\n    indented\n{OF_A_SHELL}{AFTER}", "one line\n    indented"),
    (f"{BEFORE}Traceback ...\nKeyError: 'x'\n{AFTER}", "Traceback ...\nKeyError: 'x'"),
    (f"{BEFORE}killed in the middle\n", "killed in the middle"),
    (f"cut off\n{OF_A_SHELL}{AFTER}", "cut off"),
    (f"{BEFORE}{OF_A_SHELL}{AFTER}", ""),
    ("ModuleNotFoundError: snakemake\n", None),
    ("", None),
])  # fmt: skip
def test_of_a_failed_jobs_output_its_commands_own_is_shown(reading, log, own):
    """Without what Snakemake says before and after; all of it, if it has another form."""
    assert reading.own_output(log) == own
