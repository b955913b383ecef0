"""A pool as the executor of commands: workers come on demand; if none can come, the command fails with the reason."""

import os
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="dask.distributed is not installed")

from local_queue import Queue

from asa.errors import UnavailableError
from asa.pool import jobs
from asa.pool.executors import executor_of


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder whose only site is this machine, with a queue of its own."""
    queue = Queue(tmp_path, cores=2)
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "default.toml").write_text(f'backend = "local"\nspool = "{tmp_path}/spool"\ncores = 2\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASA_SITES", str(tmp_path / "sites"))
    monkeypatch.setenv("ASA_POOLS", str(tmp_path / "pools"))
    monkeypatch.setenv("ASA_BANK", str(tmp_path / "bank"))
    yield tmp_path
    queue.close()


def test_what_is_asked_for_brings_workers(here):
    """Of which there are none before; what is shared reaches them all the same."""
    with executor_of("pool", jobs=1) as executor:
        shared = executor.share(17)
        assert executor.submit(divmod, shared, 5).result(timeout=90) == (3, 2)
        assert executor.submit(Path.cwd).result(timeout=30) == here
        assert executor.submit(os.getpid).result(timeout=30) != os.getpid()


def test_where_no_worker_ever_comes_nobody_waits_for_ever(here, monkeypatch):
    """The jobs begin and end, and no worker was in them."""
    monkeypatch.setattr(jobs.WorkerJobs, "_command", lambda *_: "exit 1")
    with (
        pytest.raises(UnavailableError, match=r"(?s)no worker comes: 3 jobs in a row .*logs"),
        executor_of("pool", 1) as executor,
    ):
        executor.submit(divmod, 17, 5).result(timeout=120)
