# ruff: noqa: T201 - it prints its table
"""Measures the cost of a client on real daemons, CPU time and requests: while it waits, and for a fan of stages.

    python tools/slurm_cost.py               2,000 jobs of others, both releases where they are, both ways of asking
    python tools/slurm_cost.py --fan         fans of `true`, by asa and by peers, as root
    python tools/slurm_cost.py --memory      a fan of 3,000, as root

A look asks for the client's four jobs; once in five minutes, the whole queue is read for the estimator. The number of
looks per hour of waiting is counted on a virtual clock.

A fan's cost is the CPU time of the whole process with all that it starts on this computer, least of three runs. What a
fan of 10 costs and one of 100 gives the fixed cost, and the cost of a further stage. Runs follow each other on one
cluster with one bank, so the later ones know the jobs of those before. Peers take part that `--peers` can import:
`python -m venv P && P/bin/pip install submitit psij-python`, and `--peers P/bin/python`.
"""

import argparse
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import budgets
import httpx

# the tests start the daemons, and have replacements for them
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from asa.backends.slurm.backend import SlurmBackend
from asa.backends.slurm.commands import CommandLink
from asa.backends.slurm.link import SlurmJob
from asa.backends.slurm.rest import RestLink
from slurm_fake_link import FakeLink, VirtualClock
from slurm_testbed import RELEASES, Testbed, missing, uid_of

from asa.backend import Capabilities, JobSpec

FAN = (10, 100)
"""Stages of the small fan and of the large one."""
MANY = 3000
"""Stages of the fan whose client's memory is measured."""
PEERS = {
    "submitit": """
import submitit, sys
executor = submitit.AutoExecutor(folder="logs", cluster="slurm")
executor.update_parameters(timeout_min=1)
jobs = [executor.submit(submitit.helpers.CommandFunction(["true"])) for _ in range(int(sys.argv[1]))]
for job in jobs:
    job.wait()
""",
    "psij": """
import psij, sys
executor = psij.JobExecutor.get_instance("slurm")
jobs = [psij.Job(psij.JobSpec(executable="true")) for _ in range(int(sys.argv[1]))]
for job in jobs:
    executor.submit(job)
for job in jobs:
    job.wait()
""",
}
STRATEGIES = ("per-stage", "asa", "asa-plan")


@contextmanager
def cluster(release, **settings):
    """Start a temporary cluster."""
    testbed = Testbed(Path(tempfile.mkdtemp(prefix="asa-", dir="/tmp")), release=release, **settings)
    testbed.root.chmod(0o755)
    try:
        yield testbed.start()
    finally:
        testbed.stop()


def crowd(testbed, count):
    """Fill the queue with waiting jobs."""
    script = "#!/bin/sh\nsleep 1\n"
    old = testbed.version.startswith("22")
    job = {"environment": {"PATH": "/bin"} if old else ["PATH=/bin"], "current_working_directory": "/tmp", "hold": True}
    api = "v0.0.38" if old else "v0.0.42"

    def submit(numbers):
        with httpx.Client(transport=httpx.HTTPTransport(uds=testbed.socket), timeout=60) as client:
            for number in numbers:
                body = {"script": script, "job": {**job, "name": f"other{number}"}}
                client.post(f"http://slurm/slurm/{api}/job/submit", json=body).raise_for_status()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(submit, [range(i, count, 4) for i in range(4)]))


def spent():
    """Return the CPU seconds of this process and of the commands that it ran."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def per_call(action, times):
    """Return the CPU ms of a call in this process and in commands, and its wall-clock ms; the least of some tries."""
    least = None
    for _ in range(times):
        before, began = spent(), time.perf_counter()
        action()
        wall_ms = 1e3 * (time.perf_counter() - began)
        own_ms, children_ms = (1e3 * (after - b) for after, b in zip(spent(), before, strict=True))
        least = min(least or (own_ms, children_ms, wall_ms), (own_ms, children_ms, wall_ms))
    return least


def looks_an_hour(folder):
    """Count the requests in an hour of waiting, the first and a later hour, on a virtual clock."""
    clock = VirtualClock()
    fake = FakeLink(clock, folder)
    backend = SlurmBackend(
        fake, folder, Capabilities("x", 112, 28, age_accrues=True), clock=clock, sleep=clock.sleep, queue_poll_s=300
    )
    ids = [backend.submit(JobSpec(f"j{i}", 1, 3600.0, token=f"t-{i}", held=True)) for i in range(4)]
    hours = []
    for _ in range(3):
        before, end_s = backend.condition.calls, backend.now() + 3600
        while backend.now() < end_s:
            backend.queue_events(100)
            backend.wait(min(end_s, backend.now() + 300))
        hours.append(backend.condition.calls - before)
    assert len(backend.status(ids)) == 4
    return hours[0], hours[-1]


def measured(testbed, kind):
    """Measure what a look at four own jobs costs, and a look at the whole queue."""
    by_rest = kind == "rest"
    served = {"served_by": [uid_of(testbed.user)]}
    link = RestLink(f"unix://{testbed.socket}", **served) if by_rest else CommandLink(prefix=testbed.prefix)
    folder = testbed.folder("cost")
    job = SlurmJob("own", "#!/bin/sh\nsleep 9\n", str(folder), 1, 60, f"{folder}/o", f"{folder}/e", held=True)
    own = [link.submit(job) for _ in range(4)]
    return per_call(lambda: link.jobs(own), 10), per_call(link.queue, 5)


def fan_commands(peers):
    """Return, for each way to run a fan, what makes its command of the number of stages."""
    loop = "i=0; while [ $i -lt $0 ]; do sbatch -Q -n1 -t1 -o /dev/null --wrap true; i=$((i+1)); done"
    commands = {"sbatch in a loop": lambda count: ["sh", "-c", loop, str(count)]}
    for name, program in PEERS.items():
        found = subprocess.run([peers, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0
        if found:
            commands[name] = lambda count, program=program: [peers, "-c", program, str(count)]
    asa = str(Path(sys.executable).with_name("asa"))
    for name in STRATEGIES:
        run = [asa, "run", "fan.toml", "--backend", "slurm-cli", "--strategy", name]
        commands[f"asa {name}"] = lambda _count, run=run: run
    return commands


def fan_folder(testbed, count):
    """Return a folder with a workflow of stages that run `true`, once nothing runs any more."""
    while testbed.run_as_root("squeue", "-h", "-t", "RUNNING,COMPLETING").strip():
        time.sleep(0.2)
    folder = Path(tempfile.mkdtemp(dir=testbed.root / "jobs"))
    stages = [f'[[stage]]\nname = "s{n}"\ncores = 1\nwalltime = "1min"\ncommand = "true"\n' for n in range(count)]
    (folder / "fan.toml").write_text('name = "fan"\n' + "".join(stages))
    return folder


def environment_on(testbed):
    """Return variables by which a client has a home of its own, and asks this cluster."""
    home = testbed.folder("home")
    environment = {**os.environ, "HOME": str(home), "SLURM_CONF": testbed.env["SLURM_CONF"]}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def fan_cost(testbed, command, count, environment):
    """Run a fan of stages on an idle cluster; return its CPU seconds."""
    folder = fan_folder(testbed, count)
    before = spent()[1]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: exit {done.returncode}\n{done.stderr}")
    return spent()[1] - before


def fans(peers, others):
    """Print the cost of fans by asa and by peers, with pending jobs of others in the queue."""
    if reason := missing():
        print(reason)
        return
    with cluster(RELEASES[0], accounting=True) as testbed:
        environment, costs = environment_on(testbed), {}
        crowd(testbed, others)
        for name, of in fan_commands(peers).items():
            fan_cost(testbed, of(FAN[0]), FAN[0], environment)  # what has to be compiled is
            costs[name] = [min(fan_cost(testbed, of(n), n, environment) for _ in range(3)) for n in FAN]
        small, large = FAN
        each = {name: (cost[1] - cost[0]) / (large - small) for name, cost in costs.items()}
        plain = each["sbatch in a loop"]
        print(f"CPU of fans of `true` on Slurm {testbed.version}, least of three")
        for name, cost in costs.items():
            fixed = cost[0] - small * each[name]
            print(
                f"{name:<18} fixed {fixed:5.2f} s   a stage {1e3 * each[name]:6.2f} ms, {each[name] / plain:5.2f} times"
                f" the loop's   {small} stages {cost[0]:5.2f} s, {large} stages {cost[1]:5.2f} s,"
                f" {cost[1] / costs['asa per-stage'][1]:4.2f} times per-stage's (budget {budgets.PREDICTING:g})"
            )


def memory():
    """Print what clients take that run a fan of a stage, and one of many stages."""
    if reason := missing():
        print(reason)
        return
    with cluster(RELEASES[0], accounting=True) as testbed:
        environment = environment_on(testbed)
        for count in (1, MANY):
            command = fan_commands(sys.executable)["asa per-stage"](count)
            taken = budgets.peak_bytes(command, fan_folder(testbed, count), environment)
            print(f"asa per-stage, a fan of {count}: {taken / 1e6:.0f} MB; budget {budgets.CLIENT_BYTES / 1e6:.0f} MB")


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--fan", action="store_true", help="measure fans of stages")
    parser.add_argument("--others", type=int, default=0, metavar="N", help="with --fan, N pending jobs of others")
    parser.add_argument("--memory", action="store_true", help="measure the memory of clients")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="has the peers of --fan")
    options = parser.parse_args()
    if options.fan:
        fans(options.peers, options.others)
        return
    if options.memory:
        memory()
        return
    os.umask(0)
    with tempfile.TemporaryDirectory() as folder:
        first, later = looks_an_hour(Path(folder))
    print(f"questions in the first hour of waiting: {first}; in a later one: {later} (12 of them for the whole queue)")
    print(
        f"{options.jobs} jobs of others in the queue; ms of CPU, least of ten: the client / its commands; ms it takes"
    )
    for release, kind in itertools.product(RELEASES, ("rest", "commands")):
        if reason := missing(release):
            print(f"{release}: {reason}")
            continue
        with cluster(release) as testbed:
            crowd(testbed, options.jobs)
            look, queue = measured(testbed, kind)
            share = (later - 12) * look[0] + 12 * queue[0]
            print(
                f"Slurm {testbed.version:<8} {kind:<9} a look {look[0]:6.1f} / {look[1]:5.1f}; {look[2]:6.0f}"
                f"   the queue {queue[0]:6.1f} / {queue[1]:5.1f}; {queue[2]:6.0f}"
                f"   an hour {share / 1e3:5.1f} s, {share / 36e3:.3f} % of a core"
            )


if __name__ == "__main__":
    main()
