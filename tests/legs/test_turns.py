"""Legs as real shells: one payload at a time, each from where the one before stopped, whoever is killed."""

import os
import shutil
import signal
import subprocess
import time

import pytest
from slurm_testbed import until

from asa.continuation import Continuation
from asa.legs import Legs, Turn
from asa.outcome import JobOutcome
from asa.payload import payload_text
from asa.workflow import Stage

SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]
WARNED = Continuation.warned("USR1@3s")
COUNTS = """\
n=`cat step 2>/dev/null` || n=0
trap 'echo $n >step; echo "e$ASA_LEG" >>did; exit 85' USR1
echo "b$ASA_LEG:$n" >>did
while [ $n -lt {upto} ]; do sleep 0.2; n=$((n+1)); done
echo $n >step; echo "e$ASA_LEG" >>did
"""


class Chain:
    """Jobs that run legs of one stage, each with a folder in common."""

    def __init__(self, root, shell):
        self.root, self.shell, self.jobs = root, shell, []
        self.folder = root / "legs"
        self.legs = Legs(self.folder)

    def program(self, text):
        (self.root / "train.sh").write_text(text)

    def begin(self, leg, terms=WARNED, *, walltime_s=600.0, command="sh train.sh", latency_s="0", **what):
        stage = Stage("s", cores=1, walltime_s=walltime_s, command=command, continues=terms, **what)
        text = payload_text(stage, 1, folder=str(self.root), turn=Turn(leg, str(self.folder), walltime_s))
        job = subprocess.Popen(
            [self.shell, "-c", text], cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, env={**os.environ, "ASA_LATENCY_S": latency_s, "ASA_LEG_LOOK_S": "0.2"},
        )  # fmt: skip
        self.jobs.append(job)
        return job

    def did(self):
        path = self.root / "did"
        return path.read_text().split() if path.exists() else []

    def over(self):
        return {path.name: path.readlink().name.partition("-")[0] for path in self.folder.glob("over.*")}

    def kill(self, job):
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()


@pytest.fixture(params=SHELLS)
def chain(tmp_path, request):
    one = Chain(tmp_path, request.param)
    one.program(COUNTS.format(upto=40))
    yield one
    for job in one.jobs:
        if job.poll() is None:
            one.kill(job)


def ended(job, within_s=60):
    output, _ = job.communicate(timeout=within_s)
    return job.returncode, output


def test_the_next_leg_takes_over(chain):
    """What runs is told by a signal that reaches the program, behind whatever shells; its file is there, too."""
    first = chain.begin(1)
    until(chain.did)
    time.sleep(4.0)
    second = chain.begin(2)
    assert ended(first)[0] == JobOutcome.PART_DONE.exit_code
    assert ended(second)[0] == 0
    begins = [word for word in chain.did() if word[0] == "b"]
    assert [word.partition(":")[0] for word in begins] == ["b1", "b2"]
    assert int(begins[1].partition(":")[2]) > 10, "it goes on from what was saved"
    assert [word[:2] for word in chain.did()] == ["b1", "e1", "b2", "e2"], "never two at a time"
    assert (chain.root / "step").read_text() == "40\n"
    assert chain.over() == {"over.1": "left", "over.2": "done"}
    assert 0 <= chain.legs.standing().saves_s <= 3


def test_it_is_warned_before_its_walltime_is_over(chain):
    began_s = time.monotonic()
    assert ended(chain.begin(1, walltime_s=7.0))[0] == JobOutcome.PART_DONE.exit_code
    assert time.monotonic() - began_s > 3.0
    assert chain.over() == {"over.1": "left"}


def test_a_payload_may_look_for_the_file(chain):
    chain.program('until [ -e "$ASA_LEG_END" ]; do sleep 0.1; done; exit 85\n')
    first = chain.begin(1, Continuation.warned("USR2@3s"), command="trap : USR2; . ./train.sh")
    time.sleep(4.0)
    second = chain.begin(2, Continuation.warned("USR2@3s"), command="echo went on")
    assert ended(first)[0] == JobOutcome.PART_DONE.exit_code
    code, output = ended(second)
    assert code == 0
    assert "went on" in output


def test_who_heeds_no_warning_is_ended_and_the_next_goes_on(chain):
    """As a program does that saves its state all along. Nothing of it is left behind."""
    chain.program("while :; do sleep 0.1; date +%s.%N >>alive; done\n")
    first = chain.begin(1)
    until((chain.root / "alive").exists)
    time.sleep(4.0)
    second = chain.begin(2, command="date +%s.%N >later")
    assert ended(first)[0] == JobOutcome.PART_DONE.exit_code
    assert ended(second)[0] == 0
    time.sleep(0.5)
    last = (chain.root / "alive").read_text().rpartition("\n")[0].split()[-1]  # the end may be cut off
    assert float(last) < float((chain.root / "later").read_text())


def test_who_does_not_end_keeps_its_turn(chain, monkeypatch):
    """The next one gives up, and takes back that it wanted to go on."""
    monkeypatch.setattr("asa.legs.running._PATIENCE_S", 1)
    chain.program("trap : USR1; echo b >>did; while [ ! -e stop ]; do sleep 0.2; done\n")
    first = chain.begin(1)
    until(chain.did)
    code, output = ended(chain.begin(2))
    assert code == JobOutcome.UNYIELDING.exit_code
    assert "leg 1 did not end" in output
    assert not (chain.folder / "wanted.1").exists()
    (chain.root / "stop").touch()
    assert ended(first)[0] == 0


@pytest.mark.full
def test_a_killed_leg_is_closed_by_who_knows(chain):
    first = chain.begin(1)
    until(chain.did)
    chain.kill(first)
    second = chain.begin(2)
    time.sleep(2.0)
    assert len(chain.did()) == 1, "it may live, as far as the next one knows"
    assert chain.legs.close(1)
    assert ended(second)[0] == 0
    assert chain.over() == {"over.1": "gone", "over.2": "done"}


def test_a_leg_whose_turn_is_over_runs_nothing(chain):
    """Its job was put back into the queue, and another went on."""
    assert chain.legs.close(1)
    code, output = ended(chain.begin(1))
    assert (code, chain.did()) == (JobOutcome.PART_DONE.exit_code, [])
    assert "the next one goes on" in output


def test_a_leg_that_begins_again_makes_room_at_once_where_the_next_wants_to_go_on(chain):
    chain.folder.mkdir()
    (chain.folder / "wanted.1").touch()
    assert ended(chain.begin(1))[0] == JobOutcome.PART_DONE.exit_code
    assert (chain.did(), chain.over()) == ([], {"over.1": "left"})


def test_a_failure_is_no_end_of_a_leg(chain):
    chain.program("exit 3\n")
    assert ended(chain.begin(1))[0] == 3
    assert chain.over() == {}


def test_what_is_all_done_is_not_done_again(chain):
    chain.program("echo b >>did\n")
    assert ended(chain.begin(1))[0] == 0
    assert ended(chain.begin(2))[0] == JobOutcome.PART_DONE.exit_code
    assert chain.did() == ["b"]


def test_what_it_was_to_make_is_asked_of_the_last_leg_alone(chain):
    chain.program("exit 85\n")
    assert ended(chain.begin(1, outputs=("model",)))[0] == JobOutcome.PART_DONE.exit_code
    chain.program("exit 0\n")
    assert ended(chain.begin(2, outputs=("model",)))[0] == JobOutcome.OUTPUT_MISSING.exit_code
    assert chain.over() == {"over.1": "left"}


SHOWS = Continuation(progress=("ckpt/step*",))


@pytest.mark.parametrize("big", [False, True])
def test_two_legs_without_progress_are_a_failure(chain, big):
    """By the content of small files, by the size and time of large ones; one such leg is none."""
    (chain.root / "ckpt").mkdir()
    fill = "head -c 70000 /dev/zero" if big else "echo same"
    chain.program(f"[ $ASA_LEG -gt 2 ] || {{ {fill}; echo $ASA_LEG; }} >ckpt/step1; exit 85\n")
    assert [ended(chain.begin(leg, SHOWS))[0] for leg in (1, 2, 3)] == [JobOutcome.PART_DONE.exit_code] * 3
    code, output = ended(chain.begin(4, SHOWS))
    assert code == JobOutcome.STALLED.exit_code
    assert "ckpt/step*" in output


def test_two_legs_that_were_killed_without_progress_are_a_failure(chain):
    (chain.root / "ckpt").mkdir()
    chain.program("echo b >>did; sleep 60\n")
    for leg in (1, 2):
        job = chain.begin(leg, SHOWS)
        until(lambda leg=leg: len(chain.did()) == leg)
        chain.kill(job)
        chain.legs.close(leg)
    assert ended(chain.begin(3, SHOWS))[0] == JobOutcome.STALLED.exit_code


def test_a_folder_shows_progress_by_what_is_in_it(chain):
    (chain.root / "ckpt").mkdir()
    chain.program("echo $ASA_LEG >>ckpt/last; sleep 1.1; exit 85\n")
    terms = Continuation(progress=("ckpt",))
    assert [ended(chain.begin(leg, terms))[0] for leg in range(1, 6)] == [JobOutcome.PART_DONE.exit_code] * 5


def test_a_new_name_is_progress_though_the_content_is_the_same(chain):
    """A solver that has settled saves the same state again, at a later step."""
    terms = Continuation(progress=("ckpt/*.state",))
    command = "mkdir -p ckpt; rm -f ckpt/*; echo settled >ckpt/$ASA_LEG.state; exit 85"
    for leg in (1, 2, 3, 4):
        assert ended(chain.begin(leg, terms, command=command))[0] == JobOutcome.PART_DONE.exit_code


def test_of_what_is_no_text_name_and_size_are_shown(chain):
    (chain.root / "ckpt").mkdir()
    (chain.root / "ckpt" / "step.npy").write_bytes(bytes(range(200)))
    chain.program("exit 0\n")
    assert ended(chain.begin(1, SHOWS))[0] == 0
    assert chain.legs.standing().shown == "step.npy, 200 bytes"


def test_its_progress_is_shown(chain):
    (chain.root / "ckpt").mkdir()
    (chain.root / "ckpt" / "step").write_text("step 4200 of 9000\nmore\n")
    chain.program("exit 0\n")
    assert ended(chain.begin(1, SHOWS))[0] == 0
    assert chain.legs.standing().shown == "step 4200 of 9000"


def test_a_script_is_told_too(chain):
    script = "#!/bin/sh\n" + COUNTS.format(upto=200)
    stage = Stage("s", cores=1, walltime_s=8.0, script=script, continues=WARNED)
    text = payload_text(stage, 1, folder=str(chain.root), turn=Turn(1, str(chain.folder), 8.0))
    done = subprocess.run(
        [chain.shell, "-c", text], cwd=chain.root, env={**os.environ, "ASA_LEG_LOOK_S": "0.2"}, timeout=60, check=False
    )
    assert done.returncode == JobOutcome.PART_DONE.exit_code
    assert int((chain.root / "step").read_text()) > 5


def test_without_a_folder_it_is_one_job():
    text = payload_text(Stage("s", cores=1, command="true", continues=WARNED), 1)
    assert "asa_leg" not in text


def test_a_leg_whose_input_comes_late_is_followed_by_another(chain):
    """Looking for the input leaves alone what the leg is to end with."""
    job = chain.begin(1, Continuation(), command="exit 85", inputs=("in",), input_patience_s=30.0, latency_s="")
    time.sleep(1.2)
    (chain.root / "in").write_text("1")
    said = job.communicate(timeout=30)[0]
    assert job.returncode == JobOutcome.PART_DONE.exit_code, said
    assert "looking again" in said
