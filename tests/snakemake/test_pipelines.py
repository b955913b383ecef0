"""Montage and BLAST as workflows of Snakemake, with the real programs: the same bytes as in a plain loop."""

import re
import shlex

import pytest
from real_pipelines import Made
from snakemake_runs import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def snakefile(flow):
    """Write a rule for each stage, which notes its end in a file; they follow each other by these."""
    lines = ["localrules: all", "rule all:", f"    input: {', '.join(repr(f'done/{name}') for name in flow.order)}"]
    for name in flow.order:
        stage = flow.stages[name]
        loop = f'while IFS= read -r task; do sh -c -- "$task" </dev/null; done <{stage.tasks_file}'
        commands = [loop] if stage.tasks_file else [*(f"({task})" for task in stage.tasks), stage.script, stage.command]
        exports = [f"export {variable}={shlex.quote(value)}" for variable, value in stage.environment]
        text = "\n".join(filter(None, [*exports, *commands])).replace("{", "{{").replace("}", "}}")
        before = ", ".join(repr(f"done/{one}") for one in stage.after)
        lines += [f"rule {re.sub('[^A-Za-z0-9]', '_', name)}:", *([f"    input: {before}"] if before else [])]
        lines += [f"    output: 'done/{name}'", "    resources: runtime=10"]
        lines += [f"    shell: {(text + chr(10) + 'touch {output}')!r}"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", [pytest.param("montage", marks=pytest.mark.full), "blast"])
def test_real_programs_give_the_same_bytes(project, tmp_path, name):
    """As in a plain loop over their commands."""
    made = Made(name, tmp_path)
    work = made.work()
    ours = project(None, name=work.name)
    assert ours.folder == work
    (work / "Snakefile").write_text(snakefile(made.flow))
    ours.run()
    assert made.verdict(work).startswith("good")
    assert made.likeness(work) == "the same bytes"
