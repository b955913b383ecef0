"""Workflow files."""

import pytest

from asa.errors import InputError
from asa.spec import check_file, load_workflow, near_parameter, parameters_of

GOOD = """\
name = "mosaic"
walltime = "1:00:00"

[[stage]]
name = "project"
cores = 64
walltime = "30min"
expected = "12min"
command = "./project.sh"
memory = "4G"

[[stage]]
name = "add"
nodes = 1
gpus = 2
walltime = "10"
after = ["project"]
"""


def write(tmp_path, text):
    path = tmp_path / "flow.toml"
    path.write_text(text)
    return path


def test_a_file_becomes_a_workflow(tmp_path):
    """Every key."""
    flow = load_workflow(write(tmp_path, GOOD))
    assert flow.name == "mosaic"
    assert flow.walltime_s == 3600
    project, add = flow.stages["project"], flow.stages["add"]
    assert (project.cores, project.walltime_s, project.expected_s) == (64, 1800, 720)
    assert (project.command, project.memory_bytes) == ("./project.sh", 4 << 30)
    assert (add.nodes, add.gpus, add.walltime_s, add.after) == (1, 2, 600, ("project",))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("cores = 64", "coers = 64", 6, "no key 'coers'"),
        ('name = "mosaic"', 'nmae = "mosaic"', 1, "no key 'nmae'|'name' is missing"),
        ('walltime = "10"', "", 12, "'walltime' is missing"),
        ('walltime = "30min"', 'walltime = "soon"', 7, "no duration"),
        ('walltime = "30min"', "walltime = 30", 7, "in quotes"),
        ('memory = "4G"', 'memory = "4Q"', 10, "no memory size"),
        ('memory = "4G"', 'burst_buffer = "4Q"', 10, "no storage size"),
        ('memory = "4G"', 'burst_buffer = "5"', 10, "'5' has no unit"),
        ("cores = 64", 'cores = "many"', 6, "cores"),
        ("cores = 64", "cores = 0", 6, "must be 1 or more, not 0"),
        ('after = ["project"]', 'after = ["projekt"]', 17, "'projekt', which is not a stage\nDid you mean 'project'"),
        ('after = ["project"]', 'after = ["add"]', 17, "depends on itself"),
        ('name = "add"', 'name = "project"', 13, "two stages"),
        ('expected = "12min"', 'expected = "2h"', 8, "would be killed"),
        ("cores = 64", "cores = ", 6, "not valid TOML"),
        ('walltime = "1:00:00"', 'walltime = "0s"', 2, "longer than 0"),
        ("cores = 64", "cores = true", 6, "cores"),
        ("cores = 64", 'cores = "8"', 6, "cores"),
        ("cores = 64", "cores = 8.0", 6, "cores"),
        ("cores = 64", 'cores = "8-64"', 6, 'Write a range as cores = "8..64"'),
        ("cores = 64", 'retries = "two"\ncores = 64', 6, "without quotes\nWrite it as in retries = 2"),
        ("cores = 64", "coers = 64", 6, "Did you mean 'cores'. `asa schema` has all keys"),
        ('after = ["project"]', "after = [1]", 17, "after: must be text in quotes"),
        ('walltime = "1:00:00"', 'walltime = "5min"', 2, "longer than its walltime"),
        ('[[stage]]\nname = "add"', '[[stagee]]\nname = "add"', 12, "no key 'stagee'"),
    ],
)  # fmt: skip
def test_a_typo_is_refused_with_file_line_and_remedy(tmp_path, old, new, line, message):
    """Where to look, and what to write."""
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InputError, match=message) as caught:
        load_workflow(path)
    assert str(caught.value.where).startswith(f"{path}:{line}" if line else str(path))
    assert caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('name = "x"\n[stage]\nname = "a"\n', 2, r"not a table of its own\nStart each stage with a line \[\[stage\]\]"),
        ('name = "x"\nstage = ["a"]\n', 2, "not a table of its own"),
        ('name = "x"\n\n[[stages]]\nname = "a"\n', 3, "no key 'stages'"),
    ],
)
def test_stages_written_wrongly_are_shown_how(tmp_path, text, line, message):
    """A single bracket, a list of names, a plural."""
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=message) as caught:
        load_workflow(path)
    assert caught.value.where == f"{path}:{line}"


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        ("command = echo hi # now", 'Text stands in quotes: command = "echo hi"'),
        ("command = awk '{print \"x\"}'", 'Text stands in quotes: command = "awk \'{print \\"x\\"}\'"'),
        ("walltime = 2h", 'Text stands in quotes: walltime = "2h"'),
        ("after = [b, c]", 'Text stands in quotes: after = ["b", "c"]'),
        ("local = True", "It is written so: local = true"),
        ("command = ", "Correct the syntax there."),
        ('command = "true', "Correct the syntax there."),
        ("command echo", "Correct the syntax there."),
    ],
)
def test_text_without_quotes_is_shown_with_them(tmp_path, row, hint):
    path = write(tmp_path, f'name = "x"\n[[stage]]\nname = "a"\n{row}\ncores = 1\n')
    [problem] = check_file(path)
    assert (problem.line, problem.hint) == (4, hint)
    assert "not valid TOML" in problem.message


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("run.sbatch", "#!/bin/sh\necho\n", "asa import scripts"),
        ("run.py", "import sys\nprint()\n", "asa import scripts"),
        ("flow.py", "from asa import Flow\n", "python"),
    ],
)
def test_a_script_is_no_workflow_file(tmp_path, name, text, hint):
    (tmp_path / name).write_text(text)
    [problem] = check_file(tmp_path / name)
    assert "is a script" in problem.message
    assert hint in problem.hint


FOREIGN = [
    ("job.slurm", "#!/bin/bash\n#SBATCH -n 4\nrule x:\necho\n", "a batch script", "asa import scripts job.slurm"),
    ("head.sbatch", "#SBATCH -n 4\nsrun a\n", "a batch script", "asa import scripts head.sbatch"),
    ("Snakefile", "rule all:\n    input: 'a'\n", "a Snakefile", "snakemake --rulegraph"),
    ("more.smk", "x = 1\n", "a Snakefile", "snakemake -s more.smk --rulegraph"),
    ("main.nf", "process A {\n  cpus 4\n}\n", "a pipeline of Nextflow", "nextflow run main.nf -with-trace"),
    ("run", "#!/usr/bin/env nextflow\nprocess A {\n}\n", "a pipeline of Nextflow", "asa import nextflow"),
    ("nextflow.config", "process.cpus = 4\n", "a configuration of Nextflow", "--config nextflow.config"),
    (
        "trace.txt",
        "task_id\tname\tstatus\trealtime\n1\tA\tCOMPLETED\t5m\n",
        "a trace of Nextflow",
        "asa import nextflow",
    ),
    ("a.cwl", "cwlVersion: v1.2\nclass: Workflow\n", "a workflow in CWL", "cwltool --parallel a.cwl"),
    ("a.wdl", "version 1.0\nworkflow x { call y }\n", "a workflow in WDL", "miniwdl run a.wdl"),
    ("a b.json", '{"name": "x", "schemaVersion": "1.4"}', "an instance in WfFormat", "asa import wfformat 'a b.json'"),
    (
        "rules.dot",
        "digraph snakemake_dag {\n 1 -> 0\n}\n",
        "Snakemake's graph of rules",
        "asa import snakemake rules.dot",
    ),
    ("jobs.txt", "Building DAG of jobs...\nrule a:\n    jobid: 1\n", "a dry run of Snakemake", "--jobs jobs.txt"),
    ("old.txt", "JobID|User|Submit|Start\n1|a|2|3\n", "output of sacct", "asa learn --from old.txt"),
    (
        "log.swf",
        "; MaxProcs: 4\n" + "1 0 30 60 4 -1 -1 4 600 -1 1 1 1 -1 1 1 -1 -1\n",
        "a log in the Standard",
        "--history",
    ),
]


@pytest.mark.parametrize(("name", "text", "what", "hint"), FOREIGN)
def test_of_a_file_of_another_tool_it_is_said_what_takes_it(tmp_path, monkeypatch, name, text, what, hint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    [problem] = check_file(name)
    assert problem.message.startswith(f"is {what}")
    assert hint in problem.hint


def test_a_workflow_file_with_a_text_of_another_tool_in_it_is_one(tmp_path):
    file = tmp_path / "flow.toml"
    file.write_text(
        'name = "x"\n[[stage]]\nname = "a"\ncores = 1\nwalltime = "1m"\n'
        'command = """\ncat >x <<E\n#SBATCH -n 1\nE\n"""\n'
    )
    assert [problem for problem in check_file(file) if problem.severity == "error"] == []
    file.write_text(file.read_text().replace("[[stage]]", "[[stage]"))
    assert "not valid TOML" in check_file(file)[0].message


def test_a_byte_order_mark_is_no_offence(tmp_path):
    """Some editors write one."""
    path = tmp_path / "flow.toml"
    path.write_text(GOOD, encoding="utf-8-sig")
    assert load_workflow(path).name == "mosaic"


def test_a_file_without_stages_is_refused(tmp_path):
    """An empty list is none."""
    with pytest.raises(InputError, match="'stage' is missing"):
        load_workflow(write(tmp_path, 'name = "x"\n'))


def test_files_that_cannot_be_read_are_refused(tmp_path):
    """Missing, or not text."""
    with pytest.raises(InputError, match="cannot be read"):
        load_workflow(tmp_path / "none.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        load_workflow(path)


RICH = """\
name = "{{survey}}"

[parameters]
survey = "2mass"
width = 28
factor = 1.5
here = true

[defaults]
cores = 1
walltime = "20min"
partition = "batch"
environment = { LC_ALL = "C", N = "{{width}}" }

[[stage]]
name = "list"
local = "{{here}}"
command = "mImgtbl {{ survey }} raw.tbl"

[[stage]]
name = "project"
after = ["list"]
ntasks = "{{width}}"
cpus_per_task = 2
tasks = [
  "mProject {{survey}}/a",
  "mProject {{survey}}/b",
]
expected = { learn = true, until = "12min" }
retries = { times = 2, walltime_factor = "{{factor}}" }
options = ["--constraint={{survey}}"]
account = "a1"
inputs = ["raw/*.fits"]
outputs = ["proj"]
environment = { N = 4, OMP_NUM_THREADS = 2 }
input_size = 2e9

[[stage]]
name = "add"
after = ["project"]
script = "add.sh"
expected = "learn"
"""


@pytest.fixture
def rich(tmp_path):
    (tmp_path / "add.sh").write_text("#!/bin/bash\necho '{{survey}}'\n")
    return write(tmp_path, RICH)


def test_everything_that_a_stage_can_say(rich):
    """Parameters, defaults, scripts, tasks, retries."""
    flow = load_workflow(rich)
    listed, project, add = flow.stages.values()
    assert flow.name == "2mass"
    assert (listed.local, listed.cores, listed.command, listed.partition) == (True, 1, "mImgtbl 2mass raw.tbl", "batch")
    assert (project.cores, project.cpus_per_task) == (56, 2)
    assert project.tasks == ("mProject 2mass/a", "mProject 2mass/b")
    assert (project.learns_run, project.expected_run_s, project.walltime_s) == (True, 720, 1200)
    assert (project.retries, project.retry_walltime_factor) == (2, 1.5)
    assert (project.options, project.account) == (("--constraint=2mass",), "a1")
    assert (project.inputs, project.outputs, project.input_size) == (("raw/*.fits",), ("proj",), 2e9)
    assert dict(project.environment) == {"LC_ALL": "C", "N": "4", "OMP_NUM_THREADS": "2"}
    assert dict(add.environment) == {"LC_ALL": "C", "N": "28"}
    assert add.script == "#!/bin/bash\necho '{{survey}}'\n"
    assert (add.learns_run, add.expected_run_s, add.command) == (True, None, "")


def test_parameters_take_other_values_of_their_kind(rich):
    """From Python, or as text from a command line."""
    assert parameters_of(rich) == {"survey": "2mass", "width": 28, "factor": 1.5, "here": True}
    for width in (4, "4"):
        flow = load_workflow(rich, {"width": width, "survey": 7, "here": "no"})
        assert (flow.stages["project"].cores, flow.name, flow.stages["list"].local) == (8, "7", False)
    for given, message in (
        ({"width": "wide"}, "'wide' is not a whole number"),
        ({"width": 1.5}, "1.5 is not a whole number"),
        ({"factor": "x"}, "is not a number"),
        ({"here": "perhaps"}, "is not true or false"),
        ({"widht": 4}, "no parameter 'widht'\nDid you mean 'width'"),
        ({"width": 0}, "ntasks: must be 1 or more, not 0"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            load_workflow(rich, given)
        assert str(caught.value.where).startswith(f"{rich}:")


def test_a_mistyped_parameter_is_known_by_what_it_is_like(rich):
    """For a command line, on which it may be a setting of something else."""
    names = ("widht", "survey", "here ", "partition")
    assert [near_parameter(rich, name) for name in names] == ["width", None, "here", None]
    with pytest.raises(InputError, match="cannot be read"):
        near_parameter(rich.parent / "none.toml", "width")


def test_all_errors_are_told_at_once(tmp_path):
    """Each with its line, those of the defaults and of lists, too; a mistake in one stage hides none in another."""
    path = write(tmp_path, """\
name = "w"
colour = "red"
[parameters]
width = 4
unused = 1
[defaults]
walltime = "soon"
[[stage]]
name = "a"
cores = "{{with}}"
[[stage]]
name = "b"
mem = "4G"
cores = -1
after = [
  "a",
  "x",
]
command = \'\'\'
echo
echo {{widt}}
\'\'\'
[[stage]]
name = "c"
cores = "{{width}}"
walltime = "1h"
after = ["d"]
script = "none.sh"
[[stage]]
name = "d"
after = ["c"]
walltime = "1h"
[stage.environment]
"A B" = "x"
""")  # fmt: skip
    found = {(problem.line, problem.severity): problem for problem in check_file(path)}
    for line, words, hint in (
        (2, "there is no key 'colour'", "Known keys: name, walltime"),
        (7, "walltime: 'soon' is no duration", "Write it as Slurm does"),
        (10, "there is no parameter 'with'", "Did you mean 'width'"),
        (13, "stage 'b': there is no key 'mem'", "Did you mean 'memory'"),
        (14, "cores: must be 1 or more, not -1", "Correct"),
        (17, "depends on 'x', which is not a stage", "Stages are: a, b, c, d"),
        (21, "there is no parameter 'widt'", "Did you mean 'width'"),
        (27, "depends on itself: c -> d -> c", "Remove one"),
        (28, "script none.sh cannot be read", "relative to flow.toml's folder"),
        (29, "stage 'd': 'cores' is missing", "cores = 28"),
        (34, "'A B' is no name of a variable", "Correct"),
    ):
        problem = found.pop((line, "error"))
        assert words in problem.message
        assert hint in problem.hint
        assert problem.file == str(path)
    assert "'unused' is not used" in found.pop((5, "warning")).message
    assert not found
    with pytest.raises(InputError, match="'colour'"):
        load_workflow(path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("cores = 1\nntasks = 2", "has cores and ntasks"),
        ("cores = 3\ncpus_per_task = 2", "asks for 3 cores in tasks of 2"),
        ('cores = 1\ncommand = "a"\ntasks = ["b"]', "has command and tasks"),
        ('cores = 1\nscript = "empty.sh"', "the script empty.sh is empty"),
        ('cores = 1\nscript = "binary.sh"', "is not UTF-8"),
        ('cores = 1\nscript = "add.hs"', "cannot be read: No such file or directory\nDid you mean 'add.sh'"),
        ('cores = 1\noptions = ["-n4"]', "'-n4' is no option"),
        ('cores = 1\nafter = "a"', 'stage \'s\': after: must be a list in brackets\nWrite it as after = \\["a"\\]'),
        ("cores = 1\nenvironment = { A = true }", "write it in quotes"),
        ("cores = 1\nretries = { walltime_factor = 3 }", "'times' is missing"),
        ('cores = 1\ntime = "1h"', "stage 's': there is no key 'time'\nDid you mean 'walltime'"),
        ("cores = 1\ntimes = 2", "no key 'times'\nDid you mean retries = { times = 2 }"),
        ('cores = 1\nuntil = "2h"', "no key 'until'\nDid you mean expected = { learn = true, until"),
        ("cores = 1\nlearn = true", "no key 'learn'\nDid you mean expected = \"learn\""),
        ("cores = 1\nretries = { times = 2, memory_facto = 3 }", "no key 'memory_facto'\nDid you mean 'memory_factor'"),
        ("cores = 1\ncontinues = true\ntotal = { lern = true }", "no key 'lern'\nDid you mean 'learn'"),
        ("cores = 1\nwalltime_factor = 2", "no key 'walltime_factor'\nDid you mean retries = {"),
        ("cores = 1\nretries = { time = 2 }", "no key 'time'\nDid you mean 'times'"),
        ('cores = 1\nexpected = { untl = "2h" }', "no key 'untl'\nDid you mean 'until'"),
        ('cores = 1\nexpected = "lern"', "expected: 'lern' is no duration\nDid you mean 'learn'"),
        ('cores = 1\nexpected = "soon"', "expected: 'soon' is no duration\nWrite it as Slurm does"),
        ('cores = 1\nmemory = "4Q"', "memory: '4Q' is no memory size\nWrite 512M"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(tmp_path, lines, message):
    """In words that say what to write."""
    (tmp_path / "empty.sh").write_text("\n")
    (tmp_path / "binary.sh").write_bytes(b"\xff\xfe")
    (tmp_path / "add.sh").write_text("true\n")
    path = write(tmp_path, f'name = "w"\n[[stage]]\nname = "s"\nwalltime = "1h"\n{lines}\n')
    with pytest.raises(InputError, match=message) as caught:
        load_workflow(path)
    assert str(caught.value.where).startswith(f"{path}:")


def test_what_a_stage_says_takes_the_place_of_the_defaults(tmp_path):
    """One way to run, and one way to say how wide, whatever the defaults have."""
    path = write(
        tmp_path,
        """\
name = "w"
defaults = { nodes = 2, command = "make", walltime = "1h", options = ["--a"] }
stage = [{ name = "a" }, { name = "b", cores = 4, tasks = ["x"], options = ["--b"] }]
""",
    )
    a, b = load_workflow(path).stages.values()
    assert (a.nodes, a.cores, a.command, a.options) == (2, None, "make", ("--a",))
    assert (b.nodes, b.cores, b.command, b.tasks, b.options) == (None, 4, "", ("x",), ("--b",))


def test_local_stages_need_not_say_how_wide_and_how_long(tmp_path):
    """They are tiny."""
    stage = load_workflow(write(tmp_path, 'name = "w"\n[[stage]]\nname = "a"\nlocal = true\n')).stages["a"]
    assert (stage.local, stage.cores, stage.walltime_s) == (True, 1, 600)
