"""Only its user can talk to a pool and see its work, even on this machine."""

import json
import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed", reason="dask.distributed is not installed")

import dask
from distributed.security import Security

from asa.errors import InputError, OwnerError, UnavailableError
from asa.pool import AsaCluster, stages
from asa.pool.jobs import WorkerJobs, make_scratch
from asa.pool.pages import on_loopback
from asa.pool.roster import Roster
from asa.pool.values import AllocationShape

_POOL = """
import sys
from asa.pool import AsaCluster
from distributed import Client
if __name__ == "__main__":
    with AsaCluster(backend="local", cores=1, threads=1, n_workers=1, bank=False) as pool, Client(pool) as client:
        print(client.submit(sum, [1, 2]).result(60), pool.dashboard or "no page", flush=True)
        sys.stdin.readline()
"""
_CALLER = """
import asyncio, http.client, json, os, sys
from distributed.core import rpc

def ports(uid):
    lines = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]
    theirs = [one[1].split(":") for one in lines if one[3] == "0A" and int(one[7]) == uid]
    return sorted((address, int(port, 16)) for address, port in theirs)

async def calls(port):
    try:
        async with rpc(f"tcp://127.0.0.1:{port}", timeout=1) as there:
            return str((await asyncio.wait_for(there.identity(), 1))["type"])
    except Exception as error:
        return ""

def shown(port, page):
    web = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        web.request("GET", page)
        return f"{port}{page}" if web.getresponse().status == 200 else ""
    except (OSError, http.client.HTTPException):
        return ""

async def main(uid):
    listening = ports(uid)
    answers = await asyncio.gather(*(calls(port) for _, port in listening))
    pages = ("/status", "/info/main/workers.html", "/json/counts.json")
    seen = [shown(port, page) for _, port in listening for page in pages]
    print(json.dumps([listening, [*filter(None, answers)], [*filter(None, seen)]]))

asyncio.run(main(int(sys.argv[1])))
"""


@pytest.mark.full
def test_another_user_of_this_machine_can_neither_call_a_pool_nor_see_its_pages(accounts):
    """Before, its scheduler, its workers and their nannies took orders of anybody, without encryption."""
    victim, stranger = accounts.victim, accounts.stranger
    owner = victim.start(sys.executable, "-c", _POOL, stdin=-1, stdout=-1)
    try:
        assert owner.stdout.readline() == "3 no page\n"
        tried = stranger.run(sys.executable, "-c", _CALLER, victim.uid)
        assert tried.returncode == 0, tried.stderr
        listening, answered, seen = json.loads(tried.stdout)
        assert len(listening) >= 3  # the scheduler, a worker, its nanny
        assert {address for address, _ in listening} == {"0100007F"}  # the loopback
        assert answered == []
        assert seen == []
    finally:
        owner.communicate("\n", timeout=60)


_SCRATCH = """
import json, os, sys
from asa.pool import AsaCluster
from distributed import Client, get_worker

def where():
    return get_worker().local_directory, sys.path

if __name__ == "__main__":
    with AsaCluster(backend="local", cores=1, threads=1, n_workers=1, bank=False) as pool, Client(pool) as client:
        worker, paths = client.submit(where).result(60)
        used = [worker, pool.scheduler.local_directory, *paths, *sys.path]
        print(json.dumps([path for path in used if path.startswith(os.environ["TMPDIR"])]), flush=True)
        sys.stdin.readline()
"""


@pytest.mark.parametrize("name", ["dask-scratch-space", "asa-pools-{}"])
@pytest.mark.full
def test_a_pool_keeps_nothing_in_a_folder_of_another_user(accounts, name):
    """Before, it kept results that memory had no space for, and looked for modules, in a folder that anybody made."""
    victim, stranger, place = accounts.victim, accounts.stranger, accounts.group_folder(mode=0o1777)
    taken = stranger.mkdir(place / name.format(victim.uid), 0o777)
    owner = victim.start(sys.executable, "-c", _SCRATCH, stdin=-1, stdout=-1, umask=0o002, env={"TMPDIR": str(place)})
    try:
        used = [Path(path) for path in json.loads(owner.stdout.readline())]
        assert len(used) >= 4
        for path in used:
            top = place / path.relative_to(place).parts[0]
            assert (top.stat().st_uid, top.stat().st_mode & 0o777) == (victim.uid, 0o700), path
        assert list(taken.iterdir()) == []
    finally:
        owner.communicate("\n", timeout=60)
    left = [path.name for path in place.iterdir() if path != taken]
    assert not [name for name in left if name.startswith("asa-pool-")], "the scheduler's is removed"


def test_workers_of_several_nodes_have_a_folder_of_the_users_own_on_each(accounts):
    """As on one, and where a stranger has made the folder that its user would have there."""
    victim, place = accounts.victim, accounts.group_folder(mode=0o1777)
    python = victim.write(victim.home / "python", '#!/bin/sh\nfor word; do echo "$word"; done\n', 0o755)
    jobs = WorkerJobs("pool", str(python), "env", {}, {})
    for mode in (None, 0o777):
        if mode is not None:
            (place / f"asa-pools-{victim.uid}").rmdir()
            accounts.stranger.mkdir(place / f"asa-pools-{victim.uid}", mode)
        for nodes in (1, 2):
            command = jobs.spec("a1", AllocationShape(nodes, 60.0, 1, nodes=nodes), "tls://here:1", 60.0).command
            done = victim.sh(command, env={"TMPDIR": str(place)}, umask=0o002)
            words = done.stdout.splitlines()
            folder = Path(words[words.index("--local-directory") + 1])
            assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (victim.uid, 0o700), done
            assert folder.parent == place


@pytest.mark.parametrize("is_configured", [False, True])
def test_a_pools_files_are_where_nobody_else_can_exchange_them(accounts, is_configured):
    """Before, in a folder that could be renamed, and looked for modules in whatever had its name then."""
    victim, place = accounts.victim, accounts.group_folder()
    jobs = WorkerJobs("pool", "echo", "env", {}, {})
    with dask.config.set({"temporary-directory": str(place)} if is_configured else {}):
        command = jobs.spec("a1", AllocationShape(1, 60.0, 1), "tls://here:1", 60.0).command
    done = victim.sh(command, env={} if is_configured else {"TMPDIR": str(place)})
    folder = Path(done.stdout.split()[-1])
    assert folder.parent == Path("/tmp")
    assert f"others can exchange what is in {place}: workers keep their files in /tmp" in done.stderr
    with suppress(OSError):  # others' pools have theirs there
        folder.rmdir()
    code = "from asa.pool.jobs import make_scratch; print(make_scratch())"
    env = {"DASK_TEMPORARY_DIRECTORY" if is_configured else "TMPDIR": str(place)}
    made = Path(victim.run(sys.executable, "-c", code, env=env).stdout.strip())
    made.rmdir()
    assert made.parent == Path("/tmp")


def test_a_pools_files_are_where_dask_is_configured_to_have_them(tmp_path, monkeypatch):
    """As on a disk of the node; where TMPDIR is not there, they are in /tmp, as Python has it."""
    place = tmp_path / "fast disk"
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    jobs = WorkerJobs("pool", "echo", "env", {}, {})

    def folder():
        command = jobs.spec("a1", AllocationShape(1, 60.0, 1), "tls://here:1", 60.0).command
        return subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout.split("--")[-1]

    assert folder() == f"local-directory /tmp/asa-pools-{os.getuid()}\n"
    with dask.config.set({"temporary-directory": str(place)}):
        assert folder() == f"local-directory {place}/asa-pools-{os.getuid()}\n"
        assert Path(make_scratch()).parent == place


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_worker_is_let_in_by_the_certificate_that_its_pool_has_made(accounts, nodes):
    """Before, others of a group could put one of theirs in its place as a worker began, or while it ran."""
    victim, stranger, project = accounts.victim, accounts.stranger, accounts.group_folder()
    kept, temporary = victim.mkdir(project / "pool") / "tls", accounts.group_folder("tmp", 0o1777)
    victim.mkdir(kept, 0o700)
    names = ("tls-ca-file", "tls-cert", "tls-key")
    files = {name: victim.write(kept / f"{name}.pem", f"{name} of the victim\n", 0o600) for name in names}
    python = victim.write(victim.home / "python", '#!/bin/sh\nfor word; do echo "$word"; done\n', 0o755)
    jobs = WorkerJobs("pool", str(python), "env", {}, files, kept)
    command = jobs.spec("a1", AllocationShape(nodes, 60.0, 1, nodes=nodes), "tls://here:1", 60.0).command
    for _ in range(2):  # of which the second removes what the first has left
        done = victim.sh(command, env={"TMPDIR": str(temporary)}, umask=0o002)
        words = done.stdout.splitlines()
        read = {name: Path(words[words.index(f"--{name}") + 1]) for name in names}
        assert [path.read_text() for path in read.values()] == [f"{name} of the victim\n" for name in names], done
        [scratch] = temporary.iterdir()
        assert {path.parent.parent for path in read.values()} == {scratch}
        assert {path.parent for path in read.values()} == {*scratch.iterdir()}
        assert stat.S_IMODE(scratch.stat().st_mode) & 0o777 == 0o700
    stranger.call((project / "pool").rename, project / "gone")
    stranger.mkdir(stranger.mkdir(project / "pool") / "tls")
    for name in names:
        stranger.write(kept / f"{name}.pem", f"{name} of a stranger\n")
    done = victim.sh(command, env={"TMPDIR": str(temporary)})
    assert (done.returncode, done.stdout) == (87, "")
    assert f"{kept} is not there, or belongs to another user: no worker begins" in done.stderr


def test_a_pool_without_encryption_is_refused(tmp_path):
    """Nobody has one by mistake."""
    settings = {"spool": str(tmp_path / "spool"), "cores": 1}
    with pytest.raises(InputError, match="does not require encryption"):
        AsaCluster(backend="local", settings=settings, folder=tmp_path / "pool", bank=False, security=Security())


def test_a_page_is_shown_to_this_machine_alone_unless_a_host_is_named():
    """As dask takes addresses, an empty host would be all of this machine's."""
    assert on_loopback(":8787") == on_loopback("8787") == "127.0.0.1:8787"
    assert on_loopback("login1:8787") == "login1:8787"


def test_a_pool_is_not_kept_where_others_can_change_it(accounts):
    """Its key and its jobs' scripts are there."""
    victim, project = accounts.victim, accounts.group_folder(mode=0o3775)
    theirs = accounts.stranger.mkdir(project / "theirs", 0o777), victim.mkdir(project / "open", 0o2775)

    def begins(folder):
        settings = {"spool": str(victim.home / "spool"), "cores": 1}
        AsaCluster(backend="local", settings=settings, folder=folder, bank=False, n_workers=0).close()

    for folder in theirs:
        with pytest.raises(OwnerError, match=r"belongs to user|can be changed by group"):
            victim.call(begins, folder)
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_each_member_of_a_group_has_a_folder_of_pools_in_its_project(accounts, mode):
    """Before, the second one's could not be made; or it was, where the first one could put another in its place."""
    victim, project = accounts.victim, accounts.group_folder(mode=0o3775)
    accounts.stranger.mkdir(project / "asa-pools", mode)
    settings = {"spool": str(victim.home / "spool"), "cores": 1}
    folder = victim.call(_pool_of, settings, cwd=project, umask=0o002)
    own = project / f"asa-pools-{victim.uid}"
    assert folder.parent == own
    assert own.stat().st_mode & 0o022 == 0
    assert list((project / "asa-pools").iterdir()) == []


def test_a_pool_is_not_kept_where_others_can_put_another_in_its_place(accounts):
    """Before, only the pool's own folder counted; now one that all share is fit where the sticky bit is set."""
    victim, project = accounts.victim, accounts.group_folder()
    settings = {"spool": str(victim.home / "spool"), "cores": 1}
    theirs, shared = accounts.stranger.mkdir(project / "theirs", 0o777), accounts.group_folder("shared", 0o3775)
    for pools, words in ((theirs, "belongs to|can be changed"), (project, "can be changed by group")):
        with pytest.raises(OwnerError, match=words) as refusal:
            victim.call(_pool_of, settings, cwd=project, env={"ASA_POOLS": str(pools)})
        assert "ASA_POOLS" in str(refusal.value.hint)
        assert not [path for path in pools.iterdir() if path.name.startswith("pool-")]
    folder = victim.call(_pool_of, settings, cwd=project, env={"ASA_POOLS": str(shared)})
    assert folder.parent == shared


def _pool_of(settings):
    with AsaCluster(backend="local", settings=settings, bank=False, n_workers=0) as pool:
        return pool.folder


def test_nothing_of_a_pool_is_written_through_a_link(tmp_path):
    """Before, its tokens, its picture's figures and what tasks print were."""
    precious = tmp_path / "thesis.tex"
    precious.write_text("ten years of work\n")
    folder = tmp_path / "pool"
    folder.mkdir(0o700)
    for name in ("timeline.json", "asked", "log.out"):
        (folder / name).symlink_to(precious)
    with pytest.raises(UnavailableError, match="cannot be written"):
        Roster(folder).add(SimpleNamespace(id="a1", token="t"))
    (folder / "asked").unlink()
    AsaCluster(
        backend="local", settings={"spool": str(tmp_path / "spool"), "cores": 1}, folder=folder, bank=False, n_workers=0
    ).close()
    assert not (folder / "timeline.json").is_symlink()
    order = stages._Order("echo through", str(folder), "1", str(folder / "log"), str(folder), 60.0)
    with pytest.raises(OSError, match="symbolic links"):
        stages.run_part(order, [])
    assert precious.read_text() == "ten years of work\n"
