"""Slurm through its commands, without Slurm: their output, and their failures."""

import os
import re
import shlex
import shutil
import signal
import stat
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from asa.backends.slurm.commands import CommandLink, Done, process
from asa.backends.slurm.commands.reading import QueueFormat, RecordFormat
from asa.backends.slurm.facility import SlurmCommands
from asa.backends.slurm.link import SlurmJob
from hypothesis import given, settings
from hypothesis import strategies as st
from slurm_fake_link import cancel, own
from slurm_testbed import until

from asa.backend import JobSpec
from asa.errors import (
    AccessError,
    AsaError,
    BackendError,
    InputError,
    JobNotFoundError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
    UnavailableError,
)

JOB = SlurmJob("stage.token", "#!/bin/sh\ntrue\n", "/home/ada", 4, 3600.0, "/home/ada/out", "/home/ada/err")
NOW = 1_790_000_000


def says(returncode=0, stdout="", stderr=""):
    """Make a link whose commands all end in one way."""
    return CommandLink(run=lambda *_: Done(returncode, stdout, stderr))


def raises_(error):
    def run(*_):
        raise error

    return CommandLink(run=run)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Return a function that puts a program of this name and text first in the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("HERE", str(tmp_path))

    def put(name, text):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return put


# --- what squeue prints ---------------------------------------------------------------------------------------------

FIELDS = {
    "JobArrayID": "7", "UserName": "ada", "State": "RUNNING", "Reason": "None", "SubmitTime": "100",
    "EligibleTime": "110", "AccrueTime": "110", "StartTime": "120", "EndTime": "3720", "TimeLimit": "1:00:00",
    "NumCPUs": "4", "NumNodes": "1", "NodeList": "n1", "Partition": "long", "exit_code": "0:0", "RestartCnt": "0",
    "Dependency": "(null)",
}  # fmt: skip


def squeue(mark, *, job_id="7", name="x", comment="(null)", **changes):
    """Print one job as squeue does."""
    told = "".join(f"{value}|" for value in (FIELDS | changes).values())
    return f"{job_id}{mark}{told}{name}{mark}{comment}{mark}\n"


def queued(**changes):
    (record,) = QueueFormat("@").read(squeue("@", **changes))
    return record


def test_the_format_asks_for_what_is_read():
    option = QueueFormat("@").option
    names = [field.split(":")[0] for field in option.split(",")]
    assert names == ["JobID", *FIELDS, "Name", "Comment"]
    assert all(field.split(":")[1] in {"0|", "0@"} for field in option.split(","))


def test_a_running_job():
    record = queued()
    assert (record.job_id, record.user, record.states, record.reason) == ("7", "ada", ("RUNNING",), "")
    assert (record.submit_s, record.eligible_s, record.accrue_s, record.start_s) == (100, 110, 110, 120)
    assert (record.end_s, record.expected_start_s, record.limit_s) == (None, None, 3600)
    assert (record.cores, record.nodes, record.partition, record.exit_code) == (4, 1, "long", None)
    assert (record.dependency, record.comment, record.restarts, record.is_array) == ("", "", 0, False)


@pytest.mark.parametrize("state", ["PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"])
def test_what_is_not_running_has_no_start_but_an_expectation(state):
    record = queued(State=state, NodeList="")
    assert (record.start_s, record.end_s, record.expected_start_s) == (None, None, 120)
    assert queued(State=state, StartTime="N/A").expected_start_s is None


@pytest.mark.parametrize(
    ("told", "state", "exit_code", "killed_by"),
    [
        ("0:0", "COMPLETED", 0, None),
        ("3:0", "FAILED", 3, None),
        ("0:15", "CANCELLED", None, 15),
        ("0", "COMPLETED", 0, None),
        ("768", "FAILED", 3, None),
        ("15", "FAILED", None, 15),
        ("137", "FAILED", None, 9),  # with a core dump
        ("0:0", "TIMEOUT", None, None),
        ("", "FAILED", None, None),
        ("?:?", "FAILED", None, None),
        ("1:0", "COMPLETING", None, None),
    ],
)
def test_exit_codes_of_both_versions(told, state, exit_code, killed_by):
    record = queued(State=state, exit_code=told)
    assert (record.exit_code, record.signal, record.end_s) == (exit_code, killed_by, 3720)


def test_a_job_that_was_cancelled_while_it_waited_has_no_start():
    record = queued(State="CANCELLED", NodeList="", StartTime="3720")
    assert (record.start_s, record.end_s, record.exit_code) == (None, 3720, None)
    assert queued(State="CANCELLED", StartTime="3720").start_s == 3720


@pytest.mark.parametrize(
    ("told", "limit_s"),
    [("10:00", 600), ("7-00:00:00", 604800), ("UNLIMITED", None), ("NOT_SET", None), ("Partition_Limit", None)],
)
def test_time_limits(told, limit_s):
    assert queued(TimeLimit=told).limit_s == limit_s


def test_numbers_in_ranges_and_in_thousands():
    record = queued(NumCPUs="2K", NumNodes="2-4", RestartCnt="12", State="PENDING")
    assert (record.cores, record.nodes, record.restarts) == (2048, 2, 12)
    assert queued(NumCPUs="", NumNodes="?").cores == 1


def test_an_unknown_state_is_passed_on_behind_one_that_its_times_tell():
    assert queued(State="Hibernating", EndTime="N/A").states == ("RUNNING", "HIBERNATING")
    assert queued(State="Hibernating", NodeList="").states == ("PENDING", "HIBERNATING")


def test_an_array_is_one():
    assert queued(JobArrayID="7_[1-3%2]").is_array
    assert not queued(JobArrayID="7_1").is_array


@given(
    st.lists(
        st.tuples(
            st.integers(1, 10**9).map(str),
            st.text(st.characters(exclude_characters="@", exclude_categories=("Cs",))),
            st.text(st.characters(exclude_characters="@", exclude_categories=("Cs",)), min_size=1),
        )
    ),
    st.sampled_from(["", "Last login: today\n", "12|34\n"]),
)
def test_names_and_comments_may_be_anything(jobs, noise):
    printed = noise + "".join(squeue("@", job_id=job_id, name=name, comment=text) for job_id, name, text in jobs)
    told = list(QueueFormat("@").read(printed))
    assert [(one.job_id, one.name, one.user) for one in told] == [(job_id, name, "ada") for job_id, name, _ in jobs]
    nothing = {"(null)", "N/A", "None", "NONE", "Unknown"}
    assert [one.comment for one in told] == ["" if text in nothing else text for *_, text in jobs]


@given(st.text())
def test_noise_is_never_an_error(printed):
    assert list(QueueFormat("|").read(printed)) == []
    assert RecordFormat("|").read(printed) == []
    assert list(QueueFormat("@").read(squeue("@", SubmitTime="N/A"))) == []


def test_every_call_has_a_mark_of_its_own():
    assert QueueFormat().option != QueueFormat().option


# --- what sacct prints ----------------------------------------------------------------------------------------------

RECORD = {
    "JobIDRaw": "7", "JobID": "7", "User": "ada", "State": "COMPLETED", "Submit": "100", "Eligible": "110",
    "Start": "120", "End": "130", "TimelimitRaw": "60", "ReqCPUS": "4", "AllocCPUS": "4", "NNodes": "1",
    "NodeList": "n7", "Partition": "long", "ExitCode": "0:0", "JobName": "x", "Comment": "",
}  # fmt: skip


def sacct(*records):
    return RecordFormat("@").read("".join("@".join((RECORD | told).values()) + "@\n" for told in records))


def test_a_record_of_accounting():
    (record,) = sacct({"JobName": "a|b\n@"[:4], "State": "CANCELLED by 1000", "ExitCode": "0:15"})
    assert (record.job_id, record.name, record.states, record.signal) == ("7", "a|b\n", ("CANCELLED",), 15)
    assert (record.submit_s, record.eligible_s, record.start_s, record.end_s) == (100, 110, 120, 130)
    assert (record.limit_s, record.cores, record.nodes, record.exit_code) == (3600, 4, 1, None)
    assert record.node_list == "n7"


def test_a_record_of_a_job_that_never_ran():
    (record,) = sacct({"State": "CANCELLED by 0", "AllocCPUS": "0", "Start": "130", "Eligible": "Unknown"})
    assert (record.start_s, record.end_s, record.eligible_s, record.cores) == (None, 130, None, 4)
    assert (record.exit_code, record.signal) == (None, None)
    (record,) = sacct({"State": "CANCELLED by 0", "NodeList": "None assigned"})
    assert not record.node_list


def test_records_of_one_job_are_its_restarts():
    first, second = {"State": "NODE_FAIL"}, {"State": "REQUEUED", "Submit": "200", "Start": "210"}
    (record,) = sacct({"Submit": "300", "Start": "310", "End": "320"}, first, second)
    assert (record.submit_s, record.restarts, record.states) == (300, 2, ("COMPLETED",))


def test_of_a_number_that_was_given_again_the_latest_job_counts():
    printed = []

    def run(command, *_):
        mark = next(word.split("=")[1] for word in command if word.startswith("--delimiter="))
        old, new = RECORD | {"JobName": "old", "Submit": "50"}, RECORD | {"JobName": "new", "Submit": "500"}
        printed.append("".join(mark.join(told.values()) + mark + "\n" for told in (new, old)))
        return Done(0, printed[-1])

    (record,) = CommandLink(run=run).past(["7"]).values()
    assert (record.name, record.restarts) == ("new", 0)


def test_without_accounting_there_is_no_past():
    link = says(1, stderr="Slurm accounting storage is disabled\n")
    assert link.past(["7"]) == {}
    with pytest.raises(BackendError, match="accounting storage is disabled"):
        link.accounting(0, 10)
    assert says(127, stderr="env: 'sacct': No such file or directory\n").past(["7"]) == {}


def test_accounting_that_does_not_answer_is_not_an_empty_one():
    told = (
        "sacct: error: fetch_config: DNS SRV lookup failed\nsacct: fatal: Could not establish a configuration source\n"
    )
    with pytest.raises(UnavailableError) as caught:
        says(1, stderr=told).past(["7"])
    assert caught.value.message == "finds no configuration of Slurm on this computer"
    link = says(1, stderr="sacct: error: Problem talking to the database: Connection refused\n")
    with pytest.raises(UnavailableError):
        link.past(["7"])
    with pytest.raises(UnavailableError):
        link.accounting(0, 10)


def test_accounting_asks_for_its_span_and_leaves_a_greeting_out():
    asked = []

    def run(command, *_):
        asked.extend(command)
        return Done(0, f"Welcome!\n{command[command.index('-o') + 1].replace(',', '|')}\nx|7\n")

    text = CommandLink(run=run).accounting(NOW - 10.5, NOW)
    assert text.startswith("Cluster|JobID|User|")
    assert asked[asked.index("-S") + 1] == f"uts{NOW - 11}"
    assert asked[asked.index("-E") + 1] == f"uts{NOW}"
    assert "-a" in asked


# --- submission -----------------------------------------------------------------------------------------------------

FAILED = "sbatch: error: Batch job submission failed: "
POLICY = f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n"


@pytest.mark.parametrize(
    ("returncode", "stderr", "error"),
    [
        (1, f"sbatch: error: invalid partition specified: x\n{FAILED}Invalid partition name specified\n", "rejected"),
        (1, f"{FAILED}Requested node configuration is not available\n", "rejected"),
        (1, f"{FAILED}Job dependency problem\n", "rejected"),
        (1, f"{FAILED}Invalid account or account/partition combination specified\n", "rejected"),
        (1, f"sbatch: error: Use at most 4 nodes!\n{FAILED}Unspecified error\n", "rejected"),
        (255, "sbatch: error: Invalid --time specification\n", "rejected"),
        (1, "sbatch: error: Batch script is empty!\n", "rejected"),
        (1, f"sbatch: error: QOSMaxCpuPerJobLimit\n{POLICY}", "rejected"),
        (1, f"sbatch: error: AssocMaxWallDurationPerJobLimit\n{POLICY}", "rejected"),
        (1, f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}", "deferred"),
        (1, f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}", "deferred"),
        (1, f"sbatch: error: MaxSubmitJobsPerAccount\n{POLICY}", "deferred"),
        (1, POLICY, "deferred"),
        (1, f"{FAILED}Resource temporarily unavailable\n", "deferred"),
        (1, f"{FAILED}System submissions disabled\n", "deferred"),
        (1, f"{FAILED}Required partition not available (inactive or drain)\n", "deferred"),
        (1, f"{FAILED}Socket timed out on send/recv operation\n", "doubt"),
        (1, f"{FAILED}Zero Bytes were transmitted or received\n", "doubt"),
        (1, f"{FAILED}Unable to contact slurm controller (receive failure)\n", "doubt"),
        (1, f"{FAILED}Unable to contact slurm controller (send failure)\n", "doubt"),
        (1, f"{FAILED}Unexpected message received\n", "doubt"),
        (1, f"{FAILED}Protocol authentication error\n", "doubt"),
        (1, f"{FAILED}Unspecified error\n", "doubt"),
        (1, f"{FAILED}Slurm database error\n", "doubt"),
        (1, f"{FAILED}Security credential expired\n", "doubt"),
        (1, f"{FAILED}I/O error writing script/environment to file\n", "deferred"),
        (0, "", "doubt"),
        (1, "", "doubt"),
        (255, "Connection to login closed by remote host.\n", "doubt"),
        (255, "client_loop: send disconnect: Broken pipe\n", "doubt"),
        (137, "", "doubt"),
        (-9, f"{FAILED}Invalid qos specification\n", "doubt"),
        (1, "something else\n", "doubt"),
        (1, f"{FAILED}Unable to contact slurm controller (connect failure)\n", "away"),
        (1, "sbatch: fatal: Could not establish a configuration source\n", "away"),
        (255, "ssh: connect to host login port 22: Connection timed out\n", "away"),
        (255, "ssh: Could not resolve hostname login: Name or service not known\n", "away"),
        (127, "env: 'sbatch': No such file or directory\n", "away"),
        (127, "sh: 1: env: not found\n", "away"),
        (255, "ada@login: Permission denied (publickey,password).\n", "access"),
        (255, "Host key verification failed.\n", "access"),
        (1, f"sbatch: error: Munge encode failed: Failed to access\n{FAILED}Protocol authentication error\n", "access"),
    ],
)
def test_why_a_submission_told_no_number(returncode, stderr, error):
    """Only a submission that was certainly not accepted is reported as refused."""
    types = {
        "rejected": SubmitRejectedError,
        "deferred": SubmitDeferredError,
        "doubt": SubmitInDoubtError,
        "away": UnavailableError,
        "access": AccessError,
    }
    with pytest.raises(AsaError) as caught:
        says(returncode, stderr=stderr).submit(JOB)
    assert type(caught.value) is types[error]
    last = stderr.strip().splitlines()[-1:]
    assert "".join(last) in str(caught.value)


def test_a_greeting_is_no_job_id():
    assert says(stdout="Welcome to cluster 9\n\n4711;cluster\n").submit(JOB) == "4711"
    with pytest.raises(SubmitInDoubtError):
        says(stdout="Submitted batch job 12\n").submit(JOB)
    with pytest.raises(SubmitInDoubtError):
        says(1, stdout="4711\n").submit(JOB)


@pytest.mark.parametrize("length", range(1, 5))
def test_an_answer_that_was_cut_off_is_no_job_id(length):
    """Its first digits may be the number of another job."""
    with pytest.raises(SubmitInDoubtError):
        says(stdout="4711\n"[:length]).submit(JOB)


def test_a_submission_without_end_is_in_doubt_and_one_without_begin_is_not():
    late = TimeoutError("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n")
    with pytest.raises(SubmitInDoubtError, match=r"60 s.*retrying"):
        raises_(late).submit(JOB)
    with pytest.raises(UnavailableError, match="No such file") as caught:
        raises_(FileNotFoundError(2, "No such file or directory")).submit(JOB)
    assert "login node" in caught.value.hint


@pytest.mark.parametrize(
    "change",
    [
        {"script": "#!/bin/sh\n\0"},
        {"name": "a\0b"},
        {"environment": {"A": "\0"}},
        {"environment": {"A=B": "1"}},
        {"environment": {"": "1"}},
    ],
)
def test_what_cannot_be_passed_on_is_refused_before(change):
    link = says(stdout="7\n")
    with pytest.raises(SubmitRejectedError):
        link.submit(replace(JOB, **change))
    assert not link.calls


def options(**change):
    asked = []

    def run(command, *_):
        asked.extend(command)
        return Done(0, "7\n")

    CommandLink(run=run).submit(replace(JOB, **change))
    return [word for word in asked if word.startswith("--")]


def test_only_what_a_job_asks_for_is_told():
    assert options() == [
        "--parsable", "--export-file=3", "--export=ALL", "--job-name=stage.token", "--chdir=/home/ada", "--ntasks=4",
        "--time=60", "--output=/home/ada/out", "--error=/home/ada/err",
    ]  # fmt: skip
    asked = options(
        nodes=2, memory_bytes=(5 << 20) + 1, gpus=3, partition="p", account="a", qos="q", constraint="c&d", held=True,
        dependency="afterok:1", begin_s=NOW, comment="asa:t", walltime_s=3601, stdout="/a%j",
        burst_buffer_bytes=(5 * 10**9) + 1,
    )  # fmt: skip
    assert {
        "--nodes=2", "--mem=3M", "--gpus=3", "--partition=p", "--account=a", "--qos=q", "--constraint=c&d", "--hold",
        "--dependency=afterok:1", f"--begin=uts{NOW}", "--comment=asa:t", "--time=61", "--output=/a%%j",
        "--bb=capacity=6GB access=striped type=scratch",
    } <= set(asked)  # fmt: skip


SBATCH = """
for word; do case $word in --export-file=*) from=${word#*=};; esac; done
cat "/dev/fd/$from" >"$HERE/environment"; cat >"$HERE/script"
for word; do printf '%s\\0' "$word"; done >"$HERE/words"
cat /proc/$PPID/cmdline /proc/$$/cmdline >"$HERE/shown"
echo 4711
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Yield a folder with an sbatch that writes down what it gets, and an ssh whose other end is here."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "bin").mkdir()
    for name, text in {"sbatch": SBATCH, "ssh": 'shift\nexec sh -c "$*"'}.items():
        path = folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
        patch.setenv("HERE", str(folder))
        yield folder


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


@settings(max_examples=30)
@given(script=TEXT, value=TEXT, over_ssh=st.booleans())
def test_script_environment_and_options_arrive_as_they_are(here, script, value, over_ssh):
    link = CommandLink(prefix=["ssh", "login"] if over_ssh else [])
    job = replace(JOB, script="#!/bin/sh\n" + script, environment={"SECRET": value, "B": ""}, comment=f"{value}x")
    assert link.submit(job) == "4711"
    assert (here / "script").read_bytes() == job.script.encode()
    environment = (here / "environment").read_bytes().decode().split("\0")
    assert environment == ["SLURM_JOB_NAME=stage.token", f"SECRET={value}", "B=", ""]
    assert f"--comment={value}x" in (here / "words").read_bytes().decode().split("\0")


@pytest.mark.parametrize("why", ["unknown to Python", "refused"])
def test_the_environment_arrives_where_no_file_can_be_made_in_memory(here, monkeypatch, why):
    """Pythons that were built for old systems, as conda's, do not know of them; sandboxes refuse them."""
    if why == "refused":
        monkeypatch.setattr(os, "memfd_create", Mock(side_effect=OSError(38, "Function not implemented")))
    else:
        monkeypatch.delattr(os, "memfd_create")
    assert CommandLink().submit(replace(JOB, environment={"A": "1"})) == "4711"
    assert (here / "environment").read_bytes() == b"SLURM_JOB_NAME=stage.token\0A=1\0"


def test_secrets_of_a_job_are_not_in_the_list_of_processes(here):
    CommandLink(prefix=["ssh", "login"]).submit(replace(JOB, environment={"TOKEN": "hush"}))
    assert "hush" in (here / "environment").read_text()
    assert "sbatch" in (here / "shown").read_text()
    assert "hush" not in (here / "shown").read_text()


# --- commands that misbehave ----------------------------------------------------------------------------------------


def test_a_command_that_hangs_is_killed_with_its_children(programs, tmp_path):
    programs("squeue", 'sleep 300 & echo $! >"$HERE/child"; echo "squeue: still trying" >&2; wait')
    link = CommandLink(timeout_s=0.5)
    began = time.monotonic()
    with pytest.raises(UnavailableError, match=r"0\.5 s squeue: still trying"):
        link.queue()
    assert time.monotonic() - began < 30
    child = int((tmp_path / "child").read_text())
    until(lambda: not is_running(child), what="the end of the child")


def test_what_left_the_session_does_not_keep_us_waiting(programs, tmp_path):
    programs("squeue", "setsid sh -c 'echo $$ >\"$HERE/child\"; exec sleep 300' & sleep 300")
    began = time.monotonic()
    with pytest.raises(UnavailableError):
        CommandLink(timeout_s=0.5).queue()
    assert time.monotonic() - began < 30
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


def test_a_killed_sbatch_leaves_doubt(programs):
    programs("sbatch", "kill -9 $$")
    with pytest.raises(SubmitInDoubtError, match=r"Killed|137|signal 9"):
        CommandLink().submit(JOB)


def test_a_late_sbatch_leaves_doubt(programs):
    programs("sbatch", "cat >/dev/null; sleep 300; echo 7")
    with pytest.raises(SubmitInDoubtError, match=r"no answer within 0\.5 s"):
        CommandLink(timeout_s=0.5).submit(JOB)


@pytest.mark.parametrize("prefix", [["no-such-program"], ["env", "PATH=/nowhere"]])
def test_missing_programs_are_told_with_a_hint(prefix):
    with pytest.raises(UnavailableError, match="cannot be run") as caught:
        CommandLink(prefix=prefix).settings()
    assert "login node" in caught.value.hint


def test_an_interrupt_ends_the_command(programs, tmp_path):
    programs("squeue", 'echo $$ >"$HERE/child"; exec sleep 300')

    seen = []

    def interrupt(*_):
        """Interrupt a while after the child runs: before that, this process may still be within `Popen`."""
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.extend([True] * (tmp_path / "child").exists())
        signal.setitimer(signal.ITIMER_REAL, 0.5 if seen else 0.1)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            CommandLink().queue()
    finally:
        signal.signal(signal.SIGALRM, before)
    until(lambda: not is_running(int((tmp_path / "child").read_text())), what="its end")


# --- changes and questions ------------------------------------------------------------------------------------------


def test_a_single_unknown_job_is_missing_but_an_error_is_an_error():
    unknown = "slurm_load_jobs error: Invalid job id specified\n"
    assert says(1, stderr=unknown).jobs(["7"]) == {}
    with pytest.raises(UnavailableError):
        says(1, stderr=unknown).jobs(["7", "8"])
    with pytest.raises(UnavailableError, match="connect failure"):
        says(1, stderr="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n").jobs(["7"])
    with pytest.raises(AccessError):
        says(1, stderr="slurm_load_jobs error: Protocol authentication error\n").queue()


@pytest.mark.parametrize("printed", ["", "12\n1200\n", "Quota: 80 %\n12;here\n1200\n"])
def test_an_answer_without_one_number_is_in_doubt(printed):
    """Of several numbers it is unknown which is the job's; it is looked for by its token."""
    with pytest.raises(SubmitInDoubtError):
        says(0, stdout=printed).submit(JOB)


@pytest.mark.parametrize(
    ("returncode", "stderr", "error"),
    [
        (0, "scancel: Terminating job 7\n", None),
        (0, "scancel: error: Kill job error on job id 7: Job/step already completing or completed\n", None),
        (0, "scancel: error: Kill job error on job id 7: Invalid job id specified\n", JobNotFoundError),
        (210, "scancel: error: Kill job error on job id 7: Access/permission denied\n", BackendError),
        (8, "scancel: error: Kill job error on job id 7: Unable to contact slurm controller (connect failure)\n",
         UnavailableError),
        (1, "scancel: error: Kill job error on job id 7: Socket timed out on send/recv operation\n", UnavailableError),
        (137, "", UnavailableError),
    ],
)  # fmt: skip
def test_how_a_cancel_ends(returncode, stderr, error):
    link = says(returncode, stderr=stderr)
    if error is None:
        cancel(link, "7")
        return
    with pytest.raises(BackendError) as caught:
        cancel(link, "7")
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("stderr", "error"),
    [
        ("Invalid job id specified for job 7\nslurm_suspend error: Invalid job id specified\n", JobNotFoundError),
        ("Job has already finished for job 7\n", BackendError),
        ("Access/permission denied for job 7\n", BackendError),
        ("Unexpected message received for job 7\n", UnavailableError),
    ],
)
def test_how_an_update_fails(stderr, error):
    with pytest.raises(BackendError) as caught:
        says(1, stderr=stderr).update(own("7"), walltime_s=60)
    assert type(caught.value) is error


def answering(answer):
    """Make a link to a squeue: `answer` returns its result for its words; and the list of what it was asked."""
    asked = []

    def run(command, stdin, timeout_s):
        if "squeue" not in command:
            return Done(1, "", "Slurm accounting storage is disabled")
        words = list(command[command.index("squeue") + 1 :])
        asked.append(words)
        return answer(words)

    return CommandLink(run=run), asked


def mark_in(words):
    return re.match(r"JobID:0([^,]*),", words[words.index("-O") + 1])[1]


def refusing(*options):
    """Answer as a squeue that does not take some options."""

    def answer(words):
        if refused := [word for word in words if word.startswith(options)]:
            return Done(
                1, "", f"squeue: unrecognized option '{refused[0]}'\nTry \"squeue --help\" for more information\n"
            )
        return Done(0, squeue(mark_in(words), name="x.t1") + squeue(mark_in(words), job_id="8", name="y.t2"))

    return answer


def test_an_option_that_squeue_does_not_take_is_left_out_from_then_on():
    link, asked = answering(refusing("--local", "--name"))
    assert [*link.jobs(["7"])] == ["7"]
    assert len(asked) == 2
    assert [record.job_id for record in link.named(["y.t2"])] == ["8"]
    assert [words.count("--local") for words in asked] == [1, 0, 0, 0]
    assert [any(word.startswith("--name") for word in words) for words in asked] == [False, False, True, False]


@pytest.mark.parametrize("ask", [lambda link: link.jobs(["7"]), lambda link: link.denies("7"), CommandLink.queue])
def test_an_option_that_is_needed_and_not_taken_is_named_with_what_to_do(ask):
    link, asked = answering(refusing("-O"))
    with pytest.raises(UnavailableError, match="does not take the option -O: squeue: unrecognized option") as caught:
        ask(link)
    assert caught.value.where == "squeue"
    assert "type -a squeue" in caught.value.hint
    assert len(asked) == 1


def test_which_of_several_is_held_is_asked_where_squeue_does_not_tell():
    """As that of 26.05."""

    def answer(words):
        mark, shown = mark_in(words), {"State": "PENDING", "StartTime": "N/A", "EndTime": "N/A", "NodeList": ""}
        if "-r" not in words:
            each = [("2", "2_[0-2]", "Resources,JobHeldUser"), ("9", "9", "Priority")]
        else:
            each = [("2", "2_0", "Resources"), ("2", "2_2", "Resources"), ("5", "2_1", "JobHeldUser")]
        return Done(0, "".join(squeue(mark, job_id=i, JobArrayID=n, Reason=why, **shown) for i, n, why in each))

    link, asked = answering(answer)
    told = {str(one.elements or one.job_id): (one.job_id, one.reason) for one in link.holders(["2", "9"])}
    assert told == {"9": ("9", "Priority"), "0,2": ("2", "Resources"), "1": ("5", "JobHeldUser")}
    assert len(asked) == 2
    assert asked[1][asked[1].index("-r") :][:3] == ["-r", "-j", "2"]


def test_an_update_is_one_command_and_another_for_the_hold():
    asked = []

    def run(command, *_):
        asked.append(list(command)[list(command).index("scontrol") :])
        return Done(0)

    link = CommandLink(run=run)
    link.update(own("7"), walltime_s=61, nodes=2, held=False)
    link.update(own("7"), held=True)
    link.update(own("7"))
    assert asked == [
        ["scontrol", "update", "JobId=7", "TimeLimit=2", "NumNodes=2"],
        ["scontrol", "release", "7"],
        ["scontrol", "hold", "7"],
    ]
    assert link.calls == {"update": 3}


def test_an_odd_name_is_looked_for_without_the_commands_help():
    """The commands would read a name with a comma as two."""
    asked = []

    def run(command, *_):
        asked.append([word for word in command if word.startswith("--name")])
        return Done(0)

    link = CommandLink(run=run, clock=lambda: NOW)
    link.named(["b.2", "a.1"])
    link.named(["a,1"])
    assert asked == [["--name=a.1,b.2"], ["--name=a.1,b.2"], [], []]
    assert link.calls == {"named": 4}


def test_partitions_and_nodes_with_free_text_at_their_end():
    (partition,) = says(
        stdout="PartitionName=p Default=NO MaxNodes=8 MaxTime=UNLIMITED MinNodes=2 DefaultTime=NONE State=DOWN "
        "TotalCPUs=448 TotalNodes=16 Comment=State=UP\n"
    ).partitions()
    assert (partition.name, partition.is_default, partition.is_up) == ("p", False, False)
    assert (partition.max_nodes, partition.nodes, partition.cores) == (8, 16, 448)
    assert partition.max_walltime_s is None
    (node,) = says(
        stdout="Hello\nNodeName=n1 CPUTot=64 OS=Linux 6.1 #1 SMP RealMemory=1000 State=IDLE+DRAIN* Partitions=a,b "
        "Reason=CPUTot=1 State=IDLE\n"
    ).nodes()
    assert (node.name, node.cores, node.memory_bytes) == ("n1", 64, 1000 << 20)
    assert (node.states, node.partitions) == (("IDLE", "DRAIN"), ("a", "b"))


@pytest.mark.parametrize("ask", [CommandLink.partitions, CommandLink.nodes])
def test_what_is_cut_off_tells_of_no_site(ask):
    """Otherwise jobs would be refused as too large for half of the machine."""
    with pytest.raises(UnavailableError, match="cut off"):
        ask(says(stdout="PartitionName=p MaxTime=UNLIMITED\nNodeName=n1 CPUTot=64\nNodeName=n2 CP"))


@pytest.mark.parametrize(
    ("words", "is_exclusive"),
    [
        ("OverSubscribe=EXCLUSIVE", True),
        ("OverSubscribe=NO", False),
        ("Exclusive=NODE OverSubscribe=NO", True),
        ("Exclusive=USER OverSubscribe=NO", False),
        ("Exclusive=NO OverSubscribe=NO", False),
        ("ExclusiveUser=YES OverSubscribe=NO", False),
    ],
)
def test_whether_jobs_share_nodes_is_said_otherwise_since_26_05(words, is_exclusive):
    (partition,) = says(stdout=f"PartitionName=p Default=NO {words} State=UP TotalCPUs=4 TotalNodes=1\n").partitions()
    assert partition.is_exclusive is is_exclusive


def test_a_prefix_is_not_told_whole():
    """It may contain a password."""
    told = CommandLink(prefix=["sshpass", "-p", "secret", "ssh", "x"], run=lambda *_: Done(0, "")).about()
    assert told.means == "Slurm's commands through sshpass"


def test_about_tells_a_controller_that_is_away_from_commands_that_are():
    def run(command, *_):
        if "config" in command:
            raise TimeoutError
        return Done(0, "slurm-wlm 22.05.8\n")

    about = CommandLink(run=run).about()
    assert (about.version, about.controller_up, about.accounting) == ("22.05.8", False, False)
    with pytest.raises(UnavailableError):
        says(255, stderr="ssh: connect to host login port 22: Connection refused\n").about()


SAYS = "sbatch: Job 4 to start at 2026-11-24T05:10:16 using 4 processors on nodes n001 in partition normal"


@pytest.mark.parametrize(
    ("returncode", "printed", "said_s"),
    [
        (0, SAYS, 1_795_497_016.0),
        (0, f"Welcome to this machine!\n{SAYS}\n", 1_795_497_016.0),
        (0, SAYS.replace("2026-11-24T05:10:16", "1795497016"), 1_795_497_016.0),
        (0, SAYS.replace("2026-11-24T05:10:16", "N/A"), None),
        (0, SAYS.replace("2026-11-24T05:10:16", "9" * 400 + "-11-24T05:10:16"), None),
        (0, "sbatch: Job 4 is going to start some day", None),
        (0, "", None),
        (1, "allocation failure: Requested node configuration is not available", None),
        (1, SAYS, None),
    ],
)
def test_what_slurm_says_of_a_start_is_read_or_nothing(programs, returncode, printed, said_s):
    """It never raises an error, since a prediction does not need it."""
    note = 'echo "$@" >$HERE/asked; env >$HERE/env'
    programs("sbatch", f"{note}; printf %s {shlex.quote(printed)} >&2; exit {returncode}")
    assert CommandLink().estimated_start_s(JOB) == said_s
    asked = Path(os.environ["HERE"], "asked").read_text().split()
    assert "--test-only" in asked
    assert "--parsable" not in asked
    assert {"--ntasks=4", "--time=60"} <= set(asked)
    assert "TZ=UTC" in Path(os.environ["HERE"], "env").read_text().split()


@pytest.mark.parametrize("error", [TimeoutError(""), FileNotFoundError("sbatch"), PermissionError("sbatch")])
def test_where_slurm_cannot_be_asked_it_says_nothing(error):
    assert raises_(error).estimated_start_s(JOB) is None


def test_elements_that_were_cancelled_together_wait_no_more():
    """Slurm and its accounting go on showing them in one record."""
    mark = "@"
    queued = QueueFormat(mark)
    told = dict.fromkeys(QueueFormat._FIELDS, "0") | {
        "JobArrayID": "35_[0-1]", "State": "CANCELLED", "SubmitTime": "100", "StartTime": "120", "EndTime": "120",
        "NodeList": "", "exit_code": "0:0", "Reason": "None", "Dependency": "(null)", "TimeLimit": "10:00",
    }  # fmt: skip
    [record] = queued.read(f"35{mark}{'|'.join([*told.values(), 'x'])}{mark}{mark}")
    assert (record.is_array, str(record.elements), record.states) == (False, "0-1", ("CANCELLED",))
    [waiting] = queued.read(f"35{mark}{'|'.join([*(told | {'State': 'PENDING'}).values(), 'x'])}{mark}{mark}")
    assert waiting.is_array
    [past] = sacct({"JobID": "35_[0-1]", "State": "CANCELLED by 0", "AllocCPUS": "0", "Start": "120", "End": "120"})
    assert (past.is_array, str(past.elements)) == (False, "0-1")


@pytest.mark.parametrize("method", ["jobs", "past"])
def test_an_answer_that_is_cut_off_is_none(method):
    """Wherever it is cut; except after a whole job, where it cannot be noticed."""
    whole, cut = [], [None]

    def run(command, *_):
        mark = re.search(r"@[0-9a-f]+@", " ".join(command))[0]
        if method == "jobs":
            whole[:] = [squeue(mark, job_id=number) for number in ("12", "13")]
        else:
            whole[:] = [f"{mark.join((RECORD | {'JobIDRaw': number}).values())}{mark}\n" for number in ("12", "13")]
        return Done(0, "".join(whole)[: cut[0]], "")

    link = CommandLink(run=run)
    assert set(getattr(link, method)(["12", "13"])) == {"12", "13"}
    first, second = map(len, whole)
    for cut[0] in range(first + 1, first + second - 1):
        with pytest.raises(UnavailableError, match="cut off"):
            getattr(link, method)(["12", "13"])
    cut[0] = first
    assert set(getattr(link, method)(["12", "13"])) == {"12"}


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("missing", [1, 20])
def test_half_a_script_is_not_submitted(tmp_path, shell, missing):
    """If the connection breaks while it is sent, the shell at the other end reads what arrived as if it were all."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    program = tmp_path / "sbatch"
    program.write_text(f"#!/bin/sh\ncat >{tmp_path}/came\necho 7\n")
    program.chmod(0o755)
    (tmp_path / "sh").symlink_to(shutil.which(shell))
    lengths = []

    def run(command, stdin, timeout_s):
        lengths.append(len(stdin))
        cut = stdin[: len(job.script) - missing] if lengths[1:] else stdin
        return process.run(["env", f"PATH={tmp_path}:{os.environ['PATH']}", *command], cut, timeout_s)

    job = replace(JOB, script="#!/bin/sh\necho 'née' \n\n")
    link = CommandLink(run=run)
    assert link.submit(job) == "7"
    assert (tmp_path / "came").read_text() == job.script
    (tmp_path / "came").unlink()
    with pytest.raises(UnavailableError, match="did not arrive whole"):
        link.submit(job)
    assert not (tmp_path / "came").exists()


# --- another cluster -------------------------------------------------------------------------------------------------

CALLS = {  # by program
    "sbatch": [
        lambda link: link.submit(JOB),
        lambda link: link.test(JOB, 9.0),
        lambda link: link.estimated_start_s(JOB),
    ],
    "salloc": [lambda link: link.allocate(JOB, 60.0)],
    "squeue": [lambda link: link.jobs(["7"]), lambda link: link.queue(), lambda link: link.named({"x"})],
    "sacct": [
        lambda link: link.past(["7"]),
        lambda link: link.accounting(0.0, 1.0),
        lambda link: link.recorded({"x"}, 0),
    ],
    "scancel": [lambda link: cancel(link, own("7"))],
    "scontrol": [
        lambda link: link.settings(),
        lambda link: link.nodes(),
        lambda link: link.update(own("7"), held=True),
    ],
}


@pytest.mark.parametrize("program", CALLS)
def test_every_command_is_sent_to_the_cluster_that_is_named(program):
    """By an option: sacct does not read the variable, which none may see that reads it."""
    commands = []

    def run(command, _stdin, _timeout_s):
        commands.append(list(command))
        return Done(1, "", "down")

    for call in CALLS[program]:
        for cluster in ("small", ""):
            commands.clear()
            with suppress(AsaError):
                call(CommandLink(run=run, cluster=cluster))
            ours = [command for command in commands if program in command]
            assert ours
            for command in ours:
                at = command.index(program)
                assert (command[at + 1 : at + 3] == ["-M", "small"]) is bool(cluster)
                assert ["-u", "SLURM_CLUSTERS"] in [command[i : i + 2] for i in range(at)]


def test_a_cluster_that_the_user_s_variable_names_is_meant_by_all_commands(monkeypatch, tmp_path):
    monkeypatch.setenv("SLURM_CLUSTERS", "small")
    shown = SlurmCommands(offline=True).connect(tmp_path).preview(JobSpec("a", 1, 60.0, "true"))
    assert " -M small " in shown["command"]
    shown = SlurmCommands(offline=True, cluster="big").connect(tmp_path).preview(JobSpec("a", 1, 60.0, "true"))
    assert " -M big " in shown["command"]
    assert (
        " -M "
        not in SlurmCommands(offline=True, prefix="sudo -u ada")
        .connect(tmp_path)
        .preview(JobSpec("a", 1, 60.0, "true"))["command"]
    )
    monkeypatch.setenv("SLURM_CLUSTERS", "big,small")
    with pytest.raises(InputError, match="names several clusters"):
        SlurmCommands()
    for name in ("-x", "a b", "a,b"):
        with pytest.raises(InputError, match="is no name of one cluster"):
            SlurmCommands(cluster=name)
