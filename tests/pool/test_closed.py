"""Who may talk to a pool, and see what it does: its user alone, also where its workers are on this machine."""

import json
import sys

import pytest

pytest.importorskip("distributed", reason="dask.distributed is not installed")

from distributed.security import Security

from asa.errors import InputError, OwnerError
from asa.pool import AsaCluster
from asa.pool.pages import on_loopback

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
    victim, project = accounts.victim, accounts.group_folder()
    theirs = accounts.stranger.mkdir(project / "theirs", 0o777), victim.mkdir(project / "open", 0o2775)

    def begins(folder):
        settings = {"spool": str(victim.home / "spool"), "cores": 1}
        AsaCluster(backend="local", settings=settings, folder=folder, bank=False, n_workers=0).close()

    for folder in theirs:
        with pytest.raises(OwnerError, match=r"belongs to user|can be changed by group"):
            victim.call(begins, folder)
        assert list(folder.iterdir()) == []
