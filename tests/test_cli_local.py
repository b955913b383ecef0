"""A user's own pipeline from import to result, as processes of this machine, with the mistakes a user makes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from forked import asa
from local_queue import Queue

PROGRAMS = "sh bash cat sed sleep date mktemp mkfifo rm ln mkdir mv grep uname env ls touch head true readlink xargs tr"
PROGRAMS += " split seq awk dd"

PROJECT = """#!/bin/bash
#SBATCH --job-name=project
#SBATCH --ntasks=2 --time=00:10:00
#SBATCH --output=project-%j.out
for i in 1 2 3; do echo "tile $i" >tiles/$i.txt; done
"""
ADD = """#!/bin/bash
#SBATCH -J add -n 1 -t 5
cat tiles/*.txt >mosaic.txt
{program} s/tile/TILE/ mosaic.txt >view.txt
"""


class Home:
    """A user's home with its own queue."""

    def __init__(self, root):
        self.root = root
        self.queue = Queue(root, cores=2)
        hidden = {name for name in os.environ if name.startswith(("ASA_", "SLURM_"))}
        self.environment = {name: value for name, value in os.environ.items() if name not in hidden} | {
            "ASA_BANK": str(root / "bank"),
            "ASA_RUNS": str(root / "runs"),
            "ASA_SITES": str(root / "sites"),
            "COLUMNS": "100",
            "PATH": str(root / "bin"),
        }
        (root / "bin").mkdir()
        for program in PROGRAMS.split():  # and no batch system's
            if found := shutil.which(program):
                (root / "bin" / program).symlink_to(found)

    @property
    def on(self):
        return ["--set", "cores=2", "--set", f"spool={self.root / 'spool'}"]

    def asa(self, *arguments, code=0):
        return asa(*arguments, code=code, cwd=self.root, env=self.environment)

    def flow(self, text):
        (self.root / "flow.toml").write_text(f'name = "flow"\n{text}')


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    yield home
    home.queue.close()


def test_a_directory_of_scripts_from_import_to_result(home):
    (home.root / "tiles").mkdir()
    (home.root / "project.sbatch").write_text(PROJECT)
    (home.root / "add.sbatch").write_text(ADD.format(program="sedd"))
    done = home.asa("import", "scripts", "project.sbatch", "add.sbatch", "--out", "flow.toml")
    assert "output" not in done.stderr
    checked = home.asa("check", "flow.toml").stdout
    assert "add.sbatch:4: warning: stage 'add': sedd: not found in PATH here" in checked
    assert "Did you mean 'sed'?" in checked
    assert "project  2 cores" in home.asa("show", "flow.toml").stdout
    failed = home.asa("run", "flow.toml", *home.on, code=1)
    assert "Using local: there is no site file, and no batch system's commands" in failed.stderr
    assert "Warning: add.sbatch:4: stage 'add': sedd: not found" in failed.stderr
    assert "its command was not found" in failed.stderr
    assert "sedd: command not found" in failed.stderr
    (home.root / "add.sbatch").write_text(ADD.format(program="sed"))
    home.asa("resume", "--retry", "--workflow", "flow.toml")
    assert (home.root / "view.txt").read_text() == "TILE 1\nTILE 2\nTILE 3\n"
    (printed,) = home.root.glob("project-*.out")
    assert printed.read_text() == home.asa("logs", "project").stdout
    assert "1@" in home.asa("status").stdout, "the first stage was not run again"
    (home.root / "tiles" / "3.txt").unlink()
    home.asa("resume", "--from", "project")
    assert (home.root / "view.txt").read_text() == "TILE 1\nTILE 2\nTILE 3\n"
    assert "from 2 runs" in home.asa("advise", "flow.toml").stdout


def test_the_tutorial_s_scripts_run_unchanged_with_stand_ins_for_slurm_s_commands(home):
    """The scripts load modules, and begin the wide steps by `srun`, as on a cluster."""
    for file in (Path(__file__).parents[1] / "examples" / "reads").iterdir():
        text = file.read_text()
        if file.suffix == ".sbatch":
            text = text.replace("xargs -P", "srun -n 1 xargs -P").replace("\nls ", "\nmodule load python/3\nls ")
        (home.root / file.name).write_text(text)
    for program in ("wc", "sort", "uniq", "cut"):
        (home.root / "bin" / program).symlink_to(shutil.which(program))
    (home.root / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (home.root / "bin" / "python3").chmod(0o755)
    make = [sys.executable, "make_reads.py", "--bases", "2000"]
    subprocess.run(make, cwd=home.root, check=True, capture_output=True)
    home.asa("import", "scripts", "submit.sh", "--out", "flow.toml")
    home.asa("run", "flow.toml", *home.on, "--option", "cores=8", "--option", "slurm=commands")
    assert re.search(r"^reads kept: \d+ of 400$", (home.root / "report.txt").read_text(), re.MULTILINE)


def test_who_lacks_a_command_of_slurm_is_told_of_its_stand_in(home):
    """By the import, and once it is missing, with a command that goes on from there."""
    (home.root / "a.sbatch").write_text(
        "#!/bin/bash\n#SBATCH -n 2 -t 5\nmodule load x\nsrun uname -n >hosts\nscontrol show hostnames >>hosts\n"
    )
    (home.root / "submit.sh").write_text("sbatch a.sbatch\n")
    told = home.asa("import", "scripts", "submit.sh", "--out", "flow.toml").stderr
    assert "with stand-ins for srun, module, scontrol:\n  asa run flow.toml --backend local" in told
    told = home.asa("run", "flow.toml", *home.on, code=1).stderr
    explained = home.asa("explain").stdout
    assert "module is a command of clusters" in explained
    begins = "Note: stages call srun, module and scontrol, which a cluster has; here, --option slurm=commands gives"
    assert begins in told
    hints = [line for line in (told + explained).splitlines() if "slurm=commands" in line and begins not in line]
    [way] = {line.partition("asa ")[2] for line in hints}
    home.asa(*way.split())
    assert (home.root / "hosts").read_text().split() == [os.uname().nodename.partition(".")[0]] * 3


STAGES = """
[parameters]
word = "hello"
count = 2
[defaults]
walltime = "5min"
[[stage]]
name = "first"
local = true
command = "for i in $(seq {{count}}); do echo \\"echo {{word}} >$i.txt\\"; done >list"
outputs = ["list"]
[[stage]]
name = "second"
cores = "{{count}}"
after = ["first"]
tasks_file = "list"
outputs = ["1.txt", "{{count}}.txt"]
[[stage]]
name = "third"
cores = 1
after = ["second"]
command = "cat *.txt >all"
"""


@pytest.mark.parametrize("strategy", ["per-stage", "chained", "asa", "asa-naive", "big-job"])
def test_parameters_local_stages_and_lists_of_tasks(home, strategy):
    home.flow(STAGES)
    home.asa("run", "flow.toml", *home.on, "--set", "word=you", "--set", "count=2", "--strategy", strategy)
    assert (home.root / "all").read_text() == "you\nyou\n"


def test_a_parameter_that_is_unknown_is_no_setting_either(home):
    home.flow(STAGES)
    done = home.asa("run", "flow.toml", *home.on, "--set", "wrod=you", code=2)
    assert "there is no setting 'wrod'" in done.stderr
    assert "has a parameter 'word'" in done.stderr


def test_a_run_goes_on_with_the_parameters_that_it_was_begun_with(home):
    """Given parameters override them; stages that run again use the present file and scripts."""
    (home.root / "say.sh").write_text("#!/bin/sh\nexit 3\n")
    home.flow(
        '[parameters]\nword = "one"\n[[stage]]\nname = "a"\ncores = 1\nwalltime = "1min"\nscript = "say.sh"\n'
        'environment = { WORD = "{{word}}" }\n'
    )
    home.asa("run", "flow.toml", *home.on, "--set", "word=two", code=1)
    (home.root / "say.sh").write_text('#!/bin/sh\necho "$WORD" >>said\n')
    done = home.asa("resume", "--retry")
    assert "Note: stage a changed since the run began: " in done.stderr
    assert "flow.toml and its scripts are taken as they are now." in done.stderr
    home.asa("resume", "--from", "a", "--workflow", "flow.toml", "--set", "word=three")
    assert (home.root / "said").read_text() == "two\nthree\n"


def test_a_retry_takes_no_file_that_it_cannot_use(home):
    """The run continues with its former workflow, and says so."""
    text = '[[stage]]\nname = "a"\ncores = 1\nwalltime = "1min"\ncommand = "test -e b"\n'
    home.flow(text)
    home.asa("run", "flow.toml", *home.on, code=1)
    assert "Note" not in home.asa("resume", "--retry", code=1).stderr
    home.flow(text.replace('"a"', '"z"'))
    assert "flow.toml has other stages now" in home.asa("resume", "--retry", code=1).stderr
    home.flow(text + "cores = 2\n")
    assert "its file cannot be used as it is now" in home.asa("resume", "--retry", code=1).stderr
    home.flow(text.replace("1min", "2min"))
    assert "stage a changed since the run began" in home.asa("resume", "--retry", code=1).stderr
    (home.root / "flow.toml").unlink()
    (home.root / "b").touch()
    assert "Note" not in home.asa("resume", "--retry").stderr


def test_an_output_that_is_missing_fails_the_stage_and_what_follows(home):
    home.flow(
        '[[stage]]\nname = "a"\ncores = 1\nwalltime = "1min"\ncommand = "true"\noutputs = ["made"]\n'
        '[[stage]]\nname = "b"\ncores = 1\nafter = ["a"]\nwalltime = "1min"\ncommand = "touch b"\n'
    )
    done = home.asa("run", "flow.toml", *home.on, "--strategy", "chained", code=1)
    assert "its command exited with 0, but an output is missing or empty" in done.stderr
    assert "asa: the output made is missing" in done.stderr
    assert not (home.root / "b").exists()
    assert "blocked" in home.asa("status").stdout
    assert "an output is missing or empty" in " ".join(home.asa("explain", "a").stdout.split())


def test_stages_that_share_a_job_each_show_their_own_output(home):
    """Stages of earlier versions' jobs had one file together, which is shown."""
    stage = '[[stage]]\nname = "{0}"\ncores = 1\nafter = {1}\nwalltime = "1min"\ncommand = "{2}"\n'
    says = "echo out-{0}; echo err-{0} >&2; {1}"
    stages = [("a", [], says.format("a", "true")), ("b", ["a"], says.format("b", "exit 3")), ("c", ["b"], "true")]
    home.flow("".join(stage.format(*one) for one in stages).replace("'", '"'))
    done = home.asa("run", "flow.toml", *home.on, "--strategy", "big-job", code=1)
    assert "  err-b\n" in done.stderr
    assert "asa: step" not in done.stderr
    for name in "ab":
        assert home.asa("logs", name).stdout == f"out-{name}\n"
        assert home.asa("logs", name, "--err").stdout == f"err-{name}\n"
    assert "does not run" in home.asa("logs", "c", code=1).stderr
    [logs] = (home.root / "runs").glob("*/logs")
    [of_job] = (path for path in logs.glob("*.err") if ".step-" not in path.name)
    assert of_job.read_text() == "asa: step a\nasa: step b\n"
    for own in logs.glob("*.step-*.err"):
        own.unlink()
    assert home.asa("logs", "b", "--err").stdout == of_job.read_text()


def test_who_runs_out_of_walltime_is_told_and_given_more_where_it_says_so(home):
    stage = (
        '[[stage]]\nname = "a"\ncores = 1\nwalltime = "2s"\ncommand = "[ -e again ] || { touch again; sleep 60; }"\n'
    )
    home.flow(stage)
    done = home.asa("run", "flow.toml", *home.on, code=1)
    assert "timeout (TimeLimit)" in done.stderr
    (home.root / "again").unlink()
    home.flow(stage + "retries = 1\n")
    done = home.asa("run", "flow.toml", *home.on)
    assert "submitted again: timeout (TimeLimit)" in done.stdout
    assert "1 core for 4s" in done.stdout


def test_on_a_simulator_nothing_is_run(home):
    """Local stages do not run, either."""
    home.flow(STAGES)
    home.asa("run", "flow.toml", "--backend", "simulated", "--set", "system=hpc2n", "--quiet")
    assert not (home.root / "list").exists()
