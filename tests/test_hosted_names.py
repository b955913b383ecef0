"""What jobs of a host are called, and what of their output is their own."""

import sys
import types
from importlib import import_module
from pathlib import Path

import pytest

from asa.hosted.graph import Graph, HostJob
from asa.hosted.printed import Printed, printed
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
RAISED = "RuleException:\nCalledProcessError in file \"Snakefile\", line 6:\nCommand 'x;\ny' "
OF_A_SHELL = f"{RAISED}returned non-zero exit status 3.\n"
OF_CODE = 'RuleException:\nValueError in file "Snakefile", line 6:\nno column x\n'
NO_OUTPUT = "MissingOutputException in rule bwa_map\nB.txt (missing locally)\n"


@pytest.mark.parametrize(("log", "own", "end"), [
    (f"{BEFORE}one line\n    indented\n{OF_A_SHELL}{AFTER}", "one line\n    indented", "exit status 3"),
    (f"{BEFORE}Traceback ...\nKeyError: 'x'\n{AFTER}", "Traceback ...\nKeyError: 'x'", ""),
    (f"{BEFORE}killed in the middle\n", "killed in the middle", ""),
    (f"cut off\n{OF_A_SHELL}{AFTER}", "cut off", "exit status 3"),
    (f"{BEFORE}{OF_A_SHELL}{AFTER}", "", "exit status 3"),
    (f"{BEFORE}{RAISED}died with <Signals.SIGSEGV: 11>.\n{AFTER}", "", "signal SIGSEGV"),
    (f"{BEFORE}said\n{OF_CODE}{AFTER}", f"said\n{OF_CODE.partition(chr(10))[2].strip()}", ""),
    (f"{BEFORE}{NO_OUTPUT}Shutting down, this might take some time.\nElapsed\n", NO_OUTPUT.strip(), ""),
])  # fmt: skip
def test_of_a_failed_jobs_output_its_commands_own_is_shown(log, own, end):
    """Without what Snakemake says before and after, but with the error of a rule that is Python code."""
    assert printed("Snakemake", log) == Printed(own, end)


@pytest.mark.parametrize(("host", "log"), [
    ("Snakemake", "ModuleNotFoundError: snakemake\n"),
    ("Snakemake", ""),
    ("Toil", f"{BEFORE}said\n"),
])  # fmt: skip
def test_output_of_another_form_counts_as_a_whole(host, log):
    assert printed(host, log) is None


def job(rule, **wildcards):
    return types.SimpleNamespace(
        rule=types.SimpleNamespace(name=rule), wildcards_dict=wildcards, is_group=lambda: False
    )


def group(*jobs):
    return types.SimpleNamespace(jobs=jobs, is_group=lambda: True)


@pytest.mark.parametrize(("of", "label", "detail"), [
    (job("bwa_map", sample="B", lane=1), "bwa_map sample=B,lane=1", "B-1"),
    (job("all"), "all", ""),
    (group(job("tidy", i="1"), job("count", i="1", lane="2")), "count-tidy i=1,lane=2", "1-2"),
    (group(job("count", i="1"), job("count", i="2"), job("sum", s="x")), "count-sum s=x", "x"),
])  # fmt: skip
def test_people_are_told_rule_and_wildcards(reading, of, label, detail):
    """Of a group those that its jobs do not differ in."""
    assert (reading.label_of(of), reading.detail_of(of)) == (label, detail)
