"""`asa check`, `asa show`, `asa schema`."""

import json
import shutil
import stat
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from asa.cli.check import check
from asa.cli.given import unknown_workflow
from asa.cli.schema import schema
from asa.cli.show import show
from asa.errors import InputError
from asa.spec import schema_text

APP = typer.Typer()
for command in (check, show, schema):
    APP.command()(command)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a PATH of its own."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("mProject", "mAdd"):
        program(tools / name)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def program(path):
    path.write_text("#!/bin/sh\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def asa(*arguments, code=0, columns=80):
    done = CliRunner().invoke(APP, [str(argument) for argument in arguments], env={"COLUMNS": str(columns)})
    if isinstance(done.exception, InputError):
        assert code == done.exception.exit_code
        return done
    assert done.exit_code == code, done.output
    return done


def write(*stages, head=""):
    text = f'#:schema x.json\nname = "w"\n{head}[defaults]\ncores = 1\nwalltime = "1h"\n'
    lines = text + "".join(f"[[stage]]\n{stage}\n" for stage in stages)
    Path("flow.toml").write_text(lines)
    return lines.splitlines()


def told(*arguments, code=0):
    """Return line, severity and text of each problem, and its hint."""
    document = json.loads(asa("check", "flow.toml", "--output", "json", *arguments, code=code).stdout)
    assert document["schema"] == 1
    return [(p["line"], p["severity"], p["message"], p["hint"]) for p in document["problems"]]


def only(problems, words):
    [found] = [problem for problem in problems if words in problem[2]]
    return found


def test_problems_are_printed_as_compilers_print_them(place):
    """Each problem has a line to which an editor can jump, and a hint below; only errors give exit code 2."""
    write('name = "a"\ncommand = "mProjct x"')
    done = asa("check", "flow.toml")
    assert (
        "flow.toml:8: warning: stage 'a': mProjct: not found in PATH here\n    Did you mean 'mProject'?" in done.stdout
    )
    assert "flow.toml: 1 warning\n" in done.stderr
    write('name = "a"\ncommand = "mProject x"\ncoers = 2', 'name = "a"')
    done = asa("check", "flow.toml", code=2)
    assert "flow.toml:9: error: stage 'a': there is no key 'coers'\n    Did you mean 'cores'?" in done.stdout
    assert "flow.toml:11: error: stage 'a': there are two stages of this name" in done.stdout
    assert "2 errors" in done.stderr
    write('name = "a"\ncommand = "mProject x"')
    done = asa("check", "flow.toml")
    assert done.stdout == ""
    assert "no errors, no warnings" in done.stderr
    assert "cannot be read" in asa("check", "none.toml", code=2).stdout


def test_parameters_can_be_set(place):
    """Parameters are checked like all other keys."""
    write('name = "a"\ncommand = "mProject"\ncores = "{{width}}"', head="[parameters]\nwidth = 4\n")
    assert told("--param", "width=56") == []
    assert "no parameter 'widht'" in told("--param", "widht=56", code=2)[0][2]
    assert "not a whole number" in told("--param", "width=x", code=2)[0][2]


def test_programs_are_looked_for_where_they_stand(place):
    """Programs are found in commands, tasks, and scripts, each with its own line."""
    Path("s.sh").write_text("#!/bin/bash\n# a\nset -e\nmAdd x\nmAddd y\n")
    Path("plain").write_text("x")
    rows = write(
        "name = \"a\"\ncommand = '''\nmProject x\nmProjct y | sort\n./plain\n'''",
        'name = "b"\ntasks = [\n  "mProject 1",\n  "nohup mAddd 2",\n]',
        'name = "c"\nscript = "s.sh"',
        'name = "d"\nscript = """#!/bin/sh\nf() { true; }\nf && gone\n"""',
    )
    problems = told()
    for words, text in (
        ("mProjct", "mProjct y"),
        ("./plain: is not executable", "./plain"),
        ("stage 'b': mAddd", '"nohup mAddd 2"'),
    ):
        assert rows[only(problems, words)[0] - 1].strip().startswith(text)
    assert rows[only(problems, "gone: not found")[0] - 1] == "f && gone"
    assert only(problems, "stage 'c': mAddd")[0] == 5
    assert "Did you mean 'mAdd'?" in only(problems, "stage 'c': mAddd")[3]
    assert len(problems) == 5


def test_modules_hide_what_is_found(place):
    """A note names the stages that are not checked, once; their files are checked."""
    write(
        'name = "a"\ncommand = "module load montage && mWhat"',
        'name = "b"\nscript = "#!/bin/bash\\nsource env.sh\\nmWhat\\n"',
        'name = "c"\ncommand = "mWhat"\nenvironment = { PATH = "/opt/x" }',
        'name = "d"\ncommand = "mWhat"',
    )
    problems = told()
    assert "stages a, b, c, which may change it (module, source, PATH=)" in only(problems, "are not checked")[2]
    assert only(problems, "mWhat: not found")[2].startswith("stage 'd'")
    assert len(problems) == 2


def test_the_shell_checks_its_syntax(place):
    """The error has the file's line; scripts in other languages are ignored."""
    Path("s.sh").write_text("#!/bin/bash\nmAdd\nfor x in; do\n")
    rows = (
        write(
            'name = "a"\ncommand = """\nmProject\nif true; then\n  mProject\n"""',
            'name = "b"\ntasks = ["mProject", "mProject \'x"]',
            'name = "c"\nscript = "#!/usr/bin/env python3\\nif x: (\\n"',
            'name = "d"\nscript = "#!/bin/bash -l\\narray=(a b)\\n[[ -n ${array[0]} ]]\\n"',
            'name = "e"\nscript = "s.sh"',
        )
        if Path("s.sh").write_text("#!/bin/bash\nmAdd\nfor x in; do\n")
        else []
    )
    problems = told(code=2)
    assert only(problems, "stage 'a': sh does not understand")[1] == "error"
    assert rows[only(problems, "stage 'b': sh does not understand")[0] - 1].startswith("tasks")
    assert only(problems, "stage 'e': bash does not understand")[0] in {3, 4}
    assert len(problems) == 3


@pytest.mark.parametrize("task", ["mAdd >", "for x", "mAdd a << b && then", "mAdd; fi", "done", "mAdd a > b ( c"])
def test_the_shell_checks_each_task(place, task):
    """The faulty task is among correct ones."""
    write(f'name = "a"\ntasks = [\n  "mAdd 1 > out/1.txt 2>>log",\n  "{task}",\n  "mAdd -x=2,3 <in",\n]')
    [(line, _, message, _)] = [problem for problem in told(code=2) if problem[1] == "error"]
    assert "does not understand" in message
    assert line == 10


def test_files_are_there_or_made_before(place):
    """Inputs, lists of tasks, and programs that a stage builds must exist, or be made by an earlier stage."""
    Path("raw").mkdir()
    Path("raw/a.fits").write_text("x")
    rows = write(
        'name = "a"\ncommand = "mProject"\ninputs = ["raw/*.fits", "rwa/*.fits"]\noutputs = ["proj", "tool", "b.list"]',
        'name = "b"\nafter = ["a"]\ntasks_file = "b.list"\ninputs = ["proj/x.fits"]\noutputs = ["c.tbl"]',
        'name = "c"\nafter = ["b"]\ncommand = "./tool; ./tol"\noutputs = ["proj"]',
        'name = "d"\ntasks_file = "d.tasks"\ninputs = ["c.tbl"]',
    )
    problems = told()
    assert [severity for _, severity, _, _ in problems] == ["warning"] * 5
    assert rows[only(problems, "rwa/*.fits does not exist")[0] - 1].startswith("inputs")
    assert 'after = ["b"]' in only(problems, "c.tbl is made by stage 'b', which it does not depend on")[3]
    assert "d.tasks does not exist" in only(problems, "stage 'd': d.tasks")[2]
    assert "./tol: no such file" in only(problems, "stage 'c': ./tol")[2]
    assert "proj is made by stage 'a', too" in only(problems, "stage 'c': output")[2]


def test_a_stage_must_run_something_unless_none_does(place):
    """A file without commands is a model."""
    write('name = "a"', 'name = "b"\nafter = ["a"]')
    [(_, severity, message, hint)] = told()
    assert (severity, message) == ("note", "no stage has a command: this is a model")
    assert "asa compare" in hint
    write('name = "a"\ncommand = "mAdd"', 'name = "b"\nafter = ["a"]')
    assert told(code=2)[0][1:3] == ("error", "stage 'b': it has nothing to run")


def test_comments_alone_are_nothing_to_run(place):
    Path("s.sbatch").write_text("#!/bin/bash\n#SBATCH -n 1\n\n")
    Path("none.tasks").write_text("# later\n\n")
    rows = write(
        'name = "a"\ncommand = "# later"',
        'name = "b"\nscript = "s.sbatch"',
        'name = "c"\ntasks = [\n  "mAdd",\n  "# mAdd",\n]',
        'name = "d"\ntasks_file = "none.tasks"',
    )
    problems = told()
    assert [severity for _, severity, _, _ in problems] == ["warning"] * 4
    assert rows[only(problems, "stage 'a': there is nothing to run")[0] - 1].startswith("command")
    assert only(problems, "stage 'b': there is nothing to run")[0] == 1
    assert rows[only(problems, "stage 'c': there is nothing to run")[0] - 1].strip() == '"# mAdd",'
    assert rows[only(problems, "stage 'd': there are no tasks in none.tasks")[0] - 1].startswith("tasks_file")


def test_files_that_are_given_to_an_interpreter_are_looked_for(place):
    """Each file is reported once per stage; files that are made before or in the same text are not reported."""
    Path("fit.py").write_text("")
    program(place / "bin" / "found.sh")
    rows = write(
        'name = "a"\ncommand = "python3 fit.py; bash found.sh; python3 fitt.py;python3 fitt.py"\noutputs = ["made.py"]',
        'name = "b"\nafter = ["a"]\ncommand = "python3 made.py; sh ./none.sh"',
        'name = "c"\ncommand = "cat >own.py </dev/null; python3 own.py; cd /; python3 there.py; sh /none.sh"',
    )
    problems = told()
    assert rows[only(problems, f"stage 'a': python3 is given fitt.py: no such file in {place}")[0] - 1].startswith(
        "comm"
    )
    assert "Did you mean 'fit.py'?" in only(problems, "fitt.py")[3]
    assert "`outputs`" in only(problems, "stage 'b': sh is given ./none.sh: no such file")[3]
    assert only(problems, "stage 'c'")[2].endswith("sh is given /none.sh: no such file")
    assert len(problems) == 3


def test_scripts_that_tasks_give_to_a_shell_are_looked_into(place):
    """Scripts of an array are checked like others: programs, syntax, and Slurm variables that the task does not set."""
    Path("sub").mkdir()
    text = "#!/bin/bash\nmAddd $SLURM_ARRAY_TASK_ID $SLURM_JOB_ACCOUNT\nsh sub/more.sh\nbash sub/arr.sh\n"
    Path("sub/arr.sh").write_text(text)
    Path("sub/more.sh").write_text("mAdd\nif x; then\n")
    write('name = "a"\ntasks = ["SLURM_ARRAY_TASK_ID=0 bash sub/arr.sh", "SLURM_ARRAY_TASK_ID=1 bash sub/arr.sh"]')
    found = json.loads(asa("check", "flow.toml", "--output", "json", code=2).stdout)["problems"]
    problems = [(p["file"], p["line"], p["message"]) for p in found]
    assert ("sub/arr.sh", 2, "stage 'a': mAddd: not found in PATH here") in problems
    assert ("sub/arr.sh", 2, "stage 'a': SLURM_JOB_ACCOUNT is set under Slurm only") in problems
    assert ("sub/more.sh", 2, "stage 'a': x: not found in PATH here") in problems
    [syntax] = [file for file, _, message in problems if "does not understand" in message]
    assert syntax == "sub/more.sh"
    assert len(problems) == 4


def test_a_script_that_an_earlier_stage_writes_anew_is_not_looked_into(place):
    Path("new.sh").write_text("mAddd\n")
    write('name = "a"\ncommand = "mAdd"\noutputs = ["new.sh"]', 'name = "b"\nafter = ["a"]\ncommand = "sh new.sh"')
    assert told() == []


def test_files_beside_the_workflow_file_are_not_found_from_elsewhere(place, monkeypatch):
    """Commands run in the folder in which asa is started, unlike a `script`."""
    Path("fit.py").write_text("")
    Path("list").write_text("mAdd\n")
    Path("s.sh").write_text("mAdd\n")
    program(place / "tool")
    write(
        'name = "a"\ntasks = ["python3 fit.py", "./tool"]\ninputs = ["list"]',
        'name = "b"\ntasks_file = "list"',
        'name = "c"\nscript = "s.sh"',
    )
    assert told() == []
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    found = json.loads(asa("check", "../flow.toml", "--output", "json").stdout)["problems"]
    for words in (
        "is given fit.py",
        "./tool: no such file",
        "input list",
        "list does not exist, and no earlier stage lists",
    ):
        [hint] = [problem["hint"] for problem in found if words in problem["message"]]
        assert hint.startswith("It is in the folder of flow.toml, but commands run where asa is started")
    assert len(found) == 4


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_what_only_bash_knows_is_told_where_sh_is_another(place, shell):
    """Each construct is reported on its line, once per stage, if the local `sh` rejects it; not in bash scripts."""
    if (path := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not here")
    (place / "bin" / "sh").symlink_to(path)
    text = "mAdd\nif [[ -n $1 ]]; then mAdd &>log; fi\nshopt -s nullglob\n[[ $1 ]] || mAdd ${1} ${x//a/b}\n"
    Path("s.sh").write_text(f"#!/bin/bash\n{text}")
    rows = write(
        f'name = "a"\ncommand = """\n{text}"""',
        'name = "b"\nscript = "s.sh"',
        'name = "c"\ncommand = "sh s.sh; let() { mAdd; }; let"',
        'name = "d"\ncommand = "x=(mAdd)"',
    )
    problems = told(code=2 if shell == "dash" else 0)
    if shell == "bash":
        assert problems == []
        return
    for form, row in (("[[", "if [["), ("&>", "if [["), ("shopt", "shopt"), ("${x/a/b}", "[[")):
        line, severity, _, hint = only(problems, f"stage 'a': sh runs this, and does not know {form} here")
        assert severity == "warning"
        assert rows[line - 1].startswith(row)
        assert "#!/bin/bash" in hint
        assert only(problems, f"stage 'c': sh runs this, and does not know {form} here")
    assert "#!/bin/bash" in only(problems, "stage 'd': sh does not understand")[3]
    assert len(problems) == 9


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("#!/usr/bin/env python3\nimport a\n", "a.py"),
        ("#!/bin/sh\npython3 a.py\nsh b.sh\n", "a.py"),
        ("sh b.sh\n", "b.sh"),
    ],
)
def test_a_script_that_runs_another_stages_script_is_told(place, text, runs):
    Path("a.py").write_text("#!/usr/bin/env python3\nprint()\n")
    Path("b.sh").write_text("#!/bin/sh\nmAdd\n")
    Path("driver").write_text(text)
    rows = write('name = "a"\nscript = "a.py"', 'name = "b"\nscript = "b.sh"', 'name = "driver"\nscript = "driver"')
    [(line, severity, message, hint)] = told()
    assert (severity, rows[line - 1]) == ("warning", 'script = "driver"')
    assert f"driver itself runs {runs}, the script of stage '{runs[0]}', too" in message
    assert "twice" in hint


def test_what_is_meant_for_slurm_is_noted(place):
    """Variables that only Slurm sets, and sbatch lines that contradict the stage, are noted; others are not."""
    Path("s.sbatch").write_text(
        "#!/bin/bash\n#SBATCH -n4\n#SBATCH --time=2:00:00 # long\n#SBATCH --cpus-per-task 1\n#SBATCH -J x\n"
        "mAdd $SLURM_NTASKS $SLURM_JOB_QOS\n#SBATCH --partition=late\n"
    )
    write('name = "a"\nscript = "s.sbatch"\npartition = "batch"')
    problems = told()
    assert [(line, severity) for line, severity, _, _ in problems] == [(2, "note"), (3, "note"), (6, "note")]
    assert "cores = 1" in problems[0][3]
    assert "#SBATCH --time=2:00:00 has no effect here" in problems[1][2]
    assert problems[2][2].endswith(": SLURM_JOB_QOS is set under Slurm only"), "this computer sets the other"


def test_a_variable_of_slurm_with_another_value_at_hand_is_not_noted(place):
    """A fallback, or a value set in the text or by the stage, suffices; other variables are noted once per stage."""
    rows = write(
        "name = \"a\"\ncommand = '''\nmAdd ${SLURM_JOB_ID:-0} ${SLURM_NTASKS-1} # $SLURM_X\n# $SLURM_Y\n"
        ": ${SLURM_NNODES:=1}\nmAdd $SLURM_NNODES $SLURM_ARRAY_TASK_COUNT\nSLURM_A=1; mAdd $SLURM_A\n'''\n"
        'environment = { SLURM_ARRAY_TASK_COUNT = "4", SLURM_X = "" }',
        'name = "b"\ntasks = [\n  "mAdd",\n  "mAdd $SLURM_JOB_GPUS",\n  "mAdd ${SLURM_JOB_QOS} $SLURM_JOB_GPUS",\n]',
    )
    [(line, severity, message, hint)] = told()
    assert severity == "note"
    assert message == "stage 'b': SLURM_JOB_GPUS, SLURM_JOB_QOS are set under Slurm only"
    assert rows[line - 1].strip() == '"mAdd $SLURM_JOB_GPUS",'
    assert "${SLURM_JOB_GPUS:-1}" in hint


def test_the_lines_of_a_list_of_tasks_are_looked_into(place):
    """Problems have the list's line, once per program; a list that an earlier stage rewrites is ignored."""
    Path("t.tasks").write_text("# $SLURM_X mAddd\nmAdd 1\n\nmProjct 2\nmProjct 3 $SLURM_JOB_GPUS\n./none 4\n")
    write('name = "a"\ntasks_file = "t.tasks"\noutputs = ["u.tasks"]')
    found = json.loads(asa("check", "flow.toml", "--output", "json").stdout)["problems"]
    assert [(Path(p["file"]).name, p["line"]) for p in found] == [("t.tasks", 4), ("t.tasks", 5), ("t.tasks", 6)]
    assert "mProjct: not found" in found[0]["message"]
    assert "SLURM_JOB_GPUS is set" in found[1]["message"]
    assert "./none: no such file" in found[2]["message"]
    Path("u.tasks").write_text("mProjct\n")
    Path("t.tasks").write_text("mAdd\n")
    write(
        'name = "a"\ntasks_file = "t.tasks"\noutputs = ["u.tasks"]',
        'name = "b"\nafter = ["a"]\ntasks_file = "u.tasks"',
    )
    assert told() == []


def test_of_very_many_tasks_the_first_are_looked_into(place, monkeypatch):
    """An earlier version kept a kilobyte per task: a file of 900,000 tasks (3 MB) took a gigabyte."""
    monkeypatch.setattr("asa.spec.checks._MAX_TASKS", 2)
    Path("t.tasks").write_text("mAdd\nmAdd\nmProjct\n")
    write('name = "a"\ntasks_file = "t.tasks"', 'name = "b"\ntasks = ["mAdd", "mAdd", "mProjct"]')
    assert told() == []
    monkeypatch.setattr("asa.spec.checks._MAX_TASKS", 3)
    assert len(told()) == 2


def test_a_program_that_is_missing_is_told_once_a_stage(place):
    """The number of tasks that call it does not matter."""
    write('name = "a"\ntasks = ["mProjct 1", "mProjct 2"]', 'name = "b"\ntasks = ["mProjct 1", "mProjct 2"]')
    assert [message[:9] for _, _, message, _ in told()] == ["stage 'a'", "stage 'b'"]


def test_what_only_a_shell_would_expand_is_told(place):
    """Paths and values of variables are checked, on their lines, once; a file of exactly this name is no problem."""
    Path("{a,b}").write_text("x")
    rows = write(
        "name = \"a\"\ncommand = 'mAdd $HOME'\ninputs = [\n  '$SCRATCH/x',\n  '{a,b}',\n]\n"
        "outputs = ['~/y', 'z{1..3}', '${A}/z', 'plain-~{x}']",
        "name = \"b\"\nafter = [\"a\"]\ninputs = ['~/y']\ntasks_file = '$LIST'\n"
        "environment = { PATH = '/opt:$PATH', COST = '5$', HOME_ = '~' }",
        'name = "c"\ncommand = "mAdd"',
        head="",
    )
    Path("flow.toml").write_text(
        Path("flow.toml").read_text().replace('walltime = "1h"\n', 'walltime = "1h"\nenvironment = { TMP = "`pwd`" }\n')
    )
    rows.insert(5, "environment = { TMP")
    problems = [problem for problem in told() if "are not checked in" not in problem[2]]
    assert {severity for _, severity, _, _ in problems} == {"warning"}
    for words, text, hint in (
        ("stage 'a': inputs: $SCRATCH/x is used literally, $SCRATCH, too", "'$SCRATCH/x'", "{{name}}"),
        ("stage 'a': outputs: ~/y is used literally", "outputs", "{{name}}"),
        ("stage 'a': outputs: z{1..3} is", "outputs", "a path for each"),
        ("stage 'a': outputs: ${A}/z is", "outputs", "{{name}}"),
        ("stage 'b': tasks_file: $LIST is", "tasks_file", "{{name}}"),
        ("stage 'b': environment: the value of PATH is", "environment = { PATH", "export PATH=..."),
        ("environment: the value of TMP is used literally, `, too", "environment = { TMP", "export TMP=..."),
    ):
        found = only(problems, words)
        assert rows[found[0] - 1].strip().startswith(text)
        assert hint in found[3]
        problems.remove(found)
    assert [message for _, _, message, _ in problems] == ["stage 'b': inputs: ~/y is used literally, ~/, too"]


def test_little_memory_is_warned_of(place):
    """A bare number is in MiB; a user who writes 4 means gigabytes."""
    rows = [
        f'name = "s{n}"\ncommand = "true"\nmemory = {size}' for n, size in enumerate(('"4"', '"16M"', '"64M"', '"4G"'))
    ]
    write(*rows)
    warned = [(message, hint) for _, severity, message, hint in told() if severity == "warning"]
    assert [message for message, _ in warned] == [
        f"stage 's{n}': memory of {size} MiB is hardly enough for a shell" for n, size in ((0, 4), (1, 16))
    ]
    assert 'memory = "4G"' in warned[0][1]


def test_an_array_of_one_element_is_warned_of(place):
    """A user who writes 40 may mean forty elements."""
    rows = [
        f'name = "s{n}"\ncommand = "true"\narray = {array}' for n, array in enumerate(("40", '"40"', '"0"', '"1-40"'))
    ]
    write(*rows)
    warned = [(message, hint) for _, severity, message, hint in told() if severity == "warning"]
    assert [message for message, _ in warned] == [f"stage 's{n}': an array of one element, number 40" for n in (0, 1)]
    assert 'array = "1-40"' in warned[0][1]


def test_the_schema_is_hinted_at_once(place):
    """A file that names a schema gets no hint."""
    text = 'name = "w"\n[[stage]]\nname = "a"\ncommand = "true"\ncores = 1\nwalltime = "1h"\n'
    Path("flow.toml").write_text(text)
    [(line, severity, message, hint)] = told()
    assert (line, severity) == (1, "note")
    assert "schema" in message
    assert "asa schema --out" in hint
    Path("flow.toml").write_text(text.replace("cores = 1", "cores = 0"))
    assert [severity for _, severity, *_ in told(code=2)] == ["error"]  # which comes first


def test_the_schema_is_printed_or_written(place):
    """An editor can use it."""
    assert asa("schema").stdout == schema_text()
    done = asa("schema", "--out", "asa.schema.json")
    assert Path("asa.schema.json").read_text() == schema_text()
    assert "#:schema ./asa.schema.json" in done.stderr


def test_the_schema_is_not_written_over_another_file(place):
    """An option allows it."""
    Path("mine.json").write_text("mine")
    assert "--force" in str(asa("schema", "--out", "mine.json", code=2).exception)
    assert Path("mine.json").read_text() == "mine"
    asa("schema", "--out", "mine.json", "--force")
    assert Path("mine.json").read_text() == schema_text()
    assert "Make it first" in str(asa("schema", "--out", "none/x.json", code=2).exception)


FLOW = (
    'name = "fetch"\nexpected = "4min"\nlocal = true\ncommand = "./fetch.sh"',
    (
        'name = "project"\nafter = ["fetch"]\ncores = "{{width}}"\nexpected = "30min"\n'
        'tasks = ["mProject 1", "mProject 2"]'
    ),
    'name = "add"\nafter = ["project", "fetch"]\nexpected = "learn"\nscript = "#!/bin/sh\\n# adds\\nmAdd x\\n"',
)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_workflow_is_drawn_with_what_it_costs(place, columns):
    """The output has boxes, a table, the longest path and core-hours; nothing is wider than the terminal."""
    write(*FLOW, head="[parameters]\nwidth = 4\n")
    shown = asa("show", "flow.toml", "--param", "width=8", columns=columns).stdout
    assert max(map(len, shown.splitlines())) <= columns
    for words in ("│ project  8 cores  30m", "2 tasks: mProject 1", "script: mAdd x", "▼", "Widest stage: 8 cores"):
        assert words in shown
    assert "Longest way: 1h34m, fetch → project → add" in " ".join(shown.split())
    assert "Core-hours: 5.1 if each stage holds what it needs" in shown
    assert "a longer way makes needless" in shown


def test_the_same_for_programs(place):
    """The output is JSON."""
    write(*FLOW, head="[parameters]\nwidth = 4\n")
    document = json.loads(asa("show", "flow.toml", "--output", "json").stdout)
    assert document["peak_cores"] == 4
    assert document["critical_path"] == ["fetch", "project", "add"]
    assert [stage["cores"] for stage in document["stages"]] == [1, 4, 1]
    assert document["stages"][2]["after"] == ["project", "fetch"]


def test_installed_workflows_and_whole_nodes_are_shown_too(place):
    """They are shown by name and width; a node's cores only where they are known."""
    shown = asa("show", "montage", "--cores", 112).stdout
    assert "mBackground  112 cores" in shown
    write('name = "a"\nnodes = 2', 'name = "b"')
    shown = asa("show", "flow.toml").stdout
    assert "a  2 nodes" in shown
    assert "give --cores-per-node" in " ".join(shown.split())
    assert "Widest stage: 56 cores" in asa("show", "flow.toml", "--cores-per-node", 28).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "montag"], "Did you mean 'montage'"),
        (["show", "montage"], "--cores: is missing"),
        (["show", "montage", "--cores", "4", "--param", "a=1"], "only a workflow file has parameters"),
        (["show", "flow.toml", "--cores", "4"], "cores of each stage are in the workflow file"),
        (["show", "none.toml"], "none.toml: cannot be read"),
    ],
)
def test_what_cannot_be_shown_is_told(place, arguments, words):
    """The error says what to do."""
    write(FLOW[2])
    assert words in str(asa(*arguments, code=2).exception)


def test_a_graph_too_wide_is_a_table(place):
    """The table has a column of edges."""
    firsts = [f'name = "first{i}"' for i in range(30)]
    write(*firsts, *(f'name = "then{i}"\nafter = ["first{i}"]' for i in range(30)))
    shown = asa("show", "flow.toml", columns=60).stdout
    assert "too large to be drawn" in shown
    assert "After" in shown
    assert any(line.split()[0] == "then7" and "first7" in line.split() for line in shown.splitlines() if line.strip())


def test_commands_that_take_a_workflow_say_which_takes_another_tools_file(tmp_path, monkeypatch):
    """The file may be in another folder; a file with the name of an installed workflow is no other tool's file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    Path("sub/job.sh").write_text("#!/bin/bash\n#SBATCH -n 2\n")
    Path("my.flow").write_text('name = "x"\n')
    for given in ("sub/job.sh", "./sub/job.sh"):
        error = unknown_workflow(given)
        assert error.message == "is a batch script, not a workflow file"
        assert error.hint == f"Make a workflow file of it: asa import scripts {Path(given)} --out flow.toml"
    Path("drive.sh").write_text("#!/bin/bash\nfor i in a b; do sbatch $i.sh; done\n")
    Path("drive.py").write_text("import subprocess\nsubprocess.run(['sbatch', 'a.sh'])\n")
    for given, run in (("./drive.sh", "./drive.sh"), ("drive.py", "python3 drive.py")):
        error = unknown_workflow(given)
        assert error.message == "is a script that submits jobs, not a workflow file"
        assert error.hint == f"Run what it submits, as a workflow: asa run -- {run} ARGUMENTS"
    assert "end in .toml" in unknown_workflow("my.flow").hint
    assert "Or give a .toml file" in unknown_workflow("absent.sh").hint
    done = CliRunner().invoke(APP, ["show", "my.flow"])
    assert "end in .toml" in str(done.exception.hint)
    done = CliRunner().invoke(APP, ["show", "./sub/job.sh"])
    assert "not a workflow file" in str(done.exception)


def test_options_that_sbatch_refuses_are_told_before_the_job_is_submitted(place):
    text = """name = "w"
[[stage]]
name = "a"
command = "true"
cores = 1
walltime = "1h"
options = ["--mail-type=success", "--signal=USR1@60", "--mem-per-gpu=1G", "--clusters=small"]
[[stage]]
name = "b"
command = "true"
walltime = "1h"
request = ["--ntasks=2", "--mem=1G", "--mem-per-cpu=1G"]
"""
    Path("flow.toml").write_text(text)
    problems = told()
    line, severity, _, hint = only(problems, "--mail-type=success has no value that sbatch takes")
    assert (text.split("\n")[line - 1][:7], severity) == ("options", "warning")
    assert "END, FAIL" in hint
    line, severity, _, hint = only(problems, "--clusters is not for `options`")
    assert (text.split("\n")[line - 1][:7], severity) == ("options", "warning")
    assert 'partition = "batch@big"' in hint
    line, severity, *_ = only(problems, "--mem-per-cpu=1G cannot be together with --mem")
    assert (text.split("\n")[line - 1][:7], severity) == ("request", "warning")
    assert not [problem for problem in problems if "--signal" in problem[2] or "mem-per-gpu" in problem[2]]


@pytest.mark.parametrize("folder", [".", "/", "bin"])
def test_a_folder_is_no_workflow_file(place, folder):
    (problem,) = json.loads(asa("check", folder, "--output", "json", code=2).stdout)["problems"]
    assert "Is a directory" in problem["message"]
