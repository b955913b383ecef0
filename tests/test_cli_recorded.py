"""Drivers in place of workflow files, and ``asa record``, as a user types them."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from asa.spec import load_workflow

pytestmark = pytest.mark.usefixtures("own_home")

DRIVER = """#!/bin/bash
mkdir -p lists
for s in "$@"; do
  echo $s > lists/all.txt
  a=$(sbatch --parsable -n 1 -t 1 -J align_$s --wrap "echo align $s > $s.bam")
  sbatch -n 1 -t 1 -J sort_$s -d afterok:$a --wrap "cat $s.bam lists/all.txt > $s.sorted"
done
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("submit.sh").write_text(DRIVER)
    Path("submit.sh").chmod(0o755)
    done = asa("import", "scripts", "--record", "-o", "try.toml", "--", "./submit.sh", "s", code=None)
    if "view of the files" in done.stderr:
        pytest.skip("no namespaces here")
    Path("try.toml").unlink()
    shutil.rmtree("try.recorded")
    return Path.cwd()


def asa(*words, code=0, **how):
    command = [sys.executable, "-P", "-m", "asa", *words]
    how = {"input": "", **how}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "120"}, **how
    )
    assert code is None or done.returncode == code, done.stderr
    return done


def test_a_driver_is_recorded_shown_and_run_by_one_command(place):
    """The test covers everything up to the files that the jobs write."""
    done = asa("run", "--backend", "local", "--", "./submit.sh", "s1", "s2")
    assert "Recorded 4 jobs of ./submit.sh s1 s2; nothing was submitted." in done.stderr
    assert "align_s1" in done.stderr
    assert "sort_s2" in done.stderr
    assert Path("s2.sorted").read_text() == "align s2\ns2\n"
    again = asa("run", "--backend", "local", "--", "./submit.sh", "s3")
    assert "sort_s3" in again.stdout
    assert Path("s3.sorted").read_text() == "align s3\ns3\n"  # with the list of now, not of before
    assert load_workflow("submit-2.toml").stages.keys() == {"driver-files", "align_s3", "sort_s3"}
    assert "sort_s2" in load_workflow("submit.toml").stages  # of which a run may still be under way
    asa("show", "--", "./submit.sh", "s3")
    assert not Path("submit-3.toml").exists()
    Path("submit.toml").write_text(Path("submit.toml").read_text() + "# mine\n")
    done = asa("run", "--", "./submit.sh", "s1", "s2", code=2)
    assert "submit.toml: was changed since it was recorded" in done.stderr
    assert "asa run submit.toml" in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("words", ["--network", "--in-place", "--add", "--as-parameter a=b", "--record --parallel"])
def test_options_that_would_have_no_effect_are_refused(tmp_path, words):
    """Without --record there is no recording to which they apply, and with it no other dependencies."""
    (tmp_path / "a.sh").write_text("#!/bin/sh\n#SBATCH -t 5\n")
    done = asa("import", "scripts", *words.split(), tmp_path / "a.sh", code=2)
    assert re.search(r"--\S+: goes with(out)? --record only", done.stderr)


@pytest.mark.full
@pytest.mark.parametrize("second", ["true", "false"])
def test_what_waits_for_the_failure_of_two_runs_if_both_fail(place, second):
    """In Slurm, `afternotok` of several jobs requires the failure of all."""
    text = f"""#!/bin/bash
a=$(sbatch --parsable -n 1 -t 1 -J a --wrap false)
b=$(sbatch --parsable -n 1 -t 1 -J b --wrap {second})
sbatch -n 1 -t 1 -J rescue -d afternotok:$a:$b --wrap 'echo x > rescued'
"""
    Path("submit.sh").write_text(text)
    asa("run", "--backend", "local", "--", "./submit.sh", code=1)
    assert Path("rescued").exists() == (second == "false")


def test_strategies_are_compared_for_a_driver(place):
    done = asa("compare", "--nodes", "4", "--", "./submit.sh", "s1", code=2)
    assert "No such option" in done.stderr
    assert not Path("submit.toml").exists()
    done = asa(
        "compare", "--strategies", "per-stage,big-job", "--seeds", "1", "--history", "0", "--", "./submit.sh", "s1"
    )
    assert "Recorded 2 jobs" in done.stderr
    assert "per-stage" in done.stdout


@pytest.mark.full
def test_what_was_an_argument_becomes_a_parameter(place):
    """The file then serves other arguments, too, unless the driver wrote the argument into a file."""
    done = asa("import", "scripts", "--record", "--as-parameter", "sample=s1", "--", "./submit.sh", "s1", code=2)
    assert "'s1' is also in what the driver made, files/lists/all.txt" in done.stderr
    Path("submit.sh").write_text(DRIVER.replace("  echo $s > lists/all.txt\n", ""))
    asa("import", "scripts", "--record", "--as-parameter", "sample=s1", "--", "./submit.sh", "s1")
    flow = load_workflow("flow.toml", {"sample": "t7"})
    assert flow.stages["sort_t7"].after == ("align_t7",)
    assert flow.stages["sort_t7"].command == "cat t7.bam lists/all.txt > t7.sorted"
    assert load_workflow("flow.toml").stages.keys() == {"driver-files", "align_s1", "sort_s1"}
    done = asa("import", "scripts", "--record", "--force", "--as-parameter", "x=zz", "--", "./submit.sh", "s1", code=2)
    assert "'zz' stands nowhere in the workflow" in done.stderr


@pytest.mark.full
def test_what_is_recorded_later_follows_what_was_before(place):
    """The later driver's dependencies use the earlier job numbers."""
    Path("second.sh").write_text("#!/bin/sh\nsbatch -t 1 -J end -d afterok:$1 --wrap true\n")
    done = asa("import", "scripts", "--record", "--", "./submit.sh", "s1")
    number = done.stderr.split("Submitted batch job ")[1].split()[0]
    asa("import", "scripts", "--record", "--add", "--", "sh", "second.sh", number)
    assert load_workflow("flow.toml").stages["end"].after == ("sort_s1",)
    done = asa("import", "scripts", "--record", "--", "./submit.sh", "s1")  # since nobody changed it
    assert list(load_workflow("flow.toml").stages) == ["driver-files", "align_s1", "sort_s1"]
    done = asa("import", "scripts", "--record", "--add", "-o", "new.toml", "--", "sh", "second.sh", "7", code=2)
    assert "new.toml: was not recorded" in done.stderr


@pytest.mark.full
def test_a_session_is_recorded(place):
    """The user types commands in a shell, which shows the job numbers."""
    typed = "j=$(sbatch --parsable -t 1 --wrap true)\nsbatch -t 1 -J b -d afterany:$j --wrap true\nexit\n"
    done = asa("record", "--", "/bin/sh", input=typed)
    assert "Recorded 2 jobs" in done.stderr
    flow = load_workflow("flow.toml")
    assert (flow.stages["b"].after, flow.stages["b"].when) == (("wrap",), "always")
    assert "exists already" not in asa("record", "--", "/bin/sh", input=typed).stderr
    Path("flow.toml").write_text("mine")
    assert "exists already" in asa("record", "--", "/bin/sh", input=typed, code=2).stderr


WITHOUT_NAMESPACES = 'echo 0 > /proc/sys/user/max_mnt_namespaces && exec "$@"'


@pytest.fixture
def forbids(tmp_path, monkeypatch):
    """Run commands where private mount namespaces are forbidden."""
    monkeypatch.chdir(tmp_path)
    Path("submit.sh").write_text("#!/bin/sh\necho x > made\nsbatch -t 1 --wrap true\n")
    Path("submit.sh").chmod(0o755)
    before = ["unshare", "-U", "-r", "sh", "-c", WITHOUT_NAMESPACES, "sh"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*before, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("they cannot be forbidden here")
    return [*before, sys.executable, "-P", "-m", "asa"]


@pytest.mark.parametrize("answer", ["y", "n"])
def test_where_namespaces_are_forbidden_it_is_asked_before_anything_is_really_done(forbids, answer):
    """The question, at a terminal, says what will be done."""
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [*forbids, "import", "scripts", "--record", "--", "./submit.sh"]
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=False)
    os.close(ours)
    os.close(theirs)
    assert "view of the files (unshare: " in done.stderr
    assert "files that it writes, changes or removes stay so" in done.stderr
    assert "Run it as it is? [y/N]" in done.stderr
    assert (done.returncode, Path("made").exists(), Path("flow.toml").exists()) == (
        (0, True, True) if answer == "y" else (1, False, False)
    ), done.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    "words", ["import scripts --record -- ./submit.sh", "record -- ./submit.sh", "run -- ./submit.sh"]
)
def test_without_a_terminal_nothing_is_done_where_namespaces_are_forbidden(forbids, words):
    done = subprocess.run([*forbids, *words.split()], input="y\n", capture_output=True, text=True, check=False)
    assert (done.returncode, Path("made").exists()) == (2, False)
    assert "--in-place" in done.stderr
    if words.startswith("record"):
        done = subprocess.run(
            [*forbids, "record", "--in-place", "./submit.sh"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, Path("made").exists()) == (0, True), done.stderr


@pytest.mark.full
def test_check_says_when_to_record_again(place):
    asa("import", "scripts", "--record", "--", "./submit.sh", "s1")
    assert "has changed" not in asa("check", "flow.toml").stdout
    Path("submit.sh").write_text(DRIVER + "true\n")
    done = asa("check", "flow.toml")
    assert f"since it was recorded, this has changed: {place}/submit.sh" in done.stdout
    assert "asa import scripts --record --force --out flow.toml -- ./submit.sh s1" in done.stdout
    problems = json.loads(asa("check", "flow.toml", "--output", "json").stdout)["problems"]
    assert any("has changed" in problem["message"] for problem in problems)


@pytest.mark.full
def test_bad_input_is_refused(place):
    for words, said in {
        ("import", "scripts", "--record", "-o", "-", "--", "./submit.sh"): "a recording needs a file",
        ("import", "scripts", "--record", "--", "./none.sh"): "cannot be started",
        ("import", "scripts", "--record", "--limit", "soon", "--", "./submit.sh", "x"): "soon",
        ("import", "scripts", "--record", "--as-parameter", "s1", "--", "./submit.sh", "s1"): "is no NAME=VALUE",
        ("run", "--", "./submit.sh"): "submitted nothing",
    }.items():
        done = asa(*words, code=2)
        assert said in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    assert not Path("flow.toml").exists()
    assert not Path("submit.toml").exists()
