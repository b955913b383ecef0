"""Slurm as a backend keeps the contract of backends: real daemons of both versions, through both links."""

import itertools
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from asa.backends.slurm.backend import JobDefaults, SlurmBackend
from asa.backends.slurm.commands import CommandLink
from asa.backends.slurm.rest import RestLink

from asa.backend import Capabilities, PartitionLimits
from asa.testing import check_backend

LINKS = ("rest", "commands")
SITE = Capabilities(
    "testbed",
    112,
    28,
    age_accrues=False,
    partition="normal",
    partitions={"normal": PartitionLimits(cores_per_node=28)},
    arrays=True,
    max_array_size=1001,
)
FOLDERS = itertools.count()


@pytest.fixture
def client(slurm):
    """Open clients by a link's name, each in a folder of its own; they are closed at the end."""
    opened = []

    def client(link, folder=None, **options):
        made = RestLink(f"unix://{slurm.socket}") if link == "rest" else CommandLink(prefix=slurm.prefix)
        folder = folder or slurm.folder(f'contract {next(FOLDERS)}, it\'s a "quoted" one')
        defaults = JobDefaults(environment={"PATH": "/usr/bin:/bin"}, inherit=False, folder=folder)
        backend = SlurmBackend(made, folder, SITE, **{"defaults": defaults, "poll_s": 1.0, "max_poll_s": 3.0} | options)
        for part in Path(folder).iterdir():
            part.chmod(stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)  # the client may be root, the jobs are not
        opened.append(backend)
        return backend

    mask = os.umask(0)  # the client may be root, the jobs are not
    yield client
    os.umask(mask)
    for backend in opened:
        backend.close()


def test_it_keeps_the_contract(slurm, client):
    """Both links at the same time: mostly they wait for the end of a walltime of a minute, Slurm's shortest."""
    with ThreadPoolExecutor(len(LINKS)) as threads:
        checks = [
            threads.submit(check_backend, lambda link=link: client(link), run_s=12.0, at_once=True) for link in LINKS
        ]
        for done in checks:
            done.result()
