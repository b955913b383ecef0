"""The files of a stage's output: under the names that its user gives, next to the run's own files."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from asa.errors import WorkflowError
from asa.payload import payload_text
from asa.spec.checks import check_here
from asa.workflow import Stage

SHELLS = [shell for shell in ("dash", "bash", "ksh", "mksh", "busybox") if shutil.which(shell)]
SAYS = "echo out; echo err >&2; exit 3"
NAMES = {  # as Slurm 22.05 to 26.05 name them, by experiment: of job 12, for no array
    "%x-%j-%A-%J.out": "fit-12-12-12.out",
    "a-%4j-%08j-%3t-%2n": "a-0012-00000012-000-00",
    "a-%12j-%010j-%0j": "a-0000000012-0000000012-12",
    "a-%a-%2a-%40a": "a-4294967294-4294967294-4294967294",
    "a-%9x-%9s": "a-fit-batch",
    "%%j-%q-%z.%%": "%j-%q-%z.%",
    "lit\\%j": "lit%j",
    "a b'c\"d$x`e`*": "a b'c\"d$x`e`*",
    "-n %j": "-n 12",
    "new/er/%j": "new/er/12",
}


class Place:
    """A folder in which a stage runs, and the run's own files for what it prints."""

    def __init__(self, root, name="job"):
        self.root, self.own = root, root / "run"
        self.own.mkdir(exist_ok=True)
        self.out, self.err = self.own / f"{name}.out", self.own / f"{name}.err"

    def run(self, stage, shell="sh", **environment):
        text = payload_text(stage, 1)
        with self.out.open("wb") as out, self.err.open("wb") as err:
            return subprocess.run(
                [*(("busybox", "sh") if shell == "busybox" else (shell,)), "-c", "--", text],
                cwd=self.root, stdout=out, stderr=err, check=False, timeout=30, stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "12", **environment},
            ).returncode  # fmt: skip

    def files(self):
        """All that was made beside the run's own, by path."""
        found = (path for path in self.root.rglob("*") if path.is_file() and self.own not in path.parents)
        return {str(path.relative_to(self.root)): path.read_text() for path in found}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def stage(command=SAYS, **more):
    return Stage("fit", cores=1, command=command, **more)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_file_has_the_name_that_slurm_gives_it(place, shell):
    for pattern, name in NAMES.items():
        assert place.run(stage(stdout=pattern), shell) == 3
        assert place.files() == {name: "out\nerr\n"}, pattern
        (place.root / name).unlink()


@pytest.mark.parametrize("shell", SHELLS)
def test_it_is_a_second_name_of_the_runs_own_file(place, shell):
    """Both hold what is printed while it is printed, and either outlives the other."""
    looks = f"echo begun; cat logs/12 | tr a-z A-Z; {SAYS}"
    assert place.run(stage(looks, stdout="logs/%j", stderr="logs/%j.err"), shell) == 3
    assert place.files() == {"logs/12": "begun\nBEGUN\nout\n", "logs/12.err": "err\n"}
    for one, other in ((place.out, "12"), (place.err, "12.err")):
        assert one.samefile(place.root / "logs" / other)
        assert one.read_text() == (place.root / "logs" / other).read_text()


def test_errors_alone_and_both_by_one_name(place):
    """Both are where the errors are, since there Slurm says what it says of a job."""
    place.run(stage(stderr="e"))
    assert place.files() == {"e": "err\n"}
    assert place.out.read_text() == "out\n"
    place.run(stage(stdout="e"))
    assert place.err.samefile(place.root / "e")
    place.run(stage(stdout="e", stderr="e"))
    assert place.files() == {"e": "out\nerr\n"}


def test_a_script_prints_there_too_and_keeps_its_exit_code(place):
    assert place.run(Stage("fit", cores=1, script=f"#!/bin/sh\n{SAYS}\n", stdout="o")) == 3
    assert place.files() == {"o": "out\nerr\n"}


def test_the_next_try_has_the_name_and_what_the_last_printed_stays(place):
    place.run(stage("echo first", stdout="o"))
    again = Place(place.root, "again")
    again.run(stage("echo second", stdout="o"))
    assert place.files() == {"o": "second\n"}
    assert place.err.read_text() == "first\n"


def test_stages_that_share_a_job_print_into_a_file_each(tmp_path):
    """Where the name has the job's number alone."""
    for number, pattern in enumerate(("%j", "%4j", "%x-%j", "%9x-%4j")):
        Place(tmp_path, f"job.step-{number}").run(stage(stdout=pattern))
    assert set(Place(tmp_path).files()) == {"12-fit", "fit-12", "fit-0012"}


def test_stages_of_a_pool_print_into_a_file_each(place):
    assert place.run(stage(f'echo "${{ASA_IN_POOL-none}}"; {SAYS}', stdout="%j"), ASA_IN_POOL="1") == 3
    assert place.files() == {"12-fit": "none\nout\nerr\n"}


@pytest.mark.parametrize("name", ["~/logs/o", "$HOME/o", "~me/o"])
def test_no_folder_is_made_whose_name_a_shell_would_take_for_another(place, name):
    """Which would be dangerous to delete; `sbatch` of 24.11 and later makes it."""
    assert place.run(stage(stdout=name)) == 3
    assert not place.files()
    assert "there is no such folder" in place.err.read_text()


def test_elements_of_an_array_have_their_numbers(place):
    of_array = {"SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "17"}
    place.run(stage(stdout="%A_%a-%4a-%j-%b", environment=tuple(of_array.items())))
    assert set(place.files()) == {"10_17-0017-12-7"}
    (place.root / "10_17-0017-12-7").unlink()
    place.run(stage(stdout="%A_%a"), **of_array)  # of an array in which the client itself runs
    assert set(place.files()) == {"12_4294967294"}


def test_what_is_no_file_of_a_run_gets_it_in_the_end(place):
    """As where a pipe reads what is printed."""
    done = subprocess.run(
        ["sh", "-c", "--", payload_text(stage(stdout="o", stderr="e"), 1)],
        cwd=place.root, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert place.files() == {"o": "out\n", "e": "err\n"}


def test_on_another_file_system_it_is_a_link(place):
    other = Path("/dev/shm")
    if not os.access(other, os.W_OK) or other.stat().st_dev == place.root.stat().st_dev:
        pytest.skip("there is no other file system here")
    name = other / f"asa-{place.root.name}-{os.getpid()}"
    try:
        assert place.run(stage(stdout=str(name))) == 3
        assert name.readlink() == place.err
        assert name.read_text() == "out\nerr\n"
    finally:
        name.unlink(missing_ok=True)


@pytest.mark.parametrize(("name", "why"), [("full", "that is a folder"), ("file/o", "its folder cannot be made")])
def test_where_it_cannot_be_the_stage_runs_all_the_same(place, name, why):
    (place.root / "full").mkdir()
    (place.root / "file").touch()
    assert place.run(stage(stdout=name)) == 3
    said, printed = place.err.read_text().split("\n", 1)
    assert why in said
    assert printed == "out\nerr\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_device_is_written_to_and_stays_as_it_is(place, shell):
    before = Path(os.devnull).stat()
    assert place.run(stage(stdout=os.devnull), shell) == 3
    assert place.run(stage(stderr=os.devnull), shell) == 3
    assert (place.out.read_text(), place.err.read_text()) == ("out\n", "")
    assert Path(os.devnull).stat().st_mode == before.st_mode


@pytest.mark.parametrize("shell", SHELLS)
def test_a_device_that_cannot_be_written_to_ends_nothing(place, shell):
    """As the terminal, which a job has none of."""
    assert place.run(stage(stdout="/dev/tty", stderr="/dev/tty"), shell) == 3
    said, printed = place.err.read_text().split("\n", 1)
    assert "that device cannot be written to" in said
    assert printed == "out\nerr\n"


def test_a_link_or_a_pipe_of_the_name_is_replaced(place):
    kept = place.root / "kept"
    kept.write_text("mine")
    for name, make in (("link", lambda path: path.symlink_to(kept)), ("pipe", os.mkfifo)):
        make(place.root / name)
        assert place.run(stage(stdout=name)) == 3
    assert place.files() == {"kept": "mine", "link": "out\nerr\n", "pipe": "out\nerr\n"}


@pytest.mark.parametrize("name", ["logs/", "a\nb", "a\0"])
def test_what_names_no_file_is_refused(name):
    with pytest.raises(WorkflowError, match="names no file"):
        stage(stdout=name)


def checked(tmp_path, *stages):
    (tmp_path / "logs").mkdir(exist_ok=True)
    (tmp_path / "file").touch()
    text = 'name = "f"\n'
    for number, keys in enumerate(stages):
        text += f'[[stage]]\nname = "s{number}"\ncores = 2\nwalltime = "1min"\n{keys}\n'
    (tmp_path / "flow.toml").write_text(text)
    found = check_here(tmp_path / "flow.toml", folder=tmp_path)
    return [problem.message for problem in found if problem.severity != "note"]


ECHO = 'command = "echo"\n'
WRONG = {
    'stdout = "lgos/%j"': "stdout: there is no folder lgos;",
    'stderr = "lgos/%j/x"': "stderr: there is no folder lgos;",
    'stdout = "file/%x-%j"': "stdout: file is no folder",
    'stdout = "$HOME/%x"': "stdout: $HOME/%x is used literally, $HOME, too",
    'array = "1-3"\nstdout = "o-%A"': "its elements replace each other's o-%A",
    'continues = true\ntotal = "2min"\nstdout = "o-%x"': "its legs replace each other's o-%x",
}


@pytest.mark.parametrize("keys", WRONG)
def test_check_says_what_is_wrong_with_a_name(tmp_path, keys):
    messages = checked(tmp_path, ECHO + keys)
    assert len(messages) == 1, messages
    assert WRONG[keys] in messages[0]


def test_check_knows_of_a_folder_that_a_stage_makes(tmp_path):
    """As the first one does of a driver that was recorded."""
    makes = 'command = "mkdir -p -- new data/x && true"\nlocal = true'
    assert checked(tmp_path, makes, f'{ECHO}stdout = "new/%x-%j"', f'{ECHO}stderr = "data/../data/x/%x-%j"') == []
    assert len(checked(tmp_path, makes, f'{ECHO}stdout = "other/%x-%j"')) == 1


def test_check_warns_of_stages_that_print_into_the_same_file(tmp_path):
    messages = checked(tmp_path, *[ECHO + 'stdout = "logs/%u"'] * 2)
    assert messages == ["stage 's1': stdout: logs/%u is that of stage 's0', too: the later replaces the other"]


@pytest.mark.parametrize("name", ["o-%j", "logs/%x", "logs/%j/%x", "./%4j", "o%%-%x", "/tmp/%j"])
def test_check_says_nothing_of_good_names(tmp_path, name):
    assert not checked(tmp_path, *[f'{ECHO}stdout = "{name}"'] * 2)
