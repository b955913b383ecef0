"""A cable that is pulled between an allocation and its scheduler, in a network of its own."""

import os
import shutil
import subprocess
import sys
import time

import pytest

pytest.importorskip("distributed", reason="dask.distributed is not installed")

import dask
from distributed import Client
from local_queue import Queue
from slurm_testbed import until

from asa.pool import AsaCluster
from asa.pool.allocation import AllocationPhase
from asa.pool.credentials import make_security


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def cable():
    """Two ends of a cable, the far one in a network of its own: its name, the near end, and the near address."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("a network of its own needs root and the command ip")
    number = os.getpid() % 60_000
    name, near, far = f"asa{number}", f"asan{number}", f"asaf{number}"
    net = f"10.{200 + number // 256 % 50}.{number % 256}"
    try:
        if (
            ip("netns", "add", name).returncode
            or ip("link", "add", near, "type", "veth", "peer", "name", far).returncode
        ):
            pytest.skip("no network can be made here")
        ip("link", "set", far, "netns", name)
        ip("addr", "add", f"{net}.1/24", "dev", near)
        ip("link", "set", near, "up")
        ip("-n", name, "addr", "add", f"{net}.2/24", "dev", far)
        ip("-n", name, "link", "set", far, "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name, near, f"{net}.1"
    finally:
        ip("link", "del", near)
        ip("netns", "del", name)


@pytest.mark.full
def test_what_is_cut_off_runs_again_elsewhere_and_arrives_once(cable, tmp_path):
    """Each result once, though tasks may run on where nobody hears of them; encrypted, over a real network."""
    name, near, address = cable
    flag, python = tmp_path / "far", tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\n[ ! -e {flag} ] || {{ rm {flag}; exec ip netns exec {name} {sys.executable} "$@"; }}\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    traces = tmp_path / "runs"
    traces.mkdir()

    def count(item):
        with (traces / str(item)).open("a") as file:
            file.write("x")
        time.sleep(0.2)
        return item

    queue = Queue(tmp_path, cores=4)
    settings = {"spool": str(tmp_path / "spool"), "cores": 4}
    made = {"cores": 1, "threads": 1, "n_workers": 0, "bank": False, "dashboard_address": ":0", "python": str(python)}
    made |= {"security": make_security(), "host": address, "folder": tmp_path / "pool"}
    try:
        with (
            dask.config.set({"distributed.comm.timeouts.tcp": "12s"}),
            AsaCluster(backend="local", settings=settings, **made) as pool,
            Client(pool) as client,
        ):
            flag.touch()
            far = pool.ask()
            until(lambda: far.phase is AllocationPhase.ALIVE, what="the far worker")
            assert not flag.exists()
            near_by = pool.ask()
            until(lambda: near_by.phase is AllocationPhase.ALIVE, what="the near worker")
            tasks = client.map(count, range(40))
            until(lambda: sum(1 for _ in traces.iterdir()) > 6, what="work under way")
            assert ip("link", "set", near, "down").returncode == 0
            until(lambda: not far.workers, what="the loss of the far worker")
            assert sorted(client.gather(tasks)) == list(range(40))
            ip("link", "set", near, "up")  # what it sends now is not taken
            assert client.submit(sum, tasks).result(timeout=60) == sum(range(40))
            assert {int(path.name) for path in traces.iterdir()} == set(range(40))
            pool.release(far)
            until(lambda: far.phase is AllocationPhase.ENDED, what="the end of what was cut off")
    finally:
        queue.close()
