"""Names of options, and how each takes its value, by the programs of Slurm themselves."""

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from slurm_testbed import NEWEST, OLDEST

from asa.errors import InputError
from asa.importers.scripts import import_scripts
from asa.requests.directives import take_options
from asa.requests.forms import _TAKES, takes
from asa.requests.options import KNOWN
from asa.requests.together import refuse_together
from asa.requests.variables import VARIABLES

TREE = Path(os.environ["ASA_SLURM_TREES"]) / f"slurm-{NEWEST}"
CONF = """ClusterName=x
SlurmctldHost=localhost
AuthType=auth/none
GresTypes=gpu
SelectType=select/cons_tres
SlurmctldTimeout=1
MessageTimeout=1
TCPTimeout=1
NodeName=localhost
PartitionName=p Nodes=localhost
"""
ELSEWHERE = {  # names that one of both lacks, or takes otherwise
    OLDEST: {
        "consolidate-segments", "container-id", "container-type", "external", "extra", "mem-update", "oom-kill-step",
        "resources", "resv-ports", "segment", "share", "spread-segments", "stepmgr", "tres-bind", "tres-per-task",
        "workdir", "x11", "requeue",
    },
    NEWEST: {"get-user-env", "power", "resv-ports", "share", "workdir", "x11"},
}  # fmt: skip
OF_LATER = {  # values that only later releases take
    OLDEST: {("exclusive", "topo"), ("gres-flags", "multiple-tasks-per-sharing")},
}


@pytest.fixture(params=[OLDEST, NEWEST])
def asks(request, tmp_path):
    """Ask sbatch of a release what it makes of words; it ends before it would ask a controller."""
    is_newest = request.param == NEWEST
    if not (TREE / "usr/bin/sbatch").exists() if is_newest else shutil.which("sbatch") is None:
        pytest.skip(f"there is no sbatch of {request.param}")
    if is_newest and os.geteuid():
        pytest.skip("only root may run what is in a tree")
    conf = TREE / "tmp" / f"asa-{os.getpid()}.conf" if is_newest else tmp_path / "slurm.conf"
    conf.write_text(CONF)
    command = ["chroot", str(TREE), "sbatch"] if is_newest else ["sbatch"]
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "SLURM_CONF": f"/tmp/{conf.name}" if is_newest else str(conf)}

    def ask(*words, script=""):
        done = subprocess.run(
            [*command, *words],
            env=env,
            input=script,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.stderr

    yield request.param, ask
    conf.unlink()


def test_each_name_is_known_and_takes_its_value_so(asks):
    """A name that sbatch does not know ends it, and it says where a value is missing, or one too many."""
    release, ask = asks
    for name in sorted(KNOWN.keys() - ELSEWHERE[release]):
        told = ask(f"--{name}=x", "--no-such-option")
        assert f"unrecognized option '--{name}" not in told, name
        assert ("doesn't allow an argument" in told) == (KNOWN[name].takes == "-"), name
        told = ask(f"--{name}")
        assert ("requires an argument" in told) == (KNOWN[name].takes == "="), name


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("part", "partition"), ("tasks-per", "ntasks-per-node"), ("cpus-per-t", "cpus-per-task"), ("job", "job-name"),
        ("depend", "dependency"), ("mem-per-c", "mem-per-cpu"), ("nodel", "nodelist"),
    ],
)  # fmt: skip
def test_a_name_may_be_shortened(asks, short, whole):
    assert f"{whole.removeprefix('n')}' requires" in asks[1](f"--{short}").replace("--n", "--")
    [found], rest = take_options([f"--{short}=4"], "a.sh")
    assert (found.name, rest) == (whole, [])


VALUES = {
    "mem": ("1G", "1.5G", "100", "0", "1T", "1P", "4GB", "4g", "1e3", "-1", "G", "100K", "1000MiB", "1M "),
    "mem-per-cpu": ("1G", "1.5G", "0", "2000", "2GB", "x"),
    "mem-per-gpu": ("1G", "1.5G"),
    "time": (
        "10", "10:00", "1:00:00", "1-0", "1-00:00:00", "1-12:30", "1-", "0", "00:00:00", "-1", "infinite", "UNLIMITED",
        "12hours", "1h", "60m", "1.5", "1:2:3:4", "x",
    ),
    "nodes": ("2", "2-4", "+2", "2k", "4-2", "2-", "x", "2-4-6"),
    "ntasks": ("4", "0", "-1", "x", "4.5"),
    "cpus-per-task": ("4", "0", "-1", "x"),
    "gpus": ("1", "0", "a100:2", "a100"),
    "gpus-per-task": ("0", "1", "a100:2"),
    "gpus-per-node": ("0", "1", "a100:2"),
}  # fmt: skip


PASSED = {  # values that asa reads no further
    "acctg-freq": ("30", "task=30,energy=5", "x=3", "task=", "yes"),
    "begin": (
        "now", "now+1hour", "now+60", "16:00", "4:00pm", "tomorrow", "2030-01-20T12:34:00", "01/20/30", "0120",
        "midnight", "x", "4pm", "now+1h", "monday", "25:00", "2030-13-01", "1-2", "2030-01-20T12:34:00Z",
    ),
    "cores-per-socket": ("2", "0", "x", "2-4"),
    "cpu-freq": ("low", "high", "2000000", "low-high:Performance", "OnDemand", "x", "low-", "high:OnDemand"),
    "deadline": ("now+1hour", "2030-01-20", "10"),
    "delay-boot": ("10", "1:00", "5m"),
    "distribution": (
        "block", "block:cyclic", "*:fcyclic", "cyclic,Pack", "plane=4", "arbitrary", "plane", "x", "block:x",
    ),
    "exclusive": ("user", "mcs", "topo", "yes"),
    "extra-node-info": ("2", "2:4:1", "2-4:*", "x:2"),
    "gpu-bind": ("closest", "single:2", "map_gpu:0,1", "none", "verbose,closest", "x", "single", "map_gpu:x"),
    "gpu-freq": ("high", "medium,memory=low", "1000", "verbose", "x", "HIGH", "memory="),
    "gres-flags": ("enforce-binding", "disable-binding", "multiple-tasks-per-sharing", "x"),
    "kill-on-invalid-dep": ("yes", "no", "y"),
    "mail-type": ("END", "end,fail", "ALL", "TIME_LIMIT_90", "x", "success", "", "END FAIL", "start,finish"),
    "mem-bind": ("local", "rank", "map_mem:0,1", "verbose,none", "x", "map_mem:"),
    "mem-update": ("10@5", "10@5:00", "10", "1G@5", "10@x"),
    "no-kill": ("off", "x"),
    "ntasks-per-core": ("1", "0", "2k"),
    "oom-kill-step": ("0", "1", "2"),
    "open-mode": ("append", "truncate", "a", "w"),
    "priority": ("5", "TOP", "-5", "4294967294"),
    "profile": ("all", "task,energy", "x"),
    "requeue": ("expedite", "x"),
    "segment": ("4", "x"),
    "signal": (
        "USR1@60", "B:SIGTERM@120", "10", "R:usr2", "x@y", "x", "USR1@", "USR1@x", "USR1@99999", "@60", "RTMIN", "0",
    ),
    "sockets-per-node": ("2", "2:4"),
    "switches": ("1", "2@1:00:00", "0", "x", "@10"),
    "thread-spec": ("1", "0"),
    "threads-per-core": ("2", "-1"),
    "time-min": ("1:00", "1-", "12h"),
    "tmp": ("1G", "10GB", "1.5G"),
    "wait-all-nodes": ("0", "1", "2"),
}  # fmt: skip
WITH = {
    "mem-per-gpu": "--gpus=1",
    "gpus-per-task": "-n 1",
    "distribution": "-w localhost",
}  # without which it is refused
ASKED = [(name, value) for values in (VALUES, PASSED) for name, listed in values.items() for value in listed]


@pytest.mark.full
@pytest.mark.parametrize(("name", "value"), ASKED)
def test_a_value_is_taken_if_sbatch_takes_it(asks, tmp_path, name, value):
    """By sbatch alone: what the controller refuses, nobody knows before."""
    release, ask = asks
    said = ask(f"--{name}={value}")
    is_known = name not in ELSEWHERE[release] and (name, value) not in OF_LATER.get(release, ())
    is_taken = said.strip().endswith("Batch script is empty!") and said.count("error") == 1
    script = tmp_path / "s.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH -t 10\n#SBATCH '--{name}={value}' {WITH.get(name, '')}\necho hi\n")
    try:
        import_scripts([script])
    except InputError:
        assert not is_taken, said
    else:
        assert is_taken or not is_known, said


def test_each_option_whose_value_is_looked_at_is_asked_about():
    assert _TAKES.keys() - VALUES.keys() - PASSED.keys() == {
        "core-spec", "get-user-env", "ntasks-per-socket", "ntasks-per-tres", "power", "resv-ports",
    }  # fmt: skip


def test_no_value_that_sbatch_takes_is_refused(asks):
    """Values like those above, changed at random: whatever a release takes passes."""
    release, ask = asks
    draw = random.Random(release)
    for name in sorted(PASSED.keys() - ELSEWHERE[release] - {"mem-bind", "acctg-freq"}):
        for value in draw.sample(PASSED[name], min(3, len(PASSED[name]))):
            at = draw.randrange(len(value) + 1)
            changed = value[:at] + draw.choice("0159:@,*xsP") + value[at + draw.randrange(2) :]
            said = ask(f"--{name}={changed}")
            if said.strip().endswith("Batch script is empty!") and said.count("error") == 1:
                assert takes(name, changed), (name, changed)


TOGETHER = (
    "--mem=4G --mem-per-cpu=1G", "--mem=4G --mem-per-gpu=1G -G 1", "--cpus-per-gpu=2 -c 2 -G 1", "-S 1 --thread-spec=1",
    "--ntasks-per-gpu=2 -G 2 --ntasks-per-node=2", "--ntasks-per-gpu=2 -G 2 --gpus-per-task=1 -n 4", "--mem-per-gpu=1G",
    "--mem-per-gpu=1G --gres=nvme:1", "--gpus-per-task=1", "--gpus-per-task=1 --gres=gpu:2", "--ntasks-per-gpu=2",
    "--gpus-per-socket=1", "-m arbitrary", "-N 4 -G 2", "-G 4 --gpus-per-node=3", "-G 4 --gpus-per-node=2 -N 3",
    "-G 3 --gpus-per-task=2", "-G 4 --gpus-per-task=2 -n 3",
)  # fmt: skip
APART = (
    "-N 2", "-N 4", "-N 2-3", "-n 1", "-n 2", "-n 4", "--ntasks-per-node=2", "-G 0", "-G 2", "-G 3", "--gpus=a100:2",
    "--gpus-per-node=1", "--gpus-per-node=2", "--gpus-per-task=1", "--gpus-per-task=0", "--gpus-per-socket=1",
    "--sockets-per-node=2", "-B 2", "--gres=gpu:1", "--gres=gpu:0", "--gres=gpu:a100:1", "--mem=1G", "--mem-per-cpu=1G",
    "--mem-per-gpu=1G", "--mem-per-gpu=0", "--ntasks-per-gpu=2", "--ntasks-per-tres=2", "--cpus-per-gpu=2", "-c 2",
    "-S 1", "--thread-spec=1", "-m arbitrary", "-w localhost", "--exclusive", "--oversubscribe", "--mincpus=4",
)  # fmt: skip


def is_taken(lines):
    given = {option.name: option for option in take_options(lines.split(), "a.sh")[0]}
    try:
        refuse_together(given)
    except InputError:
        return False
    return True


@pytest.mark.parametrize("lines", TOGETHER)
def test_options_that_end_sbatch_together_are_refused(asks, tmp_path, lines):
    said = asks[1](script=f"#!/bin/bash\n#SBATCH {lines}\necho hi\n")
    assert "Unable to contact" not in said
    assert "error" in said or "fatal" in said
    script = tmp_path / "s.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH -t 10 {lines}\necho hi\n")
    with pytest.raises(InputError) as caught:
        import_scripts([script])
    assert caught.value.where == f"{script}:2"


def test_options_that_sbatch_takes_together_are_taken(asks):
    release, ask = asks
    if release == NEWEST:
        pytest.skip("it waits a second for a controller before it ends")
    draw = random.Random(7)
    for _ in range(150):
        lines = " ".join(draw.sample(APART, draw.randrange(2, 6)))
        if not is_taken(lines):
            assert "Unable to contact" not in ask(*lines.split(), script="#!/bin/bash\necho hi\n"), lines


def test_each_variable_that_sbatch_reads_is_known(asks):
    """By the names that are in the program."""
    release, _ = asks
    program = TREE / "usr/bin/sbatch" if release == NEWEST else Path(shutil.which("sbatch"))
    names = {name.decode() for name in re.findall(rb"SBATCH_[A-Z0-9_]+(?=\0)", program.read_bytes())}
    assert len(names) > 50
    assert names - set(VARIABLES.values()) == {"SBATCH_DEBUG", "SBATCH_WAIT4SWITCH"}


def test_a_variable_counts_more_than_a_script_and_less_than_a_command_line(tmp_path):
    """As sbatch's manual has it."""
    script, driver = tmp_path / "a.sh", tmp_path / "run.sh"
    script.write_text("#!/bin/bash\n#SBATCH -t 10 -A mine -p small -q low\necho hi\n")
    driver.write_text(
        "#!/bin/bash\nexport SBATCH_ACCOUNT=ours\nSBATCH_PARTITION=big SBATCH_TIMELIMIT=30 sbatch -p wide a.sh\n"
    )
    [stage] = import_scripts([driver]).workflow.stages.values()
    assert (stage.account, stage.partition, stage.walltime_s) == ("ours", "wide", 1800)
    assert stage.options == ("--qos=low",)
    script.write_text("#!/bin/bash\n#SBATCH -t 10 --mem-per-cpu=1G\necho hi\n")
    driver.write_text("#!/bin/bash\nSBATCH_MEM_PER_NODE=9G sbatch a.sh\n")  # no effect on what is said otherwise
    [stage] = import_scripts([driver]).workflow.stages.values()
    assert stage.request == ("--mem-per-cpu=1G",)
    driver.write_text("#!/bin/bash\nSBATCH_THREADS_PER_CORE=2 sbatch --hint=compute_bound a.sh\n")
    [stage] = import_scripts([driver]).workflow.stages.values()
    assert stage.options[-1] == "--hint=compute_bound"


@pytest.mark.parametrize(
    ("value", "elements", "at_once"),
    [
        ("[0-9]", "0-9", 0), ("1-10%0", "1-10", 0), ("[1,2]%3", "1-2", 3), ("1-10%", "1-10", 0), ("0-9%-1", "0-9", 0),
        ("[1-3", "1-3", 0), ("1-3%5%2", "1-3", 5), ("'1, 2'", "1-2", 0),
    ],
)  # fmt: skip
def test_an_array_is_what_a_controller_makes_of_it(tmp_path, value, elements, at_once):
    """As controllers of 22.05 and 26.05 showed it."""
    script = tmp_path / "s.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH -t 10\n#SBATCH --array={value}\necho hi\n")
    [stage] = import_scripts([script]).workflow.stages.values()
    assert (str(stage.array.elements), stage.array.at_once) == (elements, at_once)


@pytest.mark.parametrize("value", ["1-", "5-1", "a", "1:3", "1-4:0"])
def test_an_array_that_a_controller_refuses_is_refused(tmp_path, value):
    script = tmp_path / "s.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH -t 10\n#SBATCH --array={value}\necho hi\n")
    with pytest.raises(InputError):
        import_scripts([script])
