"""The faults of a trial: each waits for its time, happens, and is repaired; none uses asa's internals."""

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from slurm_testbed import OLDEST

from .draw import PAIR, Fault
from .operator import Operator
from .place import OTHER, Cluster, Pair

MOMENT_S = 45.0  # in which a stage begins or ends, or the fault does not come
ENDS = "time_limit"  # what ends a stage that hangs, and so has to come whenever that begins


MORE: dict[str, Callable[[Fault, Operator], None]] = {}
"""Faults of other modules, by kind."""


class VoidError(Exception):
    """There is nothing to spoil."""


def suffer(fault: Fault, operator: Operator) -> None:
    """Wait for a fault's moment, inject it, and mend it."""
    if not _moment(fault, operator):
        operator.note("void", f"{fault}: its moment did not come")
        return
    time.sleep(fault.delay_s)
    try:
        (MORE.get(fault.kind) or globals()[f"_{fault.kind}"])(fault, operator)
    except VoidError as why:
        operator.note("void", f"{fault}: {why}")
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        operator.note("void", f"{fault}: {error}")


def _moment(fault: Fault, operator: Operator) -> bool:
    began_s = time.monotonic()
    lasts_s = math.inf if fault.kind == ENDS else MOMENT_S
    while fault.at != "begin" and time.monotonic() - began_s < lasts_s and not operator.over.is_set():
        text = operator.place.marks
        if any(
            line.startswith((f"{fault.at} {fault.step} ", f"{fault.at} {fault.step}.")) for line in text.splitlines()
        ):
            return True
        time.sleep(0.05)
    return fault.at == "begin" and not operator.over.is_set()


def _lasts(fault: Fault, operator: Operator) -> None:
    operator.over.wait(fault.lasts_s)


def _cluster(operator: Operator) -> Cluster:
    assert isinstance(operator.place, Cluster)
    return operator.place


def _await_client(operator: Operator):
    for _ in range(30):
        if (client := operator.client) is not None and time.time() - client.began_s > 0.3:
            return client
        if operator.over.wait(0.2):
            break
    raise VoidError("nobody drives the run")


def _job(fault: Fault, operator: Operator, *states: str) -> str:
    for _ in range(20):
        if jobs := sorted(operator.place.jobs(*states)):
            return jobs[int(fault.pick * len(jobs))]
        if operator.over.wait(0.25):
            break
    raise VoidError(f"no job is {' or '.join(states)}")


def _as_root(operator: Operator, *command: str) -> str:
    return _cluster(operator).as_root(*command)


# ------------------------------------------------------------------ the client


def _signal(fault: Fault, operator: Operator, number: signal.Signals, *, then: int = 1) -> None:
    client = _await_client(operator)
    operator.gap_s, operator.together = min(fault.lasts_s, 6.0), then
    operator.note("fired", f"{fault.kind}: {number.name} to {client.process.pid}")
    client.signalled = (number.name, time.time())
    client.process.send_signal(number)


def _kill(fault: Fault, operator: Operator) -> None:
    _signal(fault, operator, signal.SIGKILL)


def _gone(fault: Fault, operator: Operator) -> None:
    """Kill the client, and let nobody come back before its jobs have ended and Slurm may have forgotten them."""
    _signal(fault, operator, signal.SIGKILL)
    operator.gap_s = 4 * fault.lasts_s


def _term(fault: Fault, operator: Operator) -> None:
    _signal(fault, operator, signal.SIGTERM)


def _int(fault: Fault, operator: Operator) -> None:
    _signal(fault, operator, signal.SIGINT)


def _hup(fault: Fault, operator: Operator) -> None:
    _signal(fault, operator, signal.SIGHUP)


def _two_resumes(fault: Fault, operator: Operator) -> None:
    _signal(fault, operator, signal.SIGKILL, then=2)


def _other_host(fault: Fault, operator: Operator) -> None:
    """Go on from another host: at once where the client had left; one that was killed holds the run for minutes."""
    killed = fault.pick < 0.5
    _await_client(operator)
    operator.moves = "elsewhere" if not operator.host else "elsewhere-still"
    _signal(fault, operator, signal.SIGKILL if killed else signal.SIGINT)


def _away(fault: Fault, operator: Operator) -> None:
    client = _await_client(operator)
    operator.note("fired", f"away: {client.process.pid}")
    client.process.send_signal(signal.SIGSTOP)
    _lasts(fault, operator)
    client.process.send_signal(signal.SIGCONT)
    operator.note("mended", "away")


def _cancel(fault: Fault, operator: Operator) -> None:
    if operator.run is None:
        raise VoidError("there is no run yet")
    cancel_run(operator)


def cancel_run(operator: Operator) -> None:
    """Cancel the run as its user does, and note the time that takes: payloads that end in it may be killed."""
    operator.note("fired", "asa cancel")
    operator.command("cancel", str(operator.run), "--yes")
    operator.note("mended", "asa cancel")


# ------------------------------------------------------------------ Slurm's daemons


def _controller_restart(fault: Fault, operator: Operator) -> None:
    operator.note("fired", "slurmctld restarts")
    _cluster(operator).slurm.restart_controller()
    operator.note("mended", "slurmctld restarts")


def _controller_away(fault: Fault, operator: Operator) -> None:
    operator.note("fired", "slurmctld away")
    _cluster(operator).slurm.stop_controller()
    _lasts(fault, operator)
    _cluster(operator).slurm.start_controller()
    operator.note("mended", "slurmctld away")


def _controller_killed(fault: Fault, operator: Operator) -> None:
    cluster = _cluster(operator)
    operator.note("fired", "slurmctld killed")
    os.kill(cluster.pid("slurmctld"), signal.SIGKILL)
    _lasts(fault, operator)
    cluster.slurm.start_controller()
    operator.note("mended", "slurmctld killed")
    operator.over.wait(10.0)
    cluster.mend()  # it may have forgotten that a node is up


def _one_away(fault: Fault, operator: Operator) -> None:
    """Stop the controller of one of two clusters for a while."""
    cluster = operator.place
    assert isinstance(cluster, Pair)
    slurm = cluster.slurm if fault.pick < 0.5 else cluster.other
    operator.note("fired", f"slurmctld of {slurm.cluster} away")
    slurm.stop_controller()
    _lasts(fault, operator)
    slurm.start_controller()
    operator.note("mended", f"slurmctld of {slurm.cluster} away")


def _one_fails(fault: Fault, operator: Operator) -> None:
    """Let one of two clusters tell nothing of its queue for a while."""
    cluster = operator.place
    assert isinstance(cluster, Pair)
    name = PAIR[fault.pick >= 0.5]
    operator.note("fired", f"squeue of {name} fails")
    with operator.spoils:
        cluster.silence(name)
        _lasts(fault, operator)
        cluster.silence("")
    operator.note("mended", f"squeue of {name} fails")


def _rest_daemon(operator: Operator) -> str:
    return "slurmrestd-jwt" if operator.trial.site.short_tokens else "slurmrestd"


def _rest_restart(fault: Fault, operator: Operator) -> None:
    operator.note("fired", "slurmrestd restarts")
    _cluster(operator).kill(_rest_daemon(operator))()
    operator.note("mended", "slurmrestd restarts")


def _rest_away(fault: Fault, operator: Operator) -> None:
    _daemon_away(fault, operator, _rest_daemon(operator))


def _rest_lost(fault: Fault, operator: Operator) -> None:
    _relay(fault, operator, "lost")


def _rest_slow(fault: Fault, operator: Operator) -> None:
    _relay(fault, operator, "slow")


def _relay(fault: Fault, operator: Operator, mode: str) -> None:
    """Let requests arrive, and their answers get lost, or come late."""
    relay = _cluster(operator).relay
    if relay is None:
        raise VoidError("there is no relay before a daemon that wants tokens")
    operator.note("fired", f"answers are {mode}")
    relay.mode = mode
    _lasts(fault, operator)
    relay.mode = ""
    operator.note("mended", f"answers are {mode}")


def _database_away(fault: Fault, operator: Operator) -> None:
    if not operator.trial.site.accounting:
        raise VoidError("there is no accounting")
    _daemon_away(fault, operator, "slurmdbd")


def _munge_away(fault: Fault, operator: Operator) -> None:
    if operator.trial.version != OLDEST:
        raise VoidError("its namespace is that of all")
    _daemon_away(fault, operator, "munged")


def _daemon_away(fault: Fault, operator: Operator, daemon: str) -> None:
    operator.note("fired", f"{daemon} away")
    respawn = _cluster(operator).kill(daemon)
    _lasts(fault, operator)
    respawn()
    operator.note("mended", f"{daemon} away")


# ------------------------------------------------------------------ commands


def _with_file(fault: Fault, operator: Operator, name: str, text: str) -> None:
    path = _cluster(operator).root / name
    operator.note("fired", fault.kind)
    path.write_text(text)
    _lasts(fault, operator)
    path.unlink()
    operator.note("mended", fault.kind)


def _slow_sbatch(fault: Fault, operator: Operator) -> None:
    _with_file(fault, operator, "slow", "* sbatch *")


def _slow_commands(fault: Fault, operator: Operator) -> None:
    _with_file(fault, operator, "slow", "*")


def _lost_sbatch(fault: Fault, operator: Operator) -> None:
    _with_file(fault, operator, "lost", "")


# ------------------------------------------------------------------ jobs


def _requeue(fault: Fault, operator: Operator) -> None:
    job = _job(fault, operator, "RUNNING")
    operator.note("fired", f"scontrol requeue {job}")
    _as_root(operator, "scontrol", "requeue", job)


def _requeue_hold(fault: Fault, operator: Operator) -> None:
    job = _job(fault, operator, "RUNNING")
    operator.note("fired", f"scontrol requeuehold {job}")
    _as_root(operator, "scontrol", "requeuehold", job)
    _lasts(fault, operator)
    _surely(operator, "scontrol", "release", job)


def _hold(fault: Fault, operator: Operator) -> None:
    job = _job(fault, operator, "PENDING")
    operator.note("fired", f"scontrol hold {job}")
    _as_root(operator, "scontrol", "hold", job)
    _lasts(fault, operator)
    _surely(operator, "scontrol", "release", job)


def _suspend(fault: Fault, operator: Operator) -> None:
    job = _job(fault, operator, "RUNNING")
    operator.note("fired", f"scontrol suspend {job}")
    _as_root(operator, "scontrol", "suspend", job)
    _lasts(fault, operator)
    for _ in range(10):
        with suppress(RuntimeError, subprocess.TimeoutExpired):
            _as_root(operator, "scontrol", "resume", job)
            break
        if job not in operator.place.jobs("SUSPENDED"):
            break
        time.sleep(2.0)
    operator.note("mended", f"scontrol resume {job}")


def _cancelled_running(fault: Fault, operator: Operator) -> None:
    job = _job(fault, operator, "RUNNING")
    operator.note("fired", f"scancel {job}, which runs")
    _as_root(operator, "scancel", job)


def _told(fault: Fault, operator: Operator) -> None:
    """Return the job that runs a stage to end, in one of the ways in which that happens."""
    if not isinstance(operator.place, Cluster):
        return _cancel(fault, operator)
    starts = (f"start {fault.step} ", f"start {fault.step}.")
    job = [line for line in operator.place.marks.splitlines() if line.startswith(starts)][-1].split()[3]
    ways = (("scancel",), ("scontrol", "requeue"), ("scancel", "--signal=TERM", "--full"))
    way = ways[int(fault.pick * len(ways))]
    operator.note("fired", f"{' '.join(way)} {job}")
    _as_root(operator, *way, job)
    return None


def _cancelled_pending(fault: Fault, operator: Operator) -> None:
    job = _job(fault, operator, "PENDING")
    operator.note("fired", f"scancel {job}, which waits")
    _as_root(operator, "scancel", job)


def _batch_killed(fault: Fault, operator: Operator) -> None:
    job = _job(fault, operator, "RUNNING")
    operator.note("fired", f"scancel --batch --signal=KILL {job}")
    _as_root(operator, "scancel", "--batch", "--signal=KILL", job)
    for of, pid in operator.place.payloads():  # as a cgroup would; the cluster has none
        if of == job:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _payload_killed(fault: Fault, operator: Operator) -> None:
    for _ in range(20):
        if alive := operator.place.payloads():
            job, pid = alive[int(fault.pick * len(alive))]
            operator.note("fired", f"SIGKILL to payload {pid} of job {job}")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return
        if operator.over.wait(0.1):
            break
    raise VoidError("no payload runs")


def _time_limit(fault: Fault, operator: Operator) -> None:
    """End the walltime of the job that runs a stage: Slurm counts in minutes, for which a trial cannot wait."""
    if not isinstance(operator.place, Cluster):
        return _payload_killed(fault, operator)
    text = operator.place.marks
    [*_, line] = [line for line in text.splitlines() if line.startswith(f"start {fault.step} ")]
    job = line.split()[3]
    operator.note("fired", f"the walltime of {job} ends")
    soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 2))
    try:
        _as_root(operator, "scontrol", "update", f"jobid={job}", f"endtime={soon}")
    except RuntimeError:  # as Slurm 22.05 refuses it of a job that gave nodes back, where it has no accounting
        operator.note("fired", f"scancel {job}, for Slurm would not")
        _as_root(operator, "scancel", job)
    return None


def _preempted(fault: Fault, operator: Operator) -> None:
    """Let work of a partition that goes before have the nodes of a job that runs."""
    job = _job(fault, operator, "RUNNING")
    if not (nodes := ",".join(_cluster(operator).nodes_of(job))):
        raise VoidError("the job has no node any more")
    where = ("-p", "urgent", "-w", nodes, "--exclusive", "-t", "1")
    urgent = ("sbatch", "-Q", "-J", OTHER, *where, "-o", "/dev/null", "--wrap")
    operator.note("fired", f"job {job} is preempted on {nodes}, or soon")
    _as_root(operator, *urgent, f"sleep {fault.lasts_s}")
    for _ in range(60):
        if job not in operator.place.jobs("RUNNING"):
            break
        time.sleep(0.1)
    operator.note("fired", f"job {job} is preempted on {nodes}")


# ------------------------------------------------------------------ what the site allows


def _partition_down(fault: Fault, operator: Operator) -> None:
    _partition(fault, operator, "DOWN")


def _partition_inactive(fault: Fault, operator: Operator) -> None:
    _partition(fault, operator, "INACTIVE")


def _partition(fault: Fault, operator: Operator, state: str) -> None:
    operator.note("fired", f"the partition is {state}")
    _as_root(operator, "scontrol", "update", "partitionname=normal", f"state={state}")
    _lasts(fault, operator)
    _surely(operator, "scontrol", "update", "partitionname=normal", "state=UP")


def _limit(fault: Fault, operator: Operator) -> None:
    """Let the user have one job at a time in the queue: others are refused."""
    cluster = _cluster(operator)
    if not operator.trial.site.accounting:
        raise VoidError("there are no limits without accounting")
    change = ("sacctmgr", "-i", "modify", "user", cluster.user, "set")
    operator.note("fired", "MaxSubmitJobs=1")
    _as_root(operator, *change, "MaxSubmitJobs=1")
    _lasts(fault, operator)
    _surely(operator, *change, "MaxSubmitJobs=-1")


def _surely(operator: Operator, *command: str) -> None:
    for _ in range(10):  # the controller may be away
        with suppress(RuntimeError, subprocess.TimeoutExpired):
            _as_root(operator, *command)
            operator.note("mended", " ".join(command))
            return
        time.sleep(2.0)


# ------------------------------------------------------------------ nodes


def _node(fault: Fault, operator: Operator) -> str:
    """Pick a node on which a job of the run is."""
    cluster = _cluster(operator)
    nodes = cluster.nodes_of(_job(fault, operator, "RUNNING"))
    if not nodes:
        raise VoidError("the job has no node any more")
    return nodes[int(fault.pick * len(nodes))]


def _drain(fault: Fault, operator: Operator) -> None:
    node = _node(fault, operator)
    operator.note("fired", f"{node} drains")
    _as_root(operator, "scontrol", "update", f"nodename={node}", "state=drain", "reason=trial")
    _lasts(fault, operator)
    _surely(operator, "scontrol", "update", f"nodename={node}", "state=resume")


def _node_down(fault: Fault, operator: Operator) -> None:
    node = _node(fault, operator)
    operator.note("fired", f"{node} is set down, with jobs {' '.join(_cluster(operator).jobs_on(node))}")
    _as_root(operator, "scontrol", "update", f"nodename={node}", "state=down", "reason=trial")
    _lasts(fault, operator)
    _surely(operator, "scontrol", "update", f"nodename={node}", "state=resume")


def _slurmd_restart(fault: Fault, operator: Operator) -> None:
    node = _node(fault, operator)
    operator.note("fired", f"slurmd of {node} restarts")
    respawn = _cluster(operator).kill(f"slurmd-{node}")
    operator.over.wait(min(fault.lasts_s, 4.0))
    respawn()
    operator.note("mended", f"slurmd of {node} restarts")


def _slurmd_away(fault: Fault, operator: Operator) -> None:
    """Beyond SlurmdTimeout: Slurm gives the node up, and starts its jobs anew while their processes still run."""
    node = _node(fault, operator)
    operator.note("fired", f"slurmd of {node} is away")
    respawn = _cluster(operator).kill(f"slurmd-{node}")
    _lasts(fault, operator)
    respawn()
    operator.note("mended", f"slurmd of {node} is away")
    time.sleep(2.0)
    _cluster(operator).mend()


def _node_crash(fault: Fault, operator: Operator) -> None:
    node = _node(fault, operator)
    operator.note("fired", f"{node} crashes, with jobs {' '.join(_cluster(operator).jobs_on(node))}")
    respawn = _cluster(operator).crash(node)
    _lasts(fault, operator)
    respawn()
    operator.note("mended", f"{node} crashes")
    time.sleep(2.0)
    _cluster(operator).mend()


# ------------------------------------------------------------------ disks


def _disk_full(fault: Fault, operator: Operator) -> None:
    operator.note("fired", "the disk is full")
    operator.place.fill_disk()
    _lasts(fault, operator)
    operator.place.empty_disk()
    operator.note("mended", "the disk is full")


def _tmp_full(fault: Fault, operator: Operator) -> None:
    operator.note("fired", "$TMPDIR is full")
    operator.place.fill_disk(operator.place.tmp)
    _lasts(fault, operator)
    operator.place.empty_disk(operator.place.tmp)
    operator.note("mended", "$TMPDIR is full")


def _bank_readonly(fault: Fault, operator: Operator) -> None:
    bank: Path = operator.place.bank
    done = subprocess.run(["mount", "-o", "remount,ro", bank], capture_output=True, check=False)
    if done.returncode:
        raise VoidError("the bank is in use")
    operator.note("fired", "the bank is read-only")
    _lasts(fault, operator)
    subprocess.run(["mount", "-o", "remount,rw", bank], capture_output=True, check=False)
    operator.note("mended", "the bank is read-only")
