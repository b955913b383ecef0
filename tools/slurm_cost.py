# ruff: noqa: T201 - it prints its table
"""Measures the cost of a waiting client, CPU time and requests, on real daemons with many other jobs in the queue.

    python tools/slurm_cost.py               2,000 jobs of others, both releases where they are, both ways of asking

A look asks for the client's four jobs; once in five minutes, the whole queue is read for the estimator. The number of
looks per hour of waiting is counted on a virtual clock.
"""

import argparse
import itertools
import os
import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def cluster(release):
    """Start a temporary cluster."""
    testbed = Testbed(Path(tempfile.mkdtemp(prefix="asa-", dir="/tmp")), release=release)
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


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2000)
    options = parser.parse_args()
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
