"""The queue of this machine is its user's alone: one that others own, or can change, is not served or heard."""

import os
import struct
import time

import pytest
from asa.backends.local import folder_check
from asa.backends.local.processes import begin
from asa.backends.local.server import KEPT_S, Server
from asa.backends.local.spool import JobOrder, Spool
from local_queue import Queue
from slurm_testbed import until

from asa.backend import JobSpec


def _make(root):
    Spool(root).make()


def _sweep(root):
    spool = Spool(root)
    spool.make()
    Server(spool)._sweep()


def _age(folder):
    (folder / "precious").write_text("work")
    old_s = time.time() - 2 * KEPT_S
    os.utime(folder, (old_s, old_s))


def _plant(link, leads_to):
    link.symlink_to(leads_to)


def test_a_queue_is_not_reached_by_a_link_of_another_user(accounts):
    """Before, the server followed it into a folder of its user's, and deleted what was old and named by a number."""
    victim, stranger, place = accounts.victim, accounts.stranger, accounts.group_folder(mode=0o3777)
    results = victim.mkdir(victim.home / "results")
    (victim.home / "results" / "ended").mkdir()
    for folder in (results / "ended", victim.mkdir(results / "jobs")):
        os.chown(folder, victim.uid, victim.uid)
    old = victim.mkdir(results / "ended" / "17")
    victim.call(_age, old)
    stranger.call(_plant, place / "host", results)
    with pytest.raises(PermissionError, match="belongs to another user"):
        victim.call(_sweep, place / "host")
    assert (old / "precious").exists()


def test_nothing_in_a_queue_is_reached_by_a_link(accounts):
    """Neither a folder nor a file in it may be a link."""
    victim = accounts.victim
    for number, name in enumerate(("jobs", "ended", "count", "lock", "changes", "bell")):
        root = victim.home / f"spool-{number}"
        victim.call(_make, root)
        (root / name).rename(root / "aside")
        victim.call(_plant, root / name, root / "aside")
        with pytest.raises(OSError, match=r"in the way of|symbolic links"):
            victim.call(_make, root)


def test_nothing_that_an_ended_job_was_given_is_kept(tmp_path, monkeypatch):
    """Neither of jobs that ran, nor of cancelled ones."""
    monkeypatch.setenv("HF_TOKEN", "kept-to-itself")
    queue = Queue(tmp_path, cores=1)
    try:
        backend = queue.connect()

        def submit(token, command):
            spec = JobSpec(token, 1, 60.0, command=command, token=token, secrets=("HF_TOKEN",))
            return backend.submit(spec).partition("@")[0]

        def ended():
            return {str(number) for number in queue.spool.ended_numbers()}

        ran = submit("a", 'test -n "$HF_TOKEN"')
        until(lambda: ran in ended(), what="its end")
        assert queue.spool.standing(int(ran)).exit_code == 0
        others = {submit("b", "sleep 60"), submit("c", "true")}
        assert _holding(queue, "kept-to-itself") == others, "they have not ended"
        for number in others:
            (queue.spool.jobs / number / "cancel").touch()
            queue.spool.ring(int(number))
        until(lambda: others <= ended(), what="the end of all")
        assert _holding(queue, "kept-to-itself") == set()
    finally:
        queue.close()


def _holding(queue, text):
    files = [path for path in queue.spool.root.rglob("*") if path.is_file()]
    return {path.parent.name for path in files if text.encode() in path.read_bytes()}


@pytest.mark.parametrize("umask", [0o002, 0o022])
def test_a_queue_is_its_users_alone(accounts, umask):
    """Whatever the umask; also the folders above it that are made for it."""
    victim = accounts.victim
    root = victim.home / "state" / "asa" / "host"
    victim.call(_make, root, umask=umask)
    victim.call(_make, root, umask=umask)
    for folder in (root, root.parent, root.parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_queue_is_not_used_where_others_can_put_another_in_its_place(accounts):
    """Earlier versions checked only the queue's own owner; a group that writes to its parent could replace it."""
    victim, project = accounts.victim, accounts.group_folder()
    ours = victim.mkdir(project / "ours", 0o2775)
    theirs = accounts.stranger.mkdir(project / "theirs", 0o777)
    for folder, why in ((project, "others can change"), (ours, "others can change"), (theirs, "others can change")):
        with pytest.raises(PermissionError, match=why):
            victim.call(_make, folder / "spool" / "host")
    kept = victim.mkdir(victim.home / "kept", 0o700)
    victim.home.chmod(0o711)
    victim.call(_make, kept / "host")
    (kept / "host").chmod(0o777)
    kept.chmod(0o755)
    with pytest.raises(PermissionError, match=r"see that nobody has, then: chmod go-w .*/kept/host"):
        victim.call(_make, kept / "host")
    victim.home.chmod(0o700)  # nobody gets there
    victim.call(_make, kept / "host")


def test_a_queue_may_lie_where_anybody_makes_files_but_changes_nobody_elses(accounts):
    """As in /var/tmp; and the user's own links, and root's, lead to it."""
    victim, place = accounts.victim, accounts.group_folder(mode=0o1777)
    victim.call(_make, place / "spool" / "host")
    victim.call(_plant, victim.home / "link", place / "spool")
    victim.call(_make, victim.home / "link" / "host")
    accounts.stranger.mkdir(place / "theirs", 0o755)
    with pytest.raises(PermissionError, match="belongs to another user"):
        victim.call(_make, place / "theirs")


def test_a_group_of_the_users_own_is_no_other_unless_a_list_lets_others_write(tmp_path, monkeypatch):
    """Earlier versions took rights that an access list gives to another user for those of the user's own group."""

    class Group:
        gr_name, gr_mem = "ann", []

    class User:
        pw_name, pw_gid = "ann", os.getegid()

    monkeypatch.setattr(folder_check.grp, "getgrgid", lambda gid: Group)
    monkeypatch.setattr(folder_check.pwd, "getpwuid", lambda uid: User)
    monkeypatch.setattr(folder_check, "_USERS", tmp_path / "users")
    monkeypatch.setattr(folder_check, "_looked_at", lambda path: (path, path.stat(), True))  # as where all get there
    folder = tmp_path / "queue"
    folder.mkdir()
    folder.chmod(0o770)
    folder_check.check_folder(folder)
    entries = [(1, 7, -1), (2, 7, 64202), (4, 7, -1), (16, 7, -1), (32, 0, -1)]
    try:
        os.setxattr(folder, "system.posix_acl_access", b"\2\0\0\0" + b"".join(struct.pack("<HHi", *e) for e in entries))
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")
    with pytest.raises(PermissionError, match="others can change"):
        folder_check.check_folder(folder)
    os.removexattr(folder, "system.posix_acl_access")
    (tmp_path / "users").write_text(f"bob:x:64202:{os.getegid()}:Bob:/home/bob:/bin/sh\n")
    with pytest.raises(PermissionError, match="others can change"):
        folder_check.check_folder(folder)


def test_a_run_says_why_a_queue_is_not_used(accounts):
    """In words, with what to do, and before anything is submitted."""
    victim, project = accounts.victim, accounts.group_folder()
    spool = f"spool={project}/spool"
    flow = '[[stage]]\nname = "a"\ncores = 1\nwalltime = "1min"\ncommand = "true"\n'
    file = victim.write(victim.home / "flow.toml", f'name = "flow"\n{flow}')
    done = victim.asa("run", file, "--backend", "local", "--option", spool, cwd=victim.home)
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "others can change what is in it" in said
    assert "--option spool=DIR names another folder" in said
    assert said.count("Nothing was submitted") == 1
    assert "later" not in said
    examined = victim.asa("doctor", "--backend", "local", "--option", spool, env={"COLUMNS": "200"})
    assert "as in spool=/var/tmp/$USER" in " ".join(examined.stdout.split())


def test_what_a_job_prints_is_open_to_nobody_else_from_the_beginning(tmp_path):
    """In earlier versions the umask applied until the script began, and others could open it meanwhile."""
    folder, log = tmp_path / "17", tmp_path / "job.out"
    folder.mkdir()
    (folder / "script").write_text("stat -L -c %a /dev/fd/1; umask\n")
    order = JobOrder("17", 1, 1, 60.0, 0.0, "", str(log), str(tmp_path / "job.err"), dict(os.environ), umask=0o002)
    assert begin(folder, order).wait(60) == 0
    assert log.read_text().split() == ["644", "0002"]
