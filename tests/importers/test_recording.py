"""Drivers that run once while their submissions are recorded."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from asa.core import temporary
from asa.errors import InputError
from asa.importers.driver import to_record
from asa.importers.recording import inside, keep, record, recorder, translate
from asa.importers.recording.recorder import Recording
from asa.importers.scripts import ImportChoices
from asa.spec import load_workflow, write_workflow
from asa.spec.recorded import changed_since, recorded_folder

JOB = "#!/bin/sh\n#SBATCH -n 2 -t 10\necho $1\n"


@pytest.fixture(scope="module")
def namespaces(tmp_path_factory):
    """Skip tests that need a private view of files where the system gives none."""
    try:
        record(["true"], folder=tmp_path_factory.mktemp("probe"))
    except InputError as error:
        pytest.skip(f"no namespaces here: {error.message}")


@pytest.fixture
def place(namespaces, without_view):
    return without_view


@pytest.fixture
def without_view(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("SBATCH_PARTITION", raising=False)
    return tmp_path / "work"


def recorded(text, *arguments, name="submit.sh", files=("a.sh", "b.sh", "c.sh"), **how) -> Recording:
    """Record a driver of a given text next to some batch scripts."""
    Path(name).write_text(text if text.startswith("#!") else f"#!/bin/bash\n{text}")
    Path(name).chmod(0o755)
    for file in files:
        if not Path(file).exists():
            Path(file).write_text(JOB)
    return record([f"./{name}", *arguments], **how)


def flow_of(recording):
    made = translate(recording, Path("flow.recorded"), ImportChoices())
    return made.imported.workflow.stages, made.imported.notes, made


def edges(stages):
    return {name: stage.after for name, stage in stages.items()}


BASH = """#!/bin/bash
ids=
for s in "$@"; do
  j=$(sbatch --parsable -J a_$s a.sh $s)
  ids=$ids:$j
done
sbatch -J sum -d afterok$ids b.sh
"""
SH = """#!/bin/sh
for s; do set -- $(sbatch -J a_$s a.sh $s); ids=$ids:$4; done
sbatch -J sum --dependency=afterok$ids b.sh
"""
PYTHON = f"""#!{sys.executable}
import re, subprocess, sys, time
ids = []
for s in sys.argv[1:]:
    said = subprocess.run(["sbatch", "-J", f"a_{{s}}", "a.sh", s], capture_output=True, text=True).stdout
    ids.append(re.search(r"[0-9]+", said)[0])
    time.sleep(3600)
subprocess.run(["sbatch", "-J", "sum", "-d", "afterok:" + ":".join(ids), "b.sh"])
"""
PERL = """#!/usr/bin/perl
my @ids;
for my $s (@ARGV) { my $said = `sbatch --parsable -J a_$s a.sh $s`; chomp $said; push @ids, $said }
system('sbatch', '-J', 'sum', '-d', 'afterok:' . join(':', @ids), 'b.sh');
"""
DRIVERS = {"submit.sh": BASH, "submit.dash": SH, "submit.py": PYTHON, "submit.pl": PERL}


@pytest.mark.parametrize("name", DRIVERS)
def test_drivers_of_any_language_become_the_same_workflow(place, name):
    """With loops, arguments, and numbers that are read from what sbatch says."""
    stages, _, _ = flow_of(recorded(DRIVERS[name], "s1", "s2", name=name))
    assert edges(stages) == {"a_s1": (), "a_s2": (), "sum": ("a_s1", "a_s2")}
    assert stages["a_s2"].command == "exec /bin/sh a.sh s2"
    assert stages["sum"].script == JOB
    assert (stages["a_s1"].cores, stages["a_s1"].walltime_s) == (2, 600.0)


CSH = """#!/bin/csh
setenv S s1
set ids=""
foreach s ($argv)
  set j=`sbatch --parsable -J a_$s a.sh $s`
  set ids="${ids}:$j"
end
sbatch -J sum -d afterok${ids} b.sh
"""
R = """for (s in commandArgs(trailingOnly=TRUE)) {
  ids <- c(if (exists("ids")) ids, system(paste0("sbatch --parsable -J a_", s, " a.sh ", s), intern=TRUE))
}
Sys.setenv(S="s1")
system2("sbatch", c("-J", "sum", paste0("--dependency=afterok:", paste(ids, collapse=":")), "b.sh"))
"""
MAKE = """S = s1
export S
sum: s1 s2
\t@sbatch -J sum -d afterok:`cat ids | paste -sd:` b.sh
s1 s2:
\t@sbatch --parsable -J a_$@ a.sh $@ >> ids
"""
INTERPRETERS = {
    "csh": (CSH, ["csh", "-f", "FILE", "s1", "s2"]),
    "Rscript": (R, ["Rscript", "--vanilla", "FILE", "s1", "s2"]),
    "make": (MAKE, ["make", "-f", "FILE", "-s"]),
}


@pytest.mark.parametrize("program", INTERPRETERS)
def test_an_interpreter_has_no_part_in_what_its_driver_says(place, monkeypatch, program):
    """Variables that it sets for all that it starts are none of the driver's."""
    if shutil.which(program) is None:
        pytest.skip(f"no {program} here")
    for name in ("USER", "LOGNAME", "HOST", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    text, words = INTERPRETERS[program]
    Path("driver").write_text(text)
    for one in ("a.sh", "b.sh"):
        Path(one).write_text(JOB)
    stages, _, _ = flow_of(record([word.replace("FILE", "driver") for word in words]))
    stages.pop("driver-files", None)
    assert {name: set(stage.after) - {"driver-files"} for name, stage in stages.items()} == {
        "a_s1": set(), "a_s2": set(), "sum": {"a_s1", "a_s2"},
    }  # fmt: skip
    assert dict(stages["sum"].environment).keys() - {"LD_LIBRARY_PATH"} == {"S"}  # which R itself needs


def test_a_makefile_is_a_driver_too(place):
    """Any command is: nothing is known of it but what it calls."""
    Path("Makefile").write_text("all:\n\tsbatch -J a a.sh\n\tsbatch -J b -d singleton b.sh\n")
    Path("a.sh").write_text(JOB)
    Path("b.sh").write_text(JOB)
    assert edges(flow_of(record(["make", "-s"]))[0]) == {"a": (), "b": ()}


def test_nothing_that_it_does_remains(place, tmp_path):
    """It sees its own files as it changes them; afterwards they are as before."""
    Path("old.txt").write_text("old\n")
    Path("dir").mkdir()
    Path("dir/in.txt").write_text("in\n")
    before = sorted(str(one) for one in tmp_path.rglob("*"))
    done = recorded(
        "rm -r dir && mkdir dir && test ! -e dir/in.txt && echo new > old.txt && echo x > ../up.txt && "
        "echo y > made.txt && ln -s made.txt link && sbatch a.sh && grep -q new old.txt",
        files=("a.sh",),
    )
    assert done.code == 0
    after = sorted(str(one) for one in tmp_path.rglob("*") if one.name not in {"submit.sh", "a.sh"})
    assert after == before
    assert Path("old.txt").read_text() == "old\n"
    made = done.made
    assert {path.name for path in (*made.new, *made.temporary)} == {"up.txt", "made.txt", "link"}
    assert [path.name for path in made.changed] == ["old.txt"]
    assert [path.name for path in made.removed] == ["in.txt"] or not made.removed  # where a folder hides what was there


def test_files_in_memory_are_as_they_are_and_stay_so(place, tmp_path, monkeypatch):
    """Also where those of the recording are there."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        Path(folder, "in").write_text("in\n")
        for temporary in ("/tmp", folder):
            monkeypatch.setenv("TMPDIR", temporary)
            monkeypatch.setattr(tempfile, "tempdir", None)
            done = recorded(f"cat {folder}/in > seen; echo x > {folder}/out; sbatch a.sh")
            assert done.made.contents[place / "seen"] == b"in\n"
        assert [one.name for one in Path(folder).iterdir()] == ["in"]


@pytest.mark.skipif(os.geteuid() != 0, reason="others may not do that anyway")
def test_root_changes_nothing_of_the_system(place):
    """No devices, no settings, no name of the host, no shared memory."""
    text = "touch /dev/asa-test || echo dev; cat /proc/sys/kernel/msgmax > /proc/sys/kernel/msgmax || echo proc\n"
    text += "cg=$(ls -d /sys/fs/cgroup/*/ /sys/fs/cgroup | head -n 1); mkdir $cg/asa-test || echo sys\n"
    text += "readlink /proc/self/ns/uts /proc/self/ns/ipc; echo x > /dev/null && echo null"
    done = recorded(f"({text}) > seen 2>&1; sbatch a.sh")
    lines = done.made.contents[place / "seen"].decode().splitlines()
    said = [line for line in lines if "cannot" not in line and "Read-only" not in line]
    assert (said[:3], said[-1]) == (["dev", "proc", "sys"], "null")
    assert not {str(Path("/proc/self/ns", one).readlink()) for one in ("uts", "ipc")} & set(said)
    assert not Path("/dev/asa-test").exists()


def test_nothing_goes_on_once_the_recorder_is_killed(place, tmp_path):
    """Neither what it runs nor what it had written."""
    recorded("sbatch a.sh")  # or there are no namespaces
    Path("submit.sh").write_text("#!/bin/bash\ntrap '' TERM HUP INT\necho $$\nwhile :; do :; done\n")
    code = "import sys; from asa.importers.recording import record; record(['./submit.sh'])"
    (tmp_path / "tmp").mkdir(mode=0o700)
    how = {"env": os.environ | {"TMPDIR": str(tmp_path / "tmp")}, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdin=subprocess.DEVNULL, **how) as recorder:
        number = int(recorder.stderr.readline())
        recorder.kill()
        for _ in range(200):
            if not Path(f"/proc/{number}").exists() and not list((tmp_path / "tmp").glob("*/*/*")):
                return
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    pytest.fail("it goes on")


def test_what_ignores_ctrl_c_is_ended_by_the_third(place):
    recorded("sbatch a.sh")  # or there are no namespaces
    # no shell: a trap of bash may be lost, or end its loop, where a signal comes while it still runs for the one before
    driver = "import signal\nsignal.signal(signal.SIGINT, lambda *_: print('caught', flush=True))\n"
    Path("submit.py").write_text(driver + "print('started', flush=True)\nwhile True:\n    signal.pause()\n")
    code = "from asa.importers.recording import record; "
    code += f"print(record([{sys.executable!r}, 'submit.py'], limit_s=200).was_ended)"
    how = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "process_group": 0}
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdin=subprocess.DEVNULL, **how) as recorder:
        assert recorder.stderr.readline() == "started\n"
        for _ in range(2):
            os.killpg(recorder.pid, signal.SIGINT)
            assert (said := recorder.stderr.readline()) == "caught\n", (said, recorder.communicate(timeout=150))
        os.killpg(recorder.pid, signal.SIGINT)
        assert recorder.communicate(timeout=150)[0] == "True\n"  # not by the limit


def test_ctrl_c_at_the_very_beginning_is_the_driver_s_too(tmp_path):
    """As soon as it runs, when nobody else waits for it yet."""
    code = """
import os, signal
from asa.importers.recording import inside
def begin(command, really=inside._begin):
    begun = really(command)
    os.kill(os.getpid(), signal.SIGINT)
    return begun
inside._begin = begin
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(inside._run(["sleep", "50"], 50.0))
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.startswith("(130, False, "), done.stderr


def test_a_list_that_it_writes_anew_is_put_in_place(place):
    """Not what it only adds to, nor over what somebody has written since."""
    for name in ("list.txt", "log.txt", "with space"):
        Path(name).write_text("s0\n")
    done = recorded("echo s1 | tee list.txt > 'with space'; echo s1 >> log.txt; sbatch a.sh")
    stages, notes, made = flow_of(done)
    assert edges(stages) == {"driver-files": (), "a": ("driver-files",)}
    assert any("and no run will" in note and note.endswith("log.txt") for note in notes)
    assert any("and so will a run" in note and "list.txt" in note for note in notes)
    keep(done, made, Path("flow.recorded"))
    for _ in range(2):
        subprocess.run(["/bin/sh", "-c", stages["driver-files"].command], check=True)
        texts = [Path(name).read_text() for name in ("list.txt", "log.txt", "with space")]
        assert texts == ["s1\n", "s0\n", "s1\n"]
    Path("list.txt").write_text("mine\n")
    ran = subprocess.run(["/bin/sh", "-c", stages["driver-files"].command], check=False, capture_output=True, text=True)
    assert (ran.returncode, Path("list.txt").read_text()) == (1, "mine\n")
    assert ran.stderr == "list.txt: has changed since it was recorded: record it again\n"


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no files in memory here")
def test_files_in_memory_are_no_files_of_the_workflow(place):
    """But it is said if a job is given one."""
    done = recorded("echo x > /dev/shm/asa-made; sbatch a.sh /dev/shm/asa-made")
    stages, notes, made = flow_of(done)
    assert (set(stages), dict(made.files)) == ({"a"}, {})
    assert any("folder for temporary files" in note for note in notes)


def test_a_driver_in_the_home_folder_has_no_history_either(place, monkeypatch):
    monkeypatch.setenv("HOME", str(place))
    done = recorded("echo x > ~/.bash_history; mkdir ~/.cache; echo 1 > list; sbatch a.sh")
    assert {path.name for path in done.made.temporary} == {".bash_history", ".cache"}
    assert [path.name for path in done.made.new] == ["list"]


def test_folders_for_temporary_files_may_have_long_names(place, tmp_path, monkeypatch):
    """Longer than the address of a socket."""
    (tmp_path / ("l" * 120)).mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("l" * 120)))
    assert temporary.base_folder() == tempfile.tempdir
    assert list(flow_of(recorded("sbatch a.sh"))[0]) == ["a"]


def test_it_is_said_that_the_current_folder_is_gone(place, monkeypatch):
    Path("gone").mkdir()
    monkeypatch.chdir("gone")
    Path("../gone").rmdir()
    with pytest.raises(InputError, match="current folder is gone"):
        record(["/bin/true"])


def test_it_has_no_network(place):
    """Unless it is given one; programs on the machine reach each other."""
    done = recorded(
        f"{sys.executable} -c 'import socket; print([name for _, name in socket.if_nameindex()])' > seen\nsbatch a.sh"
    )
    assert done.made.contents[place / "seen"] == b"['lo']\n"


def test_what_it_made_is_put_in_place_before_the_others_run(place):
    """Lists, scripts and folders, also of jobs that come on standard input or are deleted at once."""
    done = recorded(
        "mkdir -p logs lists\necho s1 > lists/one.txt\nprintf '#!/bin/sh\\ncat lists/one.txt > out.txt\\n' > made.sh\n"
        "chmod +x made.sh\nsbatch -t 1 made.sh x\nsbatch -t 1 -J piped <<'END'\n#!/bin/sh\necho piped\nEND\n"
        "cp made.sh gone.sh; sbatch -t 1 gone.sh; rm gone.sh"
    )
    stages, _, made = flow_of(done)
    assert edges(stages) == {
        "driver-files": (),
        "made": ("driver-files",),
        "piped": ("driver-files",),
        "gone": ("driver-files",),
    }
    assert stages["driver-files"].local
    assert stages["made"].command == "exec /bin/sh flow.recorded/files/made.sh x"
    assert stages["piped"].script == "#!/bin/sh\necho piped\n"
    keep(done, made, Path("flow.recorded"))
    assert os.access("flow.recorded/files/made.sh", os.X_OK)
    subprocess.run(["/bin/sh", "-c", stages["driver-files"].command], check=True)
    subprocess.run(["/bin/sh", "-c", stages["made"].command], check=True)
    assert Path("out.txt").read_text() == "s1\n"
    assert Path("logs").is_dir()


AB = "a b"
KINDS = {  # what the stage says
    "afterok:$a:$b": {"after": AB},
    "afterany:$a:$b": {"after": AB, "when": "always"},
    "afternotok:$a": {"after": "a", "when": "failed"},
    "afterok:$a,afterany:$b": {"after": AB, "after_any": "b"},
    "afterok:$a,$b": {"after": AB, "after_any": "b"},  # as Slurm reads it
    "afternotok:$a?afternotok:$b": {"after": AB, "when": "failed"},
    "afterok:$a?afterok:$b": {"after": AB, "when": "any"},
    "afterok:$a?afterany:$b": {"after": AB, "when": "any", "after_any": "b"},
    "afterok:$a?after:$b+2": {"after": AB, "when": "any", "after_start": "b", "start_delay_s": 120},
    "aftercorr:$a": {"after": "a"},  # of what is no array
    "after:$a": {"after": "a", "after_start": "a"},
    "after:$a+5": {"after": "a", "after_start": "a", "start_delay_s": 300},
    "after:$a+5,afterok:$b": {"after": AB, "after_start": "a", "start_delay_s": 300},
    "after:$a,afterany:$b": {"after": AB, "after_start": "a", "after_any": "b"},
    "after:$a:$b": {"after": AB, "after_start": AB},
    "after:$a+5:$b+7": {"after": AB, "after_start": AB, "start_delay_s": 420},
    "afterok:$a,after:$a+5": {"after": "a"},
    "afterok:${a}_3": {"after": "a"},
    "afterok:7:$b": {"after": "b"},
}
SAID = {  # what is noted, by the values that a workflow cannot say whole
    "after:$a+5:$b+7": "several delays",
    "afterok:$a,after:$a+5": "only the strictest",
    "afterok:${a}_3": "whole array",
    "afterok:7:$b": "from elsewhere",
}


@pytest.mark.parametrize("value", KINDS)
def test_what_a_job_waits_for_is_what_its_stage_waits_for(place, value):
    """All kinds, as Slurm reads them; what a workflow cannot say is said."""
    done = recorded(f'a=$(sbatch --parsable a.sh)\nb=$(sbatch --parsable b.sh)\nsbatch -d "{value}" c.sh\n')
    stages, notes, _ = flow_of(done)
    stage, says = (
        stages["c"],
        {"after_any": "", "after_start": "", "start_delay_s": 0, "when": "success"} | KINDS[value],
    )
    names = {key: set(said.split()) for key, said in says.items() if key.startswith("after")}
    assert {key: set(getattr(stage, key)) for key in names} == names
    assert (stage.when, stage.start_delay_s) == (says["when"], says["start_delay_s"])
    words = [*SAID.values(), "becomes", "left out"]
    assert {word for word in words if any(word in note for note in notes)} >= {SAID[value]} if value in SAID else {""}
    assert value in SAID or not any(word in note for note in notes for word in words)


@pytest.mark.parametrize(
    ("first", "second", "value", "is_by_element"),
    [
        ("1-9", "1-9", "aftercorr:$a", True),
        ("0-9%2", "3,5", "aftercorr:$a", True),
        ("1-9", "0-3", "aftercorr:$a", False),
        ("1-9", "", "aftercorr:$a", False),
        ("", "1-9", "aftercorr:$a", False),
        ("1-9", "1-9", "aftercorr:$a?afterok:$b", False),
    ],
)
def test_elements_follow_the_same_elements(place, first, second, value, is_by_element):
    """Where the other array has all of them; else it is said that they wait for the whole."""
    arrays = [f"--array={one}" if one else "" for one in (first, second)]
    text = (
        f"a=$(sbatch --parsable {arrays[0]} a.sh)\nb=$(sbatch --parsable b.sh)\nsbatch -d '{value}' {arrays[1]} c.sh\n"
    )
    stages, notes, _ = flow_of(recorded(text.replace("'", '"')))
    assert stages["c"].after_matching == (("a",) if is_by_element else ())
    assert any("whole of the other array" in note for note in notes) != is_by_element


FAILURES = {
    "afternotok:$a:$b": (("a-failed", "b-failed"), ()),
    "afterok:$a,afternotok:$b": (("a", "b-failed"), ()),
    "afterany:$a,afternotok:$a,afternotok:$b": (("a", "a-failed", "b-failed"), ("a",)),
}


@pytest.mark.parametrize("value", FAILURES)
def test_what_waits_for_several_failures_follows_stages_that_stand_for_them(place, value):
    """Which take no job; `when` would be content with one of them."""
    text = f'a=$(sbatch --parsable a.sh)\nb=$(sbatch --parsable b.sh)\nsbatch -d "{value}" c.sh\n'
    stages, _, _ = flow_of(recorded(text))
    assert (stages["c"].after, stages["c"].after_any, stages["c"].when) == (*FAILURES[value], "success")
    for name in stages.keys() - {"a", "b", "c"}:
        stage = stages[name]
        assert (stage.local, stage.when, stage.after) == (True, "failed", (name[0],))


def test_what_waits_for_a_failure_or_something_else_takes_what_comes_first(place):
    text = 'a=$(sbatch --parsable a.sh)\nb=$(sbatch --parsable b.sh)\nsbatch -d "afternotok:$a?afterok:$b" c.sh\n'
    stages, notes, _ = flow_of(recorded(text))
    assert (stages["c"].after, stages["c"].when) == (("b", "a-failed"), "any")
    assert not any("becomes" in note for note in notes)


def test_a_failure_and_what_the_driver_saw_end_are_both_waited_for(place):
    text = "a=$(sbatch --parsable a.sh); sbatch --wait b.sh; sbatch -d afternotok:$a c.sh"
    stages, _, _ = flow_of(recorded(text))
    assert edges(stages) == {"a": (), "b": (), "c": ("a-failed", "b"), "a-failed": ("a",)} or set(
        stages["c"].after
    ) == {"b", "a-failed"}


def test_singletons_follow_those_of_their_name(place):
    """In the order of submission, however these end."""
    text = "for i in 1 2 3; do sbatch -J one -d singleton a.sh; done; sbatch -J two -d singleton a.sh"
    stages, _, _ = flow_of(recorded(text))
    assert edges(stages) == {"one": (), "one-2": ("one",), "one-3": ("one", "one-2"), "two": ()}
    assert stages["one-3"].when == "always"


def test_what_a_driver_saw_end_comes_before_what_it_submits_then(place):
    """It sees pending, running and completed at its next looks; --wait counts as well."""
    text = (
        "j=$(sbatch --parsable a.sh)\nfor i in 1 2 3; do squeue -h -j $j -o %T >> states; sleep 600; done\n"
        "while squeue -h -j $j | grep -q .; do sleep 600; done\nsacct -nXP -j $j -o State >> states\n"
        "scontrol show job $j | grep -o JobState=.* >> states\nsbatch b.sh\nsbatch --wait c.sh && sbatch -J d c.sh\n"
    )
    done = recorded(text)
    assert done.made.contents[place / "states"] == b"PENDING\nRUNNING\nCOMPLETED\nJobState=COMPLETED\n"
    stages, notes, _ = flow_of(done)
    stages.pop("driver-files")
    assert edges(stages) == {"a": ("driver-files",), "b": ("a",), "c": ("a",), "d": ("c",)}
    assert {stage.when for stage in stages.values()} == {"success"}
    assert any("seen others end" in note and "in between" in note for note in notes)


def test_it_is_said_that_a_driver_may_do_more_once_jobs_have_ended(place):
    """It looks for what they would have left, and ends well without it; one that goes on submits what follows."""
    text = "j=$(sbatch --parsable a.sh)\nwhile squeue -h -j $j | grep -q .; do sleep 60; done\n"
    _, notes, _ = flow_of(recorded(f"{text}for list in *.list; do test ! -f $list || sbatch b.sh; done"))
    assert any("waited for the end of a.sh, and submitted nothing after it" in note for note in notes)
    for other in (f"{text}sbatch b.sh", "sbatch a.sh; squeue"):
        assert not any("waited for the end" in note for note in flow_of(recorded(other))[1])


def test_what_it_saw_leave_the_queue_only_has_to_be_over(place):
    """It went on without knowing how that ended; and with it what it asked for besides."""
    text = "a=$(sbatch --parsable a.sh)\nb=$(sbatch --parsable b.sh)\n"
    text += "while squeue -h -j $a | grep -q .; do sleep 60; done\n"
    stages, _, _ = flow_of(recorded(f"{text}sbatch -d afterok:$b c.sh\nsbatch -J d c.sh"))
    assert (stages["c"].after, stages["c"].after_any) == (("b", "a"), ("a",))
    assert (stages["d"].after, stages["d"].when) == (("a",), "always")


def test_a_driver_that_keeps_so_many_in_the_queue_has_each_follow_an_earlier_one(place):
    """Those that had ended when there was a place, not all that were there."""
    text = "for i in 1 2 3 4 5; do\n  while [ $(squeue -h -u $(id -un) | wc -l) -ge 2 ]; do sleep 60; done\n"
    text += "  sbatch -J j$i a.sh\ndone\n"
    text += "while squeue -h | grep -q .; do sleep 60; done; sbatch -J end a.sh"
    stages, _, _ = flow_of(recorded(text))
    assert edges(stages) == {
        "j1": (), "j2": (), "j3": ("j1",), "j4": ("j1", "j2"), "j5": ("j2", "j3"), "end": ("j4", "j5"),
    }  # fmt: skip


def test_those_for_which_a_driver_waits_side_by_side_do_not_follow_each_other(place):
    """What is submitted after all of them have ended follows them all."""
    text = "for i in 1 2 3; do sbatch --wait -J w$i a.sh & done\nwait\nsbatch -J end b.sh"
    stages, _, _ = flow_of(recorded(text))
    assert [stages[f"w{i}"].after for i in (1, 2, 3)] == [(), (), ()]
    assert set(stages["end"].after) == {"w1", "w2", "w3"}


@pytest.mark.full
def test_time_does_not_tell_what_is_submitted_side_by_side(place):
    """A driver may need long from one call to the next, where others have the cores, or may sleep in between."""
    for between in ("for i in {1..80000}; do :; done", "sleep 60; perl -e 'sleep 1'"):
        text = f"for k in 1 2 3; do sbatch --wait -J w$k a.sh & {between}; done\nwait\nsbatch -J end b.sh"
        stages, notes, _ = flow_of(recorded(text))
        assert [stages[f"w{k}"].after for k in (1, 2, 3)] == [(), (), ()]
        assert set(stages["end"].after) == {"w1", "w2", "w3"}
        assert not any("did something else for long" in note for note in notes)


def test_what_waits_in_one_branch_of_a_driver_holds_up_no_other_branch(place):
    """Only who started a call that waits, and what that starts then, knows of the end."""
    text = "for k in 1 2; do (sbatch --wait -J a$k a.sh; sbatch --wait -J b$k b.sh) & done; wait; sbatch -J end c.sh"
    stages, _, _ = flow_of(recorded(text))
    assert {name: set(after) for name, after in edges(stages).items()} == {
        "a1": set(), "a2": set(), "b1": {"a1"}, "b2": {"a2"}, "end": {"b1", "b2"},
    }  # fmt: skip


FOLLOWERS = {
    "sbatch --wait a.sh & p=$!; while kill -0 $p; do sleep 9; done; sbatch b.sh": True,
    "sbatch --wait a.sh & p=$!; (while kill -0 $p; do sleep 9; done; sbatch b.sh) & wait": True,
    "for k in 1 2 3; do echo $k; done | xargs -P 2 -I{} sbatch --wait -J w{} a.sh; sbatch b.sh": True,
    "sbatch --wait a.sh & sbatch b.sh; wait": False,
}


@pytest.mark.parametrize("text", FOLLOWERS)
def test_what_may_know_of_the_end_follows_it(place, text):
    """Also by other means than that it called itself what waited."""
    stages, _, _ = flow_of(recorded(text))
    assert bool(stages["b"].after) == FOLLOWERS[text]


def test_a_driver_in_python_begins_without_a_word(place):
    """Also where the site has nothing of its own for each Python."""
    Path("submit.py").write_text("import subprocess; subprocess.run(['sbatch', 'a.sh'])\n")
    Path("a.sh").write_text(JOB)
    done = record(["sh", "-c", f"{sys.executable} submit.py 2> said"])
    assert done.made.contents[place / "said"] == b""


def test_an_array_has_a_row_for_each_of_its_elements_once_they_run(place):
    """For a driver that counts them."""
    text = "j=$(sbatch --parsable --array=1-3 a.sh)\nsqueue -h -o %i > seen\n"
    text += "until [ $(sacct -nXPj $j -o JobID,State | grep -c COMPLETED) = 3 ]; do\n"
    text += "  sleep 9; squeue -h -o %i >> seen\ndone\n"
    text += "sacct -nPj $j -o JobID >> seen; sbatch b.sh"
    done = recorded(text)
    ids = done.made.contents[place / "seen"].decode().replace(str(done.jobs[0].number), "J").split()
    assert ids[:4] == ["J_[1-3]", "J_1", "J_2", "J_3"]
    assert ids[-6:] == ["J_1", "J_1.batch", "J_2", "J_2.batch", "J_3", "J_3.batch"]
    assert flow_of(done)[0]["b"].after == ("a",)


def test_a_command_does_not_run_in_another_folder(place):
    """If its own is not there."""
    stages, _, _ = flow_of(recorded("mkdir sub; cd sub; sbatch --wrap 'echo x > ../bad; true'"))
    command = stages["wrap"].command
    assert subprocess.run(["/bin/sh", "-c", command], check=False, capture_output=True).returncode
    assert not (place / "bad").exists()


def test_a_driver_that_only_looks_before_each_job_waits_for_none(place):
    """As one that keeps fewer than a hundred in the queue, and never has as many."""
    text = "for i in 1 2 3 4 5 6 7 8; do\n  while [ $(squeue -h | wc -l) -ge 100 ]; do sleep 60; done\n"
    stages, notes, _ = flow_of(recorded(f"{text}  sacct -n > /dev/null; sbatch -J j$i a.sh\ndone"))
    assert not any(stage.after for stage in stages.values())
    assert not any("seen others end" in note for note in notes)


def test_a_job_gets_what_the_driver_had_set(place, monkeypatch):
    """What differs from the start, with --export as it says, and the folder; no secret is written down."""
    monkeypatch.setenv("KEPT", "1")
    text = (
        "export S=s1 API_TOKEN=abcdef1234567890abcdef\nsbatch a.sh\nS=s2 sbatch b.sh\n"
        "sbatch --export=NONE -J none a.sh\nsbatch --export=ALL,X=1 -J x a.sh\n"
        "mkdir sub; cd sub; sbatch -J there ../a.sh\ncd ..; sbatch -J here -D . a.sh"
    )
    stages, notes, _ = flow_of(recorded(text))
    assert dict(stages["a"].environment) == {"S": "s1"}
    assert dict(stages["b"].environment) == {"S": "s2"}
    assert dict(stages["none"].environment) == {}
    assert dict(stages["x"].environment) == {"S": "s1", "X": "1"}
    assert stages["there"].command.startswith(f"cd {place}/sub && exec /bin/sh {place}/a.sh")
    assert stages["here"].script == JOB
    assert "abcdef1234" not in str(stages)
    assert any("$API_TOKEN, which holds a secret" in note for note in notes)


def test_what_jobs_print_is_where_sbatch_puts_it(place):
    """In the folder of the call; and by the job's name, of which a stage's may differ."""
    text = "sbatch -o o.%j a.sh; mkdir sub; cd sub; echo '#!/bin/sh' | sbatch -e %x.e\nsbatch -o /x/%x -J 'a b' ../a.sh"
    stages, _, _ = flow_of(recorded(text))
    printed = {(stage.stdout, stage.stderr) for stage in stages.values()}
    assert printed == {("", ""), ("o.%j", ""), ("", f"{place}/sub/sbatch.e"), ("/x/a b", "")}


def test_what_a_job_reads_is_what_its_stage_reads(place):
    """By the element and the job's name, from the job's folder; a name with the job's number is left out and named."""
    for name, text in {"in.txt": "top", "sub/in.txt": "sub", "x 1.2": "two"}.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(f"{text}\n")
    Path("i.sh").write_text("#!/bin/sh\n#SBATCH -t 1 -i in.txt\nread word; echo $word\n")
    text = "sbatch i.sh; sbatch -D sub -J there i.sh; sbatch -i %x.%a -a 2 -J 'x 1' i.sh\n"
    text += "sbatch -J w -i in.txt --wrap 'read word; echo $word'; sbatch -J j -i in.%j i.sh"
    stages, notes, _ = flow_of(recorded(text))
    for name, expected in {"i": "top", "there": "sub", "x-1": "two", "w": "top"}.items():
        how = {"env": os.environ | {"SLURM_ARRAY_TASK_ID": "2"}, "capture_output": True, "text": True}
        assert subprocess.run(["/bin/sh", "-c", stages[name].command], check=True, **how).stdout == f"{expected}\n"
    assert [note for note in notes if "--input" in note] == [note for note in notes if "in.%j" in note]


def test_what_the_shim_of_a_language_puts_in_front_is_no_news(place, tmp_path, monkeypatch):
    """As pyenv does: a job's own call comes to the shim again. What the driver itself puts there is kept."""
    root = tmp_path / "env"
    (root / "shims").mkdir(parents=True)
    path = f"{root}/versions/3.9/bin:{root}/libexec:{root}/plugins/more/bin"
    text = f'export PYENV_VERSION=3.9 PYENV_DIR=$PWD PYENV_HOOK_PATH=x\nPATH={path}:$PATH exec {sys.executable} "$@"\n'
    (root / "shims" / "py").write_text(f"#!/bin/bash\n{text}")
    (root / "shims" / "py").chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}/shims:/usr/bin:/bin")
    monkeypatch.delenv("PYENV_VERSION", raising=False)
    Path("d.py").write_text("import subprocess; subprocess.run(['sbatch', 'a.sh'])\n")
    for own in ("", f"/own:{root}/versions/2.7/bin:"):
        stages, _, _ = flow_of(recorded(f"PATH={own}$PATH; py d.py"))
        expected = {"PATH": f"{own}{root}/shims:/usr/bin:/bin"} if own else {}
        assert dict(stages["a"].environment) == {"PYENV_VERSION": "3.9"} | expected


def test_a_variable_that_export_gives_again_has_that_value(place):
    """As Slurm takes it: the last of a name."""
    stages, _, _ = flow_of(recorded("export S=s1 T=t1\nsbatch --export=ALL,S=s2,S=s3 a.sh"))
    assert stages["a"].environment == (("S", "s3"), ("T", "t1"))


@pytest.mark.parametrize(("before", "after"), [("", "lib:"), ("own", "lib:own")])
def test_what_stands_before_the_folders_of_modules_stays(place, monkeypatch, before, after):
    """An empty one, too, which is the current folder."""
    if before:
        monkeypatch.setenv("PYTHONPATH", before)
    else:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    stages, _, _ = flow_of(recorded("export PYTHONPATH=lib:$PYTHONPATH\nsbatch a.sh"))
    assert dict(stages["a"].environment) == {"PYTHONPATH": after}


@pytest.mark.parametrize("before", [None, "own"])
def test_a_python_says_nothing_of_what_shortens_its_sleeps(place, monkeypatch, before):
    """As a warning of its syntax, which each Python would print that has folders of modules."""
    if before is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", before)
    python = """python3 -B -W always -c 'import os; print(os.environ.get("PYTHONPATH"))' >said 2>&1"""
    made = recorded(f"{python}\nsbatch a.sh").made
    assert made.contents[Path("said").absolute()].decode() == f"{before}\n"


def test_what_a_shell_takes_away_by_itself_is_no_news(place, monkeypatch):
    """As its prompt, in a script."""
    monkeypatch.setenv("PS1", "$ ")
    monkeypatch.setenv("GONE", "1")
    stages, _, _ = flow_of(recorded("unset GONE PS1\nsbatch a.sh"))
    assert stages["a"].command == "exec env --unset=GONE /bin/sh a.sh"


def test_variables_of_sbatch_stand_between_script_and_command_line(place):
    Path("p.sh").write_text("#!/bin/sh\n#SBATCH -p script -A script -t 5\n")
    stages, _, _ = flow_of(recorded("export SBATCH_PARTITION=var SBATCH_ACCOUNT=var\nsbatch -A given p.sh\n"))
    assert (stages["p"].partition, stages["p"].account) == ("var", "given")


REFUSED = {
    "sbatch missing.sh": "Unable to open file missing.sh",
    "echo x > no.sh; sbatch no.sh": "does not look like a batch script",
    "printf '#!/bin/sh\\r\\n' > dos.sh; sbatch dos.sh": "DOS line breaks",
    ": > empty.sh; sbatch empty.sh": "Batch script is empty",
    "sbatch --mam=4G a.sh x y": None,
    "sbatch --nonsense a.sh < /dev/null": "was taken to have the value 'a.sh': there is no script",
    "sbatch -d afterwards:1 a.sh": "dependency problem",
    "sbatch --array=1- a.sh": "lists no elements",
    "sbatch --time=12hours a.sh": "time",
    "sbatch --mem=1.5G a.sh": "'1.5G' is no memory size",
    "sbatch -n 0 a.sh": "--ntasks=0",
    "sbatch --mem=1G --mem-per-cpu=1G a.sh": "cannot be together",
    "sbatch --wrap true a.sh": "--wrap",
}


@pytest.mark.parametrize(
    "text", ["sbatch -n1 : -n2 a.sh", "printf '#!/bin/sh\\n#SBATCH hetjob\\n' > het.sh; sbatch het.sh"]
)
def test_a_driver_with_a_heterogeneous_job_is_refused(place, text):
    """Since sbatch would take it: without it the workflow would be another."""
    for more in ("", "; sbatch b.sh"):
        with pytest.raises(InputError, match="is a heterogeneous job, of whose components Slurm makes a job each"):
            flow_of(recorded(f"{text}{more}"))


@pytest.mark.full
@pytest.mark.parametrize("text", [text for text, why in REFUSED.items() if why])
def test_what_sbatch_refuses_is_refused_and_said(place, text):
    """The driver sees that; where it submits nothing else, so does the user."""
    done = recorded(f"{text} || echo failed > seen")
    assert done.made.contents[place / "seen"] == b"failed\n"
    with pytest.raises(InputError, match="submitted nothing: sbatch refused"):
        flow_of(done)
    assert REFUSED[text] in done.refused[0][1]
    _, notes, _ = flow_of(recorded(f"{text}; sbatch a.sh"))
    assert any("sbatch refused it" in note for note in notes)


def test_a_driver_that_is_a_batch_job_is_the_first_stage(place):
    """In its stage what it submits is not submitted again; what waits for it, or for nothing, follows it."""
    text = "#!/bin/sh\n#SBATCH -n 4 -t 20 -J first\necho work > work.txt\n"
    text += "sbatch -d afterok:$SLURM_JOB_ID a.sh\nsbatch b.sh\n"
    done = recorded(text)
    stages, _, made = flow_of(done)
    assert edges(stages) == {"first": (), "a": ("first",), "b": ("first",)}
    assert stages["first"].cores == 4
    keep(done, made, Path("flow.recorded"))
    ran = subprocess.run(["/bin/sh", "-c", stages["first"].command], check=True, capture_output=True, text=True)
    assert Path("work.txt").read_text() == "work\n"
    assert ran.stdout.count("Submitted batch job") == 2


def test_a_driver_that_is_a_batch_job_has_the_variables_that_its_options_say(place):
    text = "#!/bin/sh\n#SBATCH -N 2 -n 8 -c 3 -J first\nsbatch -n $SLURM_NTASKS -c $SLURM_CPUS_PER_TASK a.sh "
    text += "$SLURM_JOB_NAME.$SLURM_NNODES.$SLURM_CPUS_ON_NODE"
    stages, _, _ = flow_of(recorded(text))
    assert stages["a"].request == ("--ntasks=8", "--cpus-per-task=3")
    assert stages["a"].command.endswith(" first.2.12")


def test_a_driver_that_is_an_array_of_jobs_is_refused(place):
    with pytest.raises(InputError, match="submits jobs in each element of an array"):
        recorded("#!/bin/sh\n#SBATCH -a 1-3\nsbatch a.sh $SLURM_ARRAY_TASK_ID")


def test_a_driver_that_is_a_batch_job_is_recorded_alone(place):
    Path("job.sh").write_text("#!/bin/sh\n#SBATCH -n 4\nsbatch a.sh\n")
    with pytest.raises(InputError, match="is a batch job itself, and is recorded alone"):
        record(["sh", "job.sh"], ["sh", "-c", "sbatch b.sh"])


def test_a_batch_job_that_is_started_in_a_session_is_a_stage(place):
    """Of bash it knows its own number; what it submits follows it, what is submitted beside does not."""
    recorded("sbatch a.sh")
    Path("first.sh").write_text(
        "#!/bin/bash\n#SBATCH -n 4 -t 20 -J first\necho $1 > work.txt\n"
        "sbatch -d afterok:$SLURM_JOB_ID a.sh $SLURM_NTASKS\nsbatch b.sh\n"
    )
    Path("second.py").write_text(
        f"#!{sys.executable}\n#SBATCH -t 2\nimport subprocess; subprocess.run(['sbatch', '-J', 'of_python', 'a.sh'])\n"
    )
    for one in ("first.sh", "second.py"):
        Path(one).chmod(0o755)
    done = record(["bash", "-c", "export V=1; ./first.sh s1; sbatch c.sh; ./second.py; true"], is_session=True)
    stages, notes, made = flow_of(done)
    stages.pop("driver-files")
    assert {name: set(stage.after) - {"driver-files"} for name, stage in stages.items()} == {
        "first": set(), "a": {"first"}, "b": {"first"}, "c": set(), "second.py": set(), "of_python": {"second.py"},
    }  # fmt: skip
    assert stages["a"].command == "exec /bin/sh a.sh 4"
    assert dict(stages["b"].environment) == {"V": "1"}
    assert (stages["first"].request, stages["first"].walltime_s) == (("--ntasks=4",), 1200.0)
    [note] = [note for note in notes if "did not know its own number" in note]
    assert note.startswith("./second.py")
    keep(done, made, Path("flow.recorded"))
    ran = subprocess.run(["/bin/sh", "-c", stages["first"].command], check=True, capture_output=True, text=True)
    assert (Path("work.txt").read_text(), ran.stdout.count("Submitted")) == ("s1\n", 2)


def test_an_array_that_submits_is_refused_in_a_session_too(place):
    recorded("sbatch a.sh")
    Path("many.sh").write_text("#!/bin/bash\n#SBATCH -a 1-3\nsbatch a.sh\n")
    with pytest.raises(InputError, match="in each element of an array"):
        flow_of(record(["bash", "-c", "bash many.sh; true"], is_session=True))


def test_numbers_that_leak_are_named(place):
    """In arguments, in scripts and in files, which are left out."""
    text = "j=$(sbatch --parsable a.sh)\nsbatch b.sh $j\necho $j > number.txt\nexport LAST=$j\nsbatch c.sh\n"
    stages, notes, made = flow_of(recorded(text))
    assert "driver-files" not in stages
    assert not made.files
    for said in ("its arguments have the number of a.sh", "$LAST has the number of a.sh", "number.txt"):
        assert any(said in note for note in notes), said


def test_numbers_that_leak_into_names_are_named(place):
    """Of options, files and folders; that of the driver's own job as well."""
    text = "j=$(sbatch --parsable a.sh)\nmkdir run_$j in_$j; touch in_$j/x\nsbatch -D run_$j b.sh\n"
    text += "sbatch -J after_$j c.sh; cd in_$j; sbatch ../a.sh"
    _, notes, _ = flow_of(recorded(text))
    for said in ("--chdir has the number of a.sh", "--job-name has", "run_59371801", "/x", "its folder has the number"):
        assert any(said in note for note in notes), said
    _, notes, _ = flow_of(recorded("#!/bin/sh\n#SBATCH -n 1\nsbatch a.sh out.$SLURM_JOB_ID"))
    assert any("its arguments have the number of submit.sh" in note for note in notes)


@pytest.mark.parametrize("way", ["$d", "$d/../${d##*/}", "$d/sub/../../${d##*/}"])
def test_temporary_folders_that_a_job_needs_are_named(place, way):
    text = f"d=$(mktemp -d /var/tmp/XXXXXX); mkdir $d/sub; echo 1 > $d/in; sbatch a.sh {way}/in"
    _, notes, _ = flow_of(recorded(text))
    assert any("in a folder for temporary files" in note for note in notes)


def test_functions_that_bash_exports_and_variables_that_are_taken_away_are_so_for_the_job(place, monkeypatch):
    """As sbatch passes them on; by a command, since no key of a stage says it."""
    monkeypatch.setenv("MODE", "1")
    monkeypatch.setenv("SLURM_NTASKS", "9")
    Path("f.sh").write_text('#!/bin/bash\n#SBATCH -t 1\nf "$1"; echo ${MODE-gone}\n')
    text = "f() { echo \"it's $1\"; }; export -f f; unset MODE SLURM_NTASKS\nsbatch -J x f.sh 'a  b'\nsbatch f.sh\n"
    text += "sbatch -J w --wrap 'echo ${MODE-gone}'\nmkdir sub; cd sub; sbatch -J there ../f.sh y\ncd ..\n"
    text += "sbatch --export=NONE -J none f.sh; p() { curl https://u:abcdefgh@h/; }; export -f p; sbatch -J p f.sh"
    stages, notes, _ = flow_of(recorded(text))
    printed = {"x": "it's a  b\ngone\n", "f": "it's \ngone\n", "w": "gone\n", "there": "it's y\ngone\n"}
    Path("sub").mkdir()
    for name, expected in printed.items():
        ran = subprocess.run(["/bin/sh", "-c", stages[name].command], check=True, capture_output=True, text=True)
        assert ran.stdout == expected
        assert "SLURM_NTASKS" not in stages[name].command
    assert stages["none"].script
    assert any("the function p, which has what looks like a password" in note for note in notes)
    assert "abcdefgh" not in str(stages)


@pytest.mark.parametrize(
    "call", ["sbatch a.sh $'\\xff'", "cp a.sh $'\\xff.sh'; sbatch $'\\xff.sh'", "sbatch -J $'\\xff' a.sh"]
)
def test_bytes_that_no_workflow_can_say_are_refused(place, call):
    with pytest.raises(InputError, match="is no UTF-8"):
        flow_of(recorded(call))


def test_bytes_that_need_not_be_said_are_kept(place):
    """Of scripts, and of what lies beside them."""
    text = "echo 1 > $'\\xff'; mkdir $'d\\xff'; export X=$'\\xff'\n"
    text += "printf '#!/bin/sh\\n#SBATCH -t 1\\n# \\351\\necho hi > hi.txt\\n' | sbatch -J latin"
    done = recorded(text)
    stages, notes, made = flow_of(done)
    assert any("$X is no UTF-8" in note for note in notes)
    keep(done, made, Path("flow.recorded"))
    file = Path("flow.toml")
    file.write_text(write_workflow(made.imported.workflow, made.imported.scripts))
    subprocess.run(["/bin/sh", "-c", load_workflow(file).stages["latin"].command], check=True)
    assert Path("hi.txt").read_text() == "hi\n"
    assert any("folder whose name" in note.encode().decode() for note in notes)
    subprocess.run(["/bin/sh", "-c", stages["driver-files"].command], check=True)
    assert Path(os.fsdecode(b"\xff")).read_text() == "1\n"


def test_nothing_of_an_earlier_recording_is_kept(place, tmp_path):
    """A run would put it in place, too; nor does anything go where a link leads."""
    kept = Path("flow.recorded")
    for text in ("echo 1 > old.txt; sbatch a.sh", "echo 1 > new.txt; sbatch a.sh"):
        done = recorded(text)
        keep(done, flow_of(done)[2], kept)
    assert [path.name for path in kept.glob("files/*")] == ["new.txt"]
    shutil.rmtree(kept / "files")
    (tmp_path / "elsewhere").mkdir()
    (kept / "files").symlink_to(tmp_path / "elsewhere")
    keep(done, flow_of(done)[2], kept)
    assert not list((tmp_path / "elsewhere").iterdir())
    shutil.rmtree(kept)
    kept.mkdir()
    (kept / "files").write_text("mine")
    with pytest.raises(InputError, match="is not of a recording"):
        keep(done, flow_of(done)[2], kept)
    assert (kept / "files").read_text() == "mine"


def test_what_would_be_done_on_another_machine_is_named(place):
    """It is not done; jobs that it submits there are missing."""
    stages, notes, _ = flow_of(
        recorded('ssh -q login "cd x && sbatch b.sh"\nssh data true\nsbatch a.sh', files=("a.sh",))
    )
    assert list(stages) == ["a"]
    assert any("ssh -q login cd x && sbatch b.sh, and what that submits is missing" in note for note in notes)
    assert any("ssh data true" in note for note in notes)


def test_a_script_that_asks_by_which_name_it_runs_is_named(place):
    """A driver that submits itself tells the job by the name that Slurm gives to what it runs."""
    text = 'if [ "$(basename "$0")" = slurm_script ]; then echo job; else sbatch "$0" x; fi'
    _, notes, _ = flow_of(recorded(text, files=()))
    assert any("slurm_script" in note for note in notes)


def test_what_was_cancelled_is_left_out(place):
    stages, notes, _ = flow_of(
        recorded("j=$(sbatch --parsable a.sh); sbatch b.sh; scancel $j; sbatch -d afterany:$j c.sh")
    )
    assert edges(stages) == {"b": (), "c": ()}
    assert any("the driver cancelled" in note for note in notes)


def test_scancel_ends_only_what_slurm_would(place):
    """No job that has ended, no whole array for an element, none by a signal or in another state."""
    text = "j=$(sbatch --parsable a.sh); trap 'scancel $j' EXIT\nfor i in 1 2 3; do squeue -j $j; sleep 5; done\n"
    text += "k=$(sbatch --parsable --array=1-5 b.sh); scancel ${k}_3\nl=$(sbatch --parsable c.sh)\n"
    text += "scancel -s USR1 $l; scancel --signal=USR2 $l; scancel --state=RUNNING -u $(id -un); scancel -u nobody"
    stages, notes, _ = flow_of(recorded(text))
    assert set(stages) == {"a", "b", "c"}
    assert any("cancels a part of a job" in note for note in notes)
    assert any("sends a signal" in note for note in notes)


FORMS = {
    "squeue -h -j $j -O JobID:.12,State:.10": "    59371801   PENDING",
    "squeue --nohead --job=$j --form=%A": "59371801",
    "SQUEUE_FORMAT=%i:%t squeue -h": "59371801:PD",
    "squeue -hl | tr -s ' ' | cut -d' ' -f6": "PENDING",
    "LOGNAME=other squeue -h -u $(id -un) -o %i": "59371801",
    "SACCT_FORMAT=jobid%-9,state sacct -nXP": "59371801|PENDING",
    "cd $PWD; mkdir x; cd x; rmdir ../x; squeue -ho %i 2> /dev/null": "59371801",
    "squeue -h <&- >&- 2>&-; echo $?": "0",
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_in_which_people_ask(place, monkeypatch, form):
    monkeypatch.setenv("LOGNAME", "somebody")
    done = recorded(f"j=$(sbatch --parsable a.sh)\n({form}) > seen 2>&1")
    assert done.made.contents[place / "seen"].decode() == f"{FORMS[form]}\n"


@pytest.mark.parametrize(
    "call",
    ["scontrol wait_job $j", "squeue --json", "sacct --json", "scontrol requeue $j", "squeue -O jobid,state,x:y"],
)
def test_what_is_not_answered_is_said(place, call):
    """A driver goes on without; its user is to know."""
    _, notes, _ = flow_of(recorded(f"j=$(sbatch --parsable a.sh)\n{call}\ntrue"))
    assert notes


def test_what_is_changed_by_scontrol_counts(place):
    text = "j=$(sbatch --parsable a.sh); k=$(sbatch --parsable -H b.sh)\n"
    text += "scontrol update jobid=$k dependency=afterok:$j TimeLimit=30\nscontrol release $k"
    stages, notes, _ = flow_of(recorded(text))
    assert edges(stages) == {"a": (), "b": ("a",)}
    assert stages["b"].walltime_s == 1800
    assert not any("held" in note for note in notes)


ENDS = {
    "exit 3": "submitted nothing, and ended with exit code 3",
    "sleep 1; while :; do :; done": "submitted nothing within 1s, and was ended",
    "srun hostname": "submitted nothing",
    "echo hello": "submitted nothing",
    "read answer; sbatch $answer": "sbatch refused",
}


@pytest.mark.parametrize("text", ENDS)
def test_a_driver_that_submits_nothing_is_refused_with_the_reason(place, text):
    limit_s = 1.0 if "while" in text else 60.0
    with pytest.raises(InputError, match=ENDS[text]) as error:
        flow_of(recorded(f"exec < /dev/null\n{text}", limit_s=limit_s))
    assert error.value.hint


def test_what_was_submitted_until_the_limit_is_kept(place):
    stages, notes, _ = flow_of(recorded("sbatch a.sh\nwhile :; do :; done", limit_s=5.0))
    assert list(stages) == ["a"]
    assert any("was ended after" in note for note in notes)
    assert not any("in the background" in note for note in notes)  # the driver itself was ended, and no other


def test_what_it_leaves_in_the_background_is_waited_for(place):
    stages, _, _ = flow_of(
        recorded("( for i in 1 2 3; do sleep 9; done; sbatch b.sh ) > /dev/null 2>&1 &\nsbatch a.sh\n")
    )
    assert set(stages) == {"a", "b"}


def test_sbatch_by_its_full_path_is_recorded_where_it_would_be(place):
    stages, _, _ = flow_of(recorded("PATH=/usr/bin:/bin\n/usr/bin/sbatch a.sh\nsbatch b.sh"))
    assert set(stages) == {"a", "b"}


def test_a_file_says_when_to_record_again(place):
    """By what the driver read: itself, scripts, lists in the folder where it began."""
    Path("samples.txt").write_text("s1\n")
    Path("other.txt").write_text("x\n")
    done = recorded("for s in $(cat samples.txt); do sbatch -J a_$s a.sh $s; done")
    stages, _, made = flow_of(done)
    file = Path("flow.toml")
    file.write_text(write_workflow(made.imported.workflow, made.imported.scripts))
    assert load_workflow(file).stages.keys() == stages.keys()
    keep(done, made, recorded_folder(file))
    assert changed_since(file)[0] == []
    Path("other.txt").write_text("y\n")
    assert changed_since(file)[0] == []
    Path("samples.txt").write_text("s1\ns2\n")
    assert changed_since(file) == (
        [str(place / "samples.txt")],
        "asa import scripts --record --force --out flow.toml -- ./submit.sh",
    )


def test_in_place_it_really_does_what_it_does(without_view):
    done = recorded("echo x > made.txt; sbatch a.sh", is_private=False)
    assert Path("made.txt").exists()
    assert list(flow_of(done)[0]) == ["a"]


def test_in_place_nothing_is_really_submitted(without_view):
    """Where no stand-in can be put in the place of a program."""
    with pytest.raises(InputError, match="calls /opt/slurm/bin/sbatch by its full path"):
        recorded("/opt/slurm/bin/sbatch a.sh", is_private=False)


def test_where_namespaces_are_forbidden_nothing_runs(without_view, tmp_path, monkeypatch):
    """And it is said what to do."""
    (tmp_path / "inside.py").write_text(
        "import json, os, sys\n"
        "at = os.path.join(os.path.dirname(sys.argv[1]), 'ended.json')\n"
        "json.dump({'no_view': 'unshare: Operation not permitted'}, open(at, 'w'))\n"
    )
    shutil.copy(recorder._HERE / "stand_in.py", tmp_path)
    monkeypatch.setattr(recorder, "_HERE", tmp_path)
    with pytest.raises(InputError, match=r"its own view of the files \(unshare: Operation not permitted\)") as error:
        record(["./submit.sh"])
    assert "--in-place" in error.value.hint


def test_programs_that_tell_of_the_site_are_the_real_ones(place, tmp_path, monkeypatch):
    """Asked outside of the view, where there is a network; so is sacct for jobs that were not recorded."""
    (tmp_path / "bin").mkdir()
    for name in ("sinfo", "sacct"):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\necho real {name} $*\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    done = recorded("sinfo -h > seen; sacct -j 12 >> seen; sprio 2>> seen; echo $? >> seen; sbatch a.sh")
    lines = done.made.contents[place / "seen"].decode().splitlines()
    assert lines[:2] == ["real sinfo -h", "real sacct -j 12"]
    assert shutil.which("sprio") or lines[2:] == ["sprio: command not found", "127"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_driver_that_asks_for_the_version_gets_the_site_s(place, monkeypatch, is_there):
    """It may submit by the version, as it does where it runs really."""
    found = Path("found")
    found.mkdir()
    for program in ("sbatch", "scontrol") if is_there else ():
        (found / program).write_text("#!/bin/sh\necho slurm 23.02.7\n")
        (found / program).chmod(0o755)
    rest = [one for one in os.environ["PATH"].split(":") if not Path(one, "sbatch").exists()]
    for program in ("bash", "sh", "env", "cat", "grep") if not is_there else ():  # which may be in Slurm's folder
        (found / program).symlink_to(shutil.which(program))
    monkeypatch.setenv("PATH", ":".join([str(found.absolute()), *rest]))
    done = recorded(
        "case $(sbatch --version) in 'slurm 23.02'*) sbatch a.sh;; *) sbatch b.sh;; esac; scontrol -V >v; sbatch c.sh"
    )
    assert [job.name for job in done.jobs] == ["a.sh" if is_there else "b.sh", "c.sh"]
    assert any("Slurm's version" in remark for remark in done.remarks) is not is_there


def test_what_a_shell_keeps_at_home_is_no_file_of_the_workflow(place, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    done = recorded("echo x > ~/.bash_history; PATH=$PATH:/usr/bin:$PATH sbatch a.sh")
    assert [path.name for path in done.made.temporary] == [".bash_history"]
    stages, _, made = flow_of(done)
    assert not made.files
    assert "PATH" not in dict(stages["a"].environment)


def test_what_cannot_be_started_is_said(place):
    with pytest.raises(InputError, match="cannot be started"):
        record(["./none.sh"])


@pytest.mark.parametrize(
    ("name", "else_do"), [("plain.sh", "`bash ./plain.sh`"), ("plain.py", "`python3 ./plain.py`"), ("plain", "")]
)
def test_who_gives_a_file_that_is_not_executable_is_told_how_it_runs(place, name, else_do):
    Path(name).write_text("#!/bin/sh\n")
    with pytest.raises(InputError, match="cannot be started: Permission denied") as caught:
        record([f"./{name}"])
    assert f"`chmod u+x ./{name}`" in caught.value.hint
    assert else_do in caught.value.hint


SOMEBODY = 65533
PLAIN_PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")


@pytest.mark.skipif(os.geteuid() != 0 or PLAIN_PYTHON is None, reason="files of others need root")
def test_it_can_write_where_folders_belong_to_others():
    """As on most systems: a user's folder is below others', and what is in a project's belongs to its group."""
    with tempfile.TemporaryDirectory() as place:  # others may come there, other than to pytest's
        Path(place).chmod(0o755)
        _check_writes_of_somebody(Path(place))


def _check_writes_of_somebody(place):
    work, keep = place / "project" / "of-a-colleague" / "run", place / "keep"
    for one in (work / "logs", keep / "programs"):
        one.mkdir(parents=True)
    for one, times in ((work / "jobs.log", 1), (work / "same.log", 1), (work / "large.log", 200_000)):
        one.write_text("before\n" * times)
        one.chmod(0o666)
    for one in (work, work / "logs"):
        one.chmod(0o777)
    for one in (keep, keep / "programs"):
        os.chown(one, SOMEBODY, SOMEBODY)
    shutil.copy(inside.__file__, keep / "inside.py")
    text = (
        "mkdir new && echo x > new/x && echo after >> jobs.log && echo y > logs/y && echo l >> large.log; echo z > ../z"
    )
    settings = {
        "commands": [["/bin/sh", "-c", text]], "folder": str(work), "programs": str(keep / "programs"), "limit_s": 9.0,
        "is_private": True, "has_network": False, "max_bytes": 9999, "passed_over": [],
    }  # fmt: skip
    (keep / "settings.json").write_text(json.dumps(settings))
    subprocess.run(
        [PLAIN_PYTHON, "-I", "-S", str(keep / "inside.py"), str(keep / "settings.json")],
        user=SOMEBODY, group=SOMEBODY, extra_groups=[], check=True, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    ended = json.loads((keep / "ended.json").read_text())
    if "no_view" in ended:
        pytest.skip(f"no namespaces here: {ended['no_view']}")
    assert sorted(ended["new"]) == [f"{work}/logs/y", f"{work}/new/x"]  # not ../z, which is closed to this user
    assert ended["changed"] == [f"{work}/jobs.log"]
    assert ended["fixed"] == [f"{work}/large.log"]
    assert Path(f"{keep}/made{work}/jobs.log").read_text() == "before\nafter\n"
    assert (work / "jobs.log").read_text() == "before\n"
    assert not (work / "new").exists()


@pytest.mark.parametrize(
    ("name", "first", "mode", "command"),
    [
        ("many.py", "import subprocess", 0o644, "python3 many.py"),
        ("many.py", "#!/usr/bin/env python3.12", 0o644, "python3.12 many.py"),
        ("many", "#!/bin/tcsh", 0o755, "./many"),
        ("many.pl", "use strict;", 0o755, "perl many.pl"),
        ("many", "set -e", 0o644, "bash many"),
    ],
)
def test_a_refused_driver_is_told_how_to_be_recorded(without_view, name, first, mode, command):
    """By what runs it: its first line, or its suffix."""
    Path(name).write_text(f"{first}\n")
    Path(name).chmod(mode)
    assert f"asa import scripts --record -- {command} ARGUMENTS" in to_record(Path(name))
