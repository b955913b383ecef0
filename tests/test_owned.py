"""Files that another user owns or can change are not acted on; files that asa makes are the user's alone."""

import ast
import json
import os
import re
import secrets
import shutil
import stat
import struct
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from accounts import GROUP
from asa.backends.shell.script import Payload, batch_script
from slurm_testbed import until

from asa.backend import Capabilities
from asa.continuation import Continuation
from asa.core import owned, safe
from asa.core.reading import OTHERS_BYTES
from asa.elements import parse_array_of
from asa.errors import InputError, OwnerError, StateError
from asa.hosted.run import command_of
from asa.hosted.settings import runs_folder
from asa.job import text as job_text
from asa.keepers import cron
from asa.legs.running import Turn
from asa.outcome import JobOutcome
from asa.payload import PRIVATE, payload_text
from asa.preparation import Preparation
from asa.runner import RunFolder, RunPlan, find_run, list_runs
from asa.workflow import Stage

SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]

FLOW = """
name = "flow"

[[stage]]
name = "a"
cores = 1
walltime = "1min"
command = "echo it ran >ran"
"""


@pytest.fixture
def project(accounts):
    return accounts.group_folder()


def planned(command="true", **more):
    """Plan a run of one stage on this machine."""
    return RunPlan(
        **{
            "id": secrets.token_hex(8),
            "name": "flow",
            "workflow": "flow",
            "stages": (Stage("a", cores=1, walltime_s=60, command=command),),
            "strategy": "per-stage",
            "backend": "local",
            "settings": {},
            "capabilities": Capabilities("x", 1, 1, age_accrues=False),
            "created_s": time.time(),
            "history": 0,
        }
        | more
    )


def made(user, runs, *arguments, **more):
    """Have a user begin a run's folder, as `asa run` does, and return it."""
    if not runs.exists():  # of all, as a site makes one
        runs.mkdir()
        os.chown(runs, user.uid if runs.is_relative_to(user.home) else 0, GROUP)
        runs.chmod(0o3775)
    return user.call(_create, runs, planned(*arguments, **more))


def _create(runs, plan):
    path = RunFolder.create(runs, replace(plan, folder=plan.folder or str(runs.parent))).path
    for part in ("logs", "marks"):  # as its backend does
        safe.make_folder(path / part)
    with RunFolder(path).driven():
        pass
    (path / "journal.jsonl").touch(0o600)
    return path


def planted(accounts, project, **more):
    """Have the stranger leave a run that would run a command of theirs as the user who resumes it."""
    more = {"created_s": time.time() + 60.0, "name": "theirs"} | more
    run = made(accounts.stranger, project / "asa-runs", f"id -u >{project}/acted", **more)
    accounts.stranger.sh(f"chmod 777 {run} {run}/*/; chmod 666 {run}/*.json*")
    return run


# ---------------------------------------------------------------------- a run of somebody else's


@pytest.mark.parametrize("command", ["resume", "cancel", "tick"])
def test_a_run_of_another_user_is_not_acted_on(accounts, project, command):
    run = planted(accounts, project, notify=f"id -u >{project}/acted")
    done = accounts.victim.asa(command, run.name, cwd=project)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"belongs to user {accounts.stranger.uid}" in done.stderr
    assert f"Only user {accounts.stranger.uid} can go on with this run" in done.stderr
    assert "trust" not in done.stderr
    assert not (project / "acted").exists()
    assert not list((run / "wishes").iterdir())


def test_settings_of_another_users_run_are_not_used(accounts, project):
    run = planted(accounts, project, backend="slurm-cli", settings={"prefix": f"sh -c 'id -u >{project}/acted' --"})
    for command in ("resume", "cancel", "tick", "status", "explain", "logs", "runs"):
        accounts.victim.asa(command, *([] if command == "runs" else [run.name]), cwd=project)
    assert not (project / "acted").exists()


def test_the_latest_run_is_the_latest_of_ones_own(accounts, project):
    mine = made(accounts.victim, project / "asa-runs")
    planted(accounts, project)
    assert accounts.victim.call(lambda: find_run(project / "asa-runs", "")).path == mine
    done = accounts.victim.asa("cancel", "--yes", cwd=project)
    assert f"{mine.name} is cancelled" in done.stderr
    assert not (project / "acted").exists()


def test_large_runs_of_another_user_are_not_read(accounts, project):
    mine = made(accounts.victim, project / "asa-runs")
    run = planted(accounts, project)
    plan = json.loads((run / "run.json").read_text())
    plan["stages"] = [{**plan["stages"][0], "name": f"s{number}"} for number in range(30_000)]
    accounts.stranger.write(run / "run.json", json.dumps(plan), mode=0o644)
    assert (run / "run.json").stat().st_size > OTHERS_BYTES
    accounts.victim.call(_find_with_no_reading_of, run, project / "asa-runs", mine)
    listed = accounts.victim.asa("runs", cwd=project).stdout
    assert mine.name in listed
    assert "larger than 1 MiB" in listed


def _find_with_no_reading_of(run, runs, mine):
    opened = []
    sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
    assert find_run(runs, "").path == mine
    assert [folder.path for folder in list_runs(runs, only_own=True)] == [mine]
    assert str(mine / "run.json") in opened
    assert not [name for name in opened if name.startswith(f"{run}/")]


def test_a_private_run_of_another_user_is_in_nobodys_way(accounts, project):
    mine = made(accounts.victim, project / "asa-runs")
    made(accounts.stranger, project / "asa-runs", created_s=time.time() + 60.0)
    assert accounts.victim.call(lambda: find_run(project / "asa-runs", "")).path == mine
    assert mine.name in accounts.victim.asa("status", cwd=project).stdout
    listed = accounts.victim.asa("runs", cwd=project).stdout
    assert mine.name in listed
    assert f"belongs to user {accounts.stranger.uid}" in " ".join(listed.split())


@pytest.mark.parametrize("whose", ["stranger", "root"])
def test_who_looks_at_a_private_run_learns_whose_it_is(accounts, project, whose):
    run = made(accounts.stranger, project / "asa-runs")
    user = f"user {accounts.stranger.uid}"
    if whose == "root":
        os.chown(run, 0, GROUP)
        user = "user root"
    for named in ("", "flow", run.name):
        done = accounts.victim.asa("status", *[named] * bool(named), cwd=project)
        said = " ".join(done.stderr.split())
        assert done.returncode == 2, said
        assert 'share = "group"' in said
        assert f"belongs to {user}, and is private" in said or f"Runs of {user} are here, which are private" in said
    listed = " ".join(accounts.victim.asa("runs", cwd=project).stdout.split())
    assert f"belongs to {user}, and is private" in listed
    assert "damaged" not in listed


def test_who_only_looks_is_told_whose_it_is(accounts, project):
    run = planted(accounts, project)
    done = accounts.victim.asa("status", run.name, cwd=project)
    assert done.returncode == 0
    assert f"Note: {run} belongs to user {accounts.stranger.uid}." in done.stderr
    listed = accounts.victim.asa("runs", cwd=project).stdout
    assert not re.search(" $", listed, re.MULTILINE), "no line is as long as the longest"
    assert f"belongs to user {accounts.stranger.uid}" in " ".join(listed.split())


def test_who_looks_at_a_shared_run_is_not_told_to_go_on_with_it(accounts, project):
    run = made(accounts.stranger, project / "asa-runs", share="group")
    alone, kept = f"{run.name} has no client", f"Only user {accounts.stranger.uid} can see who looks after it"
    for said in (alone, kept):
        done = accounts.victim.asa("explain", cwd=project)
        shown = " ".join(done.stdout.split())
        assert done.returncode == 0, done.stderr
        assert said in shown
        assert "asa resume" not in shown
        accounts.stranger.write(run / "kept.json", "{}", 0o600)
    shown = " ".join(accounts.victim.asa("status", run.name, cwd=project, env={"COLUMNS": "200"}).stdout.split())
    assert f"detached: {kept[0].lower()}{kept[1:]}" in shown


def test_of_a_link_the_place_to_trust_is_the_one_to_which_it_leads(accounts, project):
    site = accounts.stranger.write(project / "lab.toml", 'backend = "local"\n')
    sites = accounts.victim.home / ".config" / "asa" / "sites"
    accounts.victim.sh(f"mkdir -p {sites}; ln -s {site} {sites}/lab.toml")
    file = accounts.victim.write(accounts.victim.home / "flow.toml", FLOW)
    command = ("run", file, "--site", "lab", "--dry-run", "--quiet")
    said = " ".join(accounts.victim.asa(*command).stderr.split())
    assert f"Put a copy of your own in place of the link to it, {sites}/lab.toml" in said
    place = re.search("To trust what is in ([^ ]+), add that path as a line to", said)
    assert place, said
    accounts.victim.call(_trust, place[1])
    done = accounts.victim.asa(*command)
    assert done.returncode == 0, done.stderr


def test_a_place_that_the_user_trusts_is_acted_on(accounts, project):
    run = planted(accounts, project)
    accounts.victim.call(_trust, project)
    done = accounts.victim.asa("resume", run.name, "--quiet", cwd=project)
    assert done.returncode == 0, done.stderr
    assert (project / "acted").read_text() == f"{accounts.victim.uid}\n"


def _trust(folder, mode=0o600):
    file = Path.home() / ".config" / "asa" / "trusted"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"# of the group\n{folder}\n")
    file.chmod(mode)


def test_a_line_whose_folder_others_can_exchange_counts_for_nothing(accounts, project):
    both = accounts.victim.mkdir(project / "both", mode=0o755)
    bank = accounts.stranger.call(_made, project / "bank") and project / "bank"
    assert accounts.victim.call(_is_trusted, bank, project)
    said = accounts.victim.call(_said_of_the_list, bank, f"{bank}\n", 0o600)
    assert f"'{bank}' counts for nothing: {project} can be changed by group {GROUP}" in said
    project.chmod(0o755)
    assert accounts.victim.call(_is_trusted, bank, bank)
    project.chmod(0o3775)
    assert accounts.victim.call(_is_trusted, bank, bank)
    accounts.stranger.call(bank.rename, project / "moved")
    accounts.stranger.call(bank.symlink_to, both)
    assert not accounts.victim.call(_is_trusted, both, bank)
    assert not accounts.victim.call(_is_trusted, both, f"{bank}/../both")


def test_a_group_that_can_change_what_is_trusted_may_change_what_is_above(accounts, project):
    bank = accounts.stranger.mkdir(project / "bank", mode=0o2775)
    assert accounts.victim.call(_is_trusted, bank, bank)


def _is_trusted(folder, line):
    _trust(line)
    return owned.is_trusted(folder)


def test_a_list_that_others_can_change_lists_nothing(accounts, project):
    run = planted(accounts, project)
    accounts.victim.call(_trust, project, 0o666)
    assert accounts.victim.asa("resume", run.name, cwd=project).returncode == 2


def _said_of_the_list(folder, text, mode):
    _trust(folder)
    owned.trusted_file().write_text(text)
    owned.trusted_file().chmod(mode)
    with pytest.raises(OwnerError) as caught:
        safe.check(folder)
    return caught.value.hint


def test_a_list_or_a_line_that_counts_for_nothing_is_named(accounts, project):
    theirs = accounts.stranger.mkdir(project / "it's theirs", mode=0o777)
    file = f"{accounts.victim.home}/.config/asa/trusted"
    said = accounts.victim.call(_said_of_the_list, theirs, f"{theirs}\n", 0o664)
    assert f"{file} counts for nothing, as others can change it" in said
    assert f"`chmod go-w {file}`" in said
    said = accounts.victim.call(_said_of_the_list, theirs, f"# of the group\n{theirs.name}\n", 0o600)
    assert f'In {file}, "it\'s theirs" counts for nothing: write a whole path' in said


def _trusts(folder):
    class Group:
        gr_name, gr_mem = "ann", []

    class User:
        pw_name, pw_gid = "ann", os.getegid()

    _trust(folder, 0o664)
    owned.grp.getgrgid, owned.pwd.getpwuid = lambda gid: Group, lambda uid: User
    safe.check(folder)
    Group.gr_mem = ["bob"]
    return owned.is_trusted(folder)


def test_a_list_that_a_group_of_ones_own_can_change_counts(accounts, project):
    theirs = accounts.stranger.mkdir(project / "theirs", mode=0o777)
    assert accounts.victim.call(_trusts, theirs) is False  # once the group has another member


# ---------------------------------------------------------------------- one's own that others can change


@pytest.mark.parametrize("part", [".", "run.json", "journal.jsonl", "marks", "wishes"])
def test_a_run_that_others_can_change_is_not_acted_on(accounts, project, part):
    run = made(accounts.victim, project / "asa-runs")
    accounts.victim.sh(f"chmod 755 {run}; chmod g+w {run / part}")
    with pytest.raises(OwnerError, match="can be changed by group") as caught:
        accounts.victim.call(_check, run)
    [repair] = re.findall("`(chmod -R go-w .*)`", caught.value.hint)
    accounts.victim.sh(repair, cwd=project)
    accounts.victim.call(_check, run)


def _check(run):
    folder = RunFolder(run)
    with folder.driven():
        folder.check_own()


@pytest.mark.parametrize("looks", [("--kept=abcdef",), ("--keeper=1", "--lasts=60")])
def test_a_detached_run_that_others_can_change_says_why_it_stands_still(accounts, project, looks):
    run = made(accounts.victim, project / "asa-runs")
    kept = '{"way": "cron", "mark": "abcdef", "number": 0, "since_s": 0, "chain": "", "umask": 2, "environment": {}}'
    accounts.victim.write(run / "kept.json", kept, 0o600)
    accounts.victim.sh(f"chmod 2775 {run}")
    first, second = (accounts.victim.asa("tick", run, "--quiet", *looks, cwd=project) for _ in range(2))
    assert (first.returncode, second.returncode) == (2, 2)
    refusal, repair = f"{run} can be changed by group", f"`chmod -R go-w {run}`"
    assert "can be changed by group" in first.stderr
    assert ("can be changed" in second.stderr) == (looks[0] == "--keeper=1")  # cron would mail it each minute
    [line] = [one for one in (run / "client.log").read_text().splitlines() if "may not go on" in one]
    assert refusal in line
    assert repair in line
    for command in ("status", "runs", "explain"):
        shown = " ".join(accounts.victim.asa(command, cwd=project, env={"COLUMNS": "1000"}).stdout.split())
        assert f"{run.name} can be changed by group" in shown, command
        assert "cron looks at it" not in shown, command
        assert "Nothing of it was used" not in shown, command
        assert re.search(f"`chmod -R go-w [^ ]*{run.name}`", shown), command
        listed = accounts.victim.asa(command, "--output", "json", cwd=project).stdout
        assert "can be changed by group" in listed, command
    assert stat.S_IMODE(run.stat().st_mode) == 0o2775
    accounts.victim.sh(f"chmod -R go-w {run}")
    assert "may go on" not in accounts.victim.asa("status", cwd=project).stdout


def test_an_old_run_that_others_can_read_is_resumed(accounts, project):
    run = made(accounts.victim, project / "asa-runs", f"id -u >{project}/acted")
    accounts.victim.sh(f"chmod -R u=rwX,go=rX {run}")
    done = accounts.victim.asa("resume", "--quiet", cwd=project)
    assert done.returncode == 0, done.stderr
    assert (project / "acted").read_text() == f"{accounts.victim.uid}\n"


def test_a_repair_is_a_command_of_its_owners(accounts, project):
    (mine := accounts.victim.mkdir(project / "it's mine")).chmod(0o775)
    with pytest.raises(OwnerError, match="can be changed by group") as caught:
        accounts.victim.call(safe.check, mine)
    [repair] = re.findall("nobody has changed it; then: `(chmod -R go-w .*)`", caught.value.hint)
    assert accounts.victim.sh(repair).returncode == 0
    accounts.victim.call(safe.check, mine)
    (roots := project / "roots").mkdir(mode=0o775)
    roots.chmod(0o775)
    with pytest.raises(OwnerError, match="can be changed by group") as caught:
        accounts.victim.call(safe.check, roots)
    assert "Ask its owner, user root, for `chmod -R go-w" in caught.value.hint


def test_what_others_cannot_reach_they_cannot_change(accounts):
    run = made(accounts.victim, accounts.victim.home / "asa-runs")
    accounts.victim.sh(f"chmod -R g+w {run}")
    accounts.victim.call(_check, run)


@pytest.fixture
def own_group(tmp_path, monkeypatch):
    """A user, `ann`, of a group of the name, which is all that the system knows of groups and users."""

    class Group:
        gr_name, gr_mem = "ann", ["ann"]

    class User:
        pw_name, pw_gid = "ann", os.getegid()

    monkeypatch.setattr(owned, "_is_out_of_reach", lambda path: False)
    monkeypatch.setattr(owned.grp, "getgrgid", lambda gid: Group)
    monkeypatch.setattr(owned.pwd, "getpwuid", {os.geteuid(): User}.__getitem__)
    monkeypatch.setattr(owned, "_USERS", tmp_path / "users")
    (tmp_path / "users").write_text(f"ann:x:{os.geteuid()}:{os.getegid()}:Ann:/home/ann:/bin/sh\n+::::::\n")
    return Group, User


def test_a_group_of_ones_own_is_no_other(tmp_path, own_group):
    group, user = own_group
    (tmp_path / "open").mkdir(mode=0o700)
    (tmp_path / "open").chmod(0o775)

    def said():
        return owned.trouble(tmp_path / "open", (tmp_path / "open").stat())

    assert said() == ""
    group.gr_mem = ["ann", "bob"]
    assert said() == "can be changed by group ann"
    group.gr_mem, user.pw_gid = [], os.getegid() + 1
    assert said() == "can be changed by group ann"
    user.pw_gid = os.getegid()
    with (tmp_path / "users").open("a") as users:
        users.write(f"bob:x:64202:{os.getegid()}:Bob, who begins with the group of Ann:/home/bob:/bin/sh\n")
    assert said() == "can be changed by group ann"


def _grant(path, uid, rights):
    """Let another user have rights of something, by an access list of POSIX."""
    entries = [(1, 7, -1), (2, rights, uid), (4, 0, -1), (16, 7, -1), (32, 0, -1)]
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", data)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")


def test_whom_an_access_list_lets_write_is_another_user(accounts, own_group):
    stranger, file = accounts.stranger, accounts.place / "site.toml"
    file.write_text("x = 1\n")
    _grant(file, stranger.uid, 5)
    assert safe.read(file) == b"x = 1\n"  # which lets them read
    _grant(file, stranger.uid, 7)
    stranger.sh(f"echo 'y = 2' >>{file}", check=True)
    with pytest.raises(OwnerError, match=f"can be changed by user {stranger.uid}"):
        safe.read(file)
    listed = accounts.place / "listed"
    listed.mkdir()
    listed.chmod(0o770)
    _grant(accounts.place, stranger.uid, 7)  # as the list of the folder that is trusted has it, or not
    assert "can be changed by user" in owned.way_trouble(listed, listed.stat())
    _grant(listed, stranger.uid, 7)
    assert owned.way_trouble(listed, listed.stat()) == ""


def test_a_run_is_not_reached_by_a_link_of_another_user(accounts, project):
    run = made(accounts.victim, accounts.victim.home / "asa-runs")
    accounts.stranger.mkdir(project / "asa-runs", mode=0o777)
    accounts.stranger.call((project / "asa-runs" / "mine").symlink_to, run)
    done = accounts.victim.asa("resume", "mine", cwd=project)
    assert done.returncode == 2
    assert f"is a link that user {accounts.stranger.uid} has made" in done.stderr


def test_a_link_of_another_user_is_passed_over_where_the_latest_is_looked_for(accounts, project):
    later = made(accounts.victim, accounts.victim.home / "asa-runs", created_s=time.time() + 60.0)
    mine = made(accounts.victim, project / "asa-runs")
    (project / "asa-runs").chmod(0o2777)
    accounts.stranger.call((project / "asa-runs" / later.name).symlink_to, later)
    done = accounts.victim.asa("cancel", "--yes", cwd=project)
    assert done.returncode == 0, done.stderr
    assert f"{mine.name} is cancelled" in done.stderr


def test_a_run_of_roots_is_acted_on(accounts, project):
    run = made(accounts.victim, project / "asa-runs")
    os.chown(run / "run.json", 0, 0)
    (run / "run.json").chmod(0o644)
    accounts.victim.call(_check, run)


# ---------------------------------------------------------------------- what one makes


@pytest.mark.parametrize(("share", "umask"), [("", 0o000), ("group", 0o002), ("group", 0o077)])
def test_a_runs_folder_is_its_users_alone(accounts, project, umask, share):
    site = accounts.victim.write(project / "site.toml", f'backend = "local"\nshare = "{share}"\n')
    file = accounts.victim.write(project / "flow.toml", FLOW.replace("echo", "umask; echo"))
    accounts.victim.mkdir(project / "asa-runs", mode=0o2755)
    command = ("run", file, "--site", site, "--bank", "none", "--quiet")
    done = accounts.victim.asa(*command, cwd=project, umask=umask)
    assert done.returncode == 0, done.stdout + done.stderr
    [run] = (project / "asa-runs").iterdir()
    assert stat.S_IMODE(run.stat().st_mode) & 0o777 == (0o750 if share else 0o700)
    assert accounts.stranger.call(_writable, run) == []
    assert accounts.victim.sh(f"grep -rh . {run}/logs").stdout.split()[0] == f"{umask:04o}"
    looked = accounts.stranger.asa("status", run.name, cwd=project)
    assert looked.returncode == (0 if share else 2), looked.stdout + looked.stderr
    if share:
        shown = accounts.stranger.asa("logs", "a", "--run", run.name, cwd=project)
        assert f"{umask:04o}" in shown.stdout, shown.stderr
        for private in ("scripts", "wishes", "marks"):
            with pytest.raises(PermissionError):
                accounts.stranger.call(os.listdir, run / private)


@pytest.mark.parametrize("share", ["", "group"])
def test_who_may_look_sees_commands_and_values_of_environment(accounts, project, share):
    stage = Stage("a", cores=1, walltime_s=60, command="echo said", environment=(("NAME", "a value"),))
    run = made(accounts.victim, project / "asa-runs", stages=(stage,), share=share)
    if not share:
        with pytest.raises(PermissionError):
            accounts.stranger.call((run / "run.json").read_text)
        return
    seen = accounts.stranger.call((run / "run.json").read_text)
    assert "a value" in seen
    assert "echo said" in seen


def _writable(folder):
    """Name what the caller may change in a folder, as far as it can be reached."""
    found = []
    for place, folders, files in os.walk(folder):
        found += [path for name in (*folders, *files) if os.access(path := os.path.join(place, name), os.W_OK)]  # noqa: PTH118
    return found + [str(folder)] * os.access(folder, os.W_OK)


def test_what_a_folder_is_made_with_is_not_of_its_group(accounts, project):
    made = accounts.victim.call(_made, project / "made", umask=0o000)
    assert (made.st_gid, stat.S_IMODE(made.st_mode) & 0o777) == (GROUP, 0o700)


def _made(path):
    safe.make_folder(path)
    return path.stat()


def test_a_folder_of_runs_is_made_so_that_others_cannot_exchange_runs(accounts, project):
    accounts.victim.call(_create, project / "asa-runs", planned(), umask=0o002)
    assert stat.S_IMODE((project / "asa-runs").stat().st_mode) & 0o777 == 0o755


def test_no_run_begins_where_others_can_exchange_it(accounts, project):
    accounts.stranger.mkdir(project / "theirs", mode=0o1777)
    with pytest.raises(OwnerError, match=r"belongs to .* put another run in the place of yours") as caught:
        accounts.victim.call(_create, project / "theirs", planned())
    assert "Name a folder of your own with --runs" in caught.value.hint
    assert "chmod" not in caught.value.hint
    of_roots = accounts.group_folder("of-roots")
    with pytest.raises(OwnerError, match="can be changed by group") as caught:
        accounts.victim.call(_create, of_roots, planned())
    assert f"said by root, `chmod +t {of_roots}`" in caught.value.hint
    [place] = re.findall("export ASA_RUNS=([^ ]+)/[$]USER[.]", caught.value.hint)
    accounts.victim.call(_create, Path(place) / "victim", planned())
    mine = accounts.victim.mkdir(project / "mine", mode=0o2775)
    with pytest.raises(OwnerError, match="can be changed by group") as caught:
        accounts.victim.call(_create, mine, planned())
    [repair] = re.findall("`(chmod [+]t [^`]+)`", caught.value.hint)
    accounts.victim.sh(repair)
    run = accounts.victim.call(_create, mine, planned())
    with pytest.raises(PermissionError):
        accounts.stranger.call(run.rename, mine / "moved")


def test_each_member_of_a_group_has_a_folder_of_runs_in_its_project(accounts, project):
    """Without a word of theirs; who looks sees where the others' are."""
    first, second = accounts.stranger, accounts.victim
    file = first.write(project / "flow.toml", FLOW)

    def begin(user, *words):
        return user.asa("run", file, "--backend", "local", "--bank", "none", *words, cwd=project, umask=0o002)

    assert begin(first, "--option", "share=group").returncode == 0
    [theirs] = (project / "asa-runs").iterdir()
    assert theirs.name in second.asa("runs", cwd=project).stdout, "who has none is shown the others'"
    done = begin(second)
    assert done.returncode == 0, done.stderr
    assert f"asa-runs belongs to user {first.uid}; yours are kept in asa-runs-{second.uid}" in done.stderr
    [own] = (project / f"asa-runs-{second.uid}").iterdir()
    shown = second.asa("runs", cwd=project).stdout
    assert own.name in shown
    assert theirs.name not in shown
    assert f"Runs of user {first.uid} are in asa-runs: asa runs --runs asa-runs" in shown
    assert own.name in second.asa("status", cwd=project).stdout
    assert "completed" in second.asa("status", theirs.name, cwd=project).stdout
    assert own.name not in first.asa("runs", cwd=project).stdout
    (project / "asa-runs").rename(project / "gone")
    assert own.name in second.asa("runs", cwd=project).stdout, "also when the others have left"
    assert begin(second).returncode == 0
    assert len(list((project / f"asa-runs-{second.uid}").iterdir())) == 2


def test_a_member_whose_first_run_begins_as_another_s_has_a_folder_of_their_own(accounts, project):
    accounts.stranger.call(_create, project / "asa-runs", planned())  # since the victim's client has looked
    run = accounts.victim.call(_create_usual, project / "asa-runs")
    assert run.parent == project / f"asa-runs-{accounts.victim.uid}"
    with pytest.raises(OwnerError, match="belongs to"):  # as it was named
        accounts.victim.call(_create_usual, project / "asa-runs", env={"ASA_RUNS": str(project / "asa-runs")})


def _create_usual(runs):
    return RunFolder.create(runs, planned(), is_usual=True).path


USUAL_RUNS = Path(".snakemake/asa")


def test_each_member_of_a_group_has_snakemakes_runs_in_its_project(accounts, project):
    usual = project / USUAL_RUNS
    accounts.stranger.mkdir(usual.parent, mode=0o2775)
    theirs = accounts.stranger.call(_create_hosted, cwd=project)
    for _ in range(2):
        own = accounts.victim.call(_create_hosted, cwd=project)
        assert own.parent == usual.with_name(f"{usual.name}-{accounts.victim.uid}")
    assert theirs.parent == accounts.stranger.call(_create_hosted, cwd=project).parent == usual
    named = accounts.victim.call(runs_folder, Path("named"), USUAL_RUNS)
    assert named == Path("named")


def _create_hosted():
    return RunFolder.create(runs_folder(USUAL_RUNS, USUAL_RUNS).absolute(), planned()).path


def test_ones_older_runs_in_the_folder_of_another_are_counted(accounts, project):
    made(accounts.victim, project / "asa-runs")
    os.chown(project / "asa-runs", accounts.stranger.uid, GROUP)
    accounts.victim.call(_create_usual, project / "asa-runs")
    listed = accounts.victim.asa("runs", cwd=project).stdout
    theirs = f"Runs of user {accounts.stranger.uid} are in asa-runs, and 1 of yours: asa runs --runs asa-runs"
    assert theirs in listed


@pytest.mark.parametrize("why", ["", "its group", "cannot get into"])
def test_a_run_that_nobody_can_look_at_though_it_is_shared_is_named(accounts, project, why, monkeypatch):
    site = accounts.victim.write(project / "site.toml", 'backend = "local"\nshare = "group"\n')
    file = accounts.victim.write(project / "flow.toml", FLOW)
    command = ("run", file, "--site", site, "--bank", "none")
    place = project
    if why == "its group":
        monkeypatch.setattr(owned, "_is_private", lambda gid: gid == accounts.victim.uid)
        place = accounts.victim.mkdir(project / "own")
        os.chown(place, accounts.victim.uid, accounts.victim.uid)
        place.chmod(0o755)
    elif why:
        place = accounts.victim.mkdir(project / "own", mode=0o2700)
    said = " ".join(accounts.victim.asa(*command, cwd=place, umask=0o077).stderr.split())
    [run] = (place / "asa-runs").glob("flow-*")
    assert ("nobody can look at this run" in said) == bool(why), said
    assert why in said
    repair = re.search("`(ch[^`]+)`", said)
    if why:
        accounts.victim.sh(repair[1], check=True)
    assert accounts.stranger.asa("status", run, cwd=project).returncode == 0


def test_a_folder_of_runs_that_another_user_has_named_for_one_is_not_used(accounts, project):
    accounts.stranger.mkdir(project / "asa-runs", mode=0o777)
    accounts.stranger.mkdir(project / f"asa-runs-{accounts.victim.uid}", mode=0o777)
    file = accounts.victim.write(project / "flow.toml", FLOW)
    done = accounts.victim.asa("run", file, "--backend", "local", "--bank", "none", cwd=project)
    assert done.returncode == 2
    assert "put another run in the place of yours" in done.stderr
    assert not (project / "ran").exists()


# ---------------------------------------------------------------------- banks, sites


def test_a_bank_of_another_user_is_not_used(accounts, project):
    theirs = accounts.stranger.mkdir(project / "bank", mode=0o777)
    file = accounts.victim.write(project / "flow.toml", FLOW)
    done = accounts.victim.asa("run", file, "--backend", "local", "--bank", theirs, cwd=project)
    assert done.returncode == 2
    assert f"belongs to user {accounts.stranger.uid}" in done.stderr
    with pytest.raises(StateError, match="belongs to"):
        accounts.victim.call(_read_bank, theirs)


def _read_bank(folder):
    from asa.estimators.store import WaitStore

    return WaitStore(folder, create=False).read()


def test_the_doctor_names_all_that_others_can_change_with_one_command(accounts):
    victim, home = accounts.victim, accounts.victim.home
    run = made(victim, home / "asa-runs")
    victim.sh(
        "umask 002; chmod 755 .; mkdir -p .config/asa/sites .local/share/asa/bank .local/state/asa/local/host;"
        "touch .config/asa/sites/here.toml .local/share/asa/bank/waits.jsonl; chmod -R g+w asa-runs",
        check=True,
    )
    examine = ("doctor", "--backend", "local", "--option", f"spool={home}/queue", "--output", "json")
    [found] = [one for one in json.loads(victim.asa(*examine).stdout)["findings"] if one["topic"] == "access"]
    for path in (
        run.parent,
        ".config/asa/sites/here.toml",
        ".local/share/asa/bank",
        ".local/state",
        ".config",
        ".local/state/asa/local",
    ):
        assert f" {home / path}" in found["told"], path
    repair = found["consequence"].partition("then: ")[2]
    assert "asa-runs/" not in repair
    victim.sh(repair, check=True)
    assert not [one for one in json.loads(victim.asa(*examine).stdout)["findings"] if one["topic"] == "access"]


def test_a_run_begins_without_a_bank_that_others_can_change(accounts, project):
    file = accounts.victim.write(project / "flow.toml", FLOW)
    bank = accounts.victim.mkdir(project / "bank", mode=0o2775)
    queue = ("--backend", "local", "--option", f"spool={accounts.victim.home}/queue")
    for dry in (["--dry-run"], []):
        done = accounts.victim.asa("run", file, *queue, *dry, cwd=project, env={"ASA_BANK": str(bank)})
        assert done.returncode == 0, done.stderr
        assert done.stderr.count(f"the bank {bank} can be changed by group") == 1, done.stderr
        assert f"chmod -R go-w {bank}" in done.stderr
        assert not list(bank.iterdir())
    named = accounts.victim.asa("run", file, *queue, "--bank", bank, cwd=project)
    assert named.returncode == 2
    accounts.victim.mkdir(project / "runs", mode=0o2775)
    dry = accounts.victim.asa("run", file, *queue, "--dry-run", "--runs", "runs", "--bank", "none", cwd=project)
    assert dry.returncode == 2
    assert "put another run in the place of yours" in dry.stderr


def test_a_bank_is_its_users_alone(accounts, project):
    assert stat.S_IMODE(accounts.victim.call(_bank, project / "bank", umask=0o000)) & 0o777 == 0o700


def _bank(folder):
    from asa.estimators.store import WaitStore
    from asa.estimators.stored import WaitRecord
    from asa.waits import QueuedJob, exactly

    with WaitStore(folder) as store:
        store.append(WaitRecord(QueuedJob(100.0, 1, 60.0), exactly(1.0)))
    assert len(WaitStore(folder, create=False).read()) == 1
    return folder.stat().st_mode


def test_a_site_file_of_another_user_is_not_used(accounts, project):
    site = accounts.stranger.write(
        project / "site.toml", f'backend = "slurm-cli"\nprefix = "sh -c \'id >{project}/acted\'"\n'
    )
    file = accounts.victim.write(project / "flow.toml", FLOW)
    for command in (("run", file), ("doctor",)):
        done = accounts.victim.asa(*command, "--site", site, cwd=project)
        assert done.returncode == 2, (command, done.stdout + done.stderr)
        assert f"{site}: belongs to user {accounts.stranger.uid}" in done.stderr
    assert not (project / "acted").exists()


def test_what_keeps_a_run_is_read_of_its_user_alone(accounts, project):
    from asa.keepers import kept

    run = made(accounts.victim, project / "asa-runs")
    accounts.victim.sh(f"chmod 755 {run}")
    (run / "kept.json").write_text(
        '{"way": "cron", "mark": "x", "number": 0, "since_s": 0, "chain": "", "umask": 0, "environment": {}}'
    )
    os.chown(run / "kept.json", accounts.stranger.uid, GROUP)
    (run / "kept.json").chmod(0o666)
    with pytest.raises(OwnerError, match="belongs to"):
        accounts.victim.call(kept, run)
    os.chown(run / "kept.json", accounts.victim.uid, GROUP)
    with pytest.raises(OwnerError, match="can be changed by every user"):
        accounts.victim.call(kept, run)
    (run / "kept.json").chmod(0o600)
    assert accounts.victim.call(kept, run).mark == "x"


def test_share_is_for_the_group_or_for_nobody(tmp_path):
    from asa.sites import read_site

    (tmp_path / "site.toml").write_text('backend = "local"\nshare = "all"\n')
    with pytest.raises(InputError, match='Write "group"'):
        read_site(str(tmp_path / "site.toml"))


def _read_model(path):
    from asa.backends.simulated.model_file import load_model

    load_model(path)


def _read_twin(path):
    from asa.backends.twin.model import Twin

    Twin.read(path)


def _read_comparison(path):
    from asa.studies.compare.kept import KeptComparison

    KeptComparison.read(path)


def _import_bank(path):
    from asa.estimators.store import WaitStore

    WaitStore(path.with_name("bank")).import_(path)


def _looked(read, path):
    with suppress(InputError):  # it is empty
        read(path)
    return owned.others


@pytest.mark.parametrize("read", [_read_model, _read_twin, _read_comparison, _import_bank])
def test_whose_a_file_is_that_is_only_looked_at_is_said(accounts, project, read):
    theirs, mine = (user.write(project / user.name, "") for user in (accounts.stranger, accounts.victim))
    assert accounts.victim.call(_looked, read, theirs) == {str(theirs): f"user {accounts.stranger.uid}"}
    assert accounts.victim.call(_looked, read, mine) == {}
    done = accounts.victim.asa("report", accounts.stranger.write(project / "saved.json", "{}"), cwd=project)
    assert f"Note: {project}/saved.json belongs to user {accounts.stranger.uid}." in done.stderr


# ---------------------------------------------------------------------- writing


MINE = "precious\n"


def _write_page(out):
    from asa.cli.report import write_to

    write_to(out, "--out", lambda file: file.write("a page"))


def _write_workflow(out):
    from asa.cli.imported import write_text

    write_text(out, "a workflow", force=True)


def _write_folder(out):
    from asa.report.folder import write_folder
    from asa.report.page import Page

    write_folder(out.parent, "page", Page("a page", "", []))


def _write_figure(out):
    from asa.core.drawing import new_figure, save_figure

    save_figure(new_figure(1, 1), out)


def _export_bank(out):
    from asa.estimators.store import WaitStore

    WaitStore(out.with_name("bank")).export(out)


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (_write_page, "RUN.html"),
        (_write_workflow, "flow.toml"),
        (_write_figure, "figure.svg"),
        (_export_bank, "bank.jsonl.gz"),
    ],
)
def test_no_link_of_another_user_is_written_through(accounts, project, write, name):
    file = accounts.victim.write(accounts.victim.home / "mine", MINE)
    accounts.stranger.call((project / name).symlink_to, file)
    with pytest.raises(OwnerError, match=f"is a link that user {accounts.stranger.uid} has made"):
        accounts.victim.call(write, project / name)
    assert file.read_text() == MINE


def test_a_folder_of_pages_is_not_written_through_a_link_of_another_user(accounts, project):
    file = accounts.victim.write(accounts.victim.home / "mine.html", MINE)
    accounts.victim.call(_write_folder, project / "index.html")
    file.write_bytes(page := (project / "page.html").read_bytes())
    (project / "page.html").unlink()
    accounts.stranger.call((project / "page.html").symlink_to, file)
    with pytest.raises(OwnerError, match="is a link that user"):
        accounts.victim.call(_write_folder, project / "index.html")
    assert file.read_bytes() == page


def test_a_report_of_a_run_is_not_written_through_a_link_of_another_user(accounts, project):
    run = made(accounts.victim, project / "asa-runs")
    assert accounts.victim.asa("resume", "--quiet", cwd=project).returncode == 0
    file = accounts.victim.write(accounts.victim.home / "mine", MINE)
    accounts.stranger.call((project / f"{run.name}.html").symlink_to, file)
    done = accounts.victim.asa("report", cwd=project)
    assert done.returncode == 2
    assert "is a link that user" in done.stderr
    assert file.read_text() == MINE


def test_a_file_of_another_user_is_replaced_and_not_filled(accounts, project):
    accounts.stranger.write(project / "page.html", MINE, mode=0o666)
    holder = accounts.stranger.start("tail", "-f", project / "page.html", stdout=subprocess.PIPE)
    try:
        accounts.victim.call(_write_page, project / "page.html")
    finally:
        holder.kill()
    assert (project / "page.html").read_text() == "a page"
    assert (project / "page.html").stat().st_uid == accounts.victim.uid
    assert "a page" not in holder.communicate()[0]


def test_no_pipe_of_another_user_is_written_to(accounts, project):
    accounts.stranger.sh(f"umask 000; mkfifo {project}/page.html")
    with pytest.raises(OwnerError, match=f"is a FIFO of user {accounts.stranger.uid}"):
        accounts.victim.call(_write_page, project / "page.html", timeout=10)
    reader = accounts.victim.start("sh", "-c", f"mkfifo {project}/mine; cat {project}/mine", stdout=subprocess.PIPE)
    while not (project / "mine").exists():
        time.sleep(0.01)
    accounts.victim.call(_write_page, project / "mine", timeout=10)
    assert reader.communicate(timeout=10)[0] == "a page"


def test_no_pipe_of_another_user_is_waited_for(accounts, project):
    accounts.stranger.sh(f"umask 000; mkfifo {project}/instance.json")
    done = accounts.victim.asa("import", "wfformat", "instance.json", cwd=project, timeout=30)
    assert done.returncode == 2, done.stderr
    assert "it is a FIFO of another user" in " ".join(done.stderr.split())
    given = accounts.victim.sh("echo '{}' | asa import wfformat /dev/stdin", cwd=project)
    assert "FIFO" not in given.stderr


def test_a_file_that_is_written_anew_keeps_its_mode(accounts, project):
    file = accounts.victim.write(project / "page.html", "", mode=0o600)
    accounts.victim.call(_write_page, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_site_file_is_not_written_through_a_link_of_another_user(accounts, project):
    place = accounts.victim.home / "not-there.toml"
    accounts.stranger.call((project / "site.toml").symlink_to, place)
    with pytest.raises(OwnerError, match="is a link that user"):
        accounts.victim.call(_save_site, project / "site.toml")
    assert not place.exists()
    accounts.victim.call((project / "mine.toml").symlink_to, place)
    accounts.victim.call(_save_site, project / "mine.toml")
    assert place.exists()
    assert (project / "mine.toml").is_symlink()


def _save_site(path):
    from asa.sites import save_site

    save_site(str(path), backend="local", settings={}, observed={}, found={})


def test_ones_own_links_are_followed(accounts, project):
    accounts.victim.call((project / "page.html").symlink_to, accounts.victim.home / "there.html")
    accounts.victim.call(_write_page, project / "page.html")
    assert (accounts.victim.home / "there.html").read_text() == "a page"
    assert (project / "page.html").is_symlink()


def test_a_journal_is_not_written_through_a_link(accounts, project):

    file = accounts.victim.write(accounts.victim.home / "mine", MINE)
    accounts.stranger.call((project / "journal.jsonl").symlink_to, file)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        accounts.victim.call(_append, project / "journal.jsonl")
    assert file.read_text() == MINE


def _append(path):
    from asa.core.store import LineFile

    LineFile(path).append(b"{}\n")


# ---------------------------------------------------------------------- what a job's script writes


def script(project, command="true"):
    payload = Payload(
        "fit.a1", command, str(project), project / "run" / "marks", project / "run" / "posts", "a1", posted=("x",)
    )
    return batch_script(payload, "JOB")


def run_script(user, project, text, **options):
    return user.run("sh", input=text, cwd=project, env={"JOB": "7", "ASA_PATIENCE_S": "0"}, **options)


@pytest.fixture
def marks(accounts, project):
    """Folders of a run as earlier versions made them with umask 002, in which others of the group may change names."""
    accounts.victim.sh(f"umask 002; mkdir -p {project}/run/posts {project}/run/marks/a1; chmod -R 2775 {project}/run")
    return project / "run" / "marks" / "a1"


def test_what_another_user_has_laid_in_a_scripts_way_is_not_written_through(accounts, project, marks):
    file = accounts.victim.write(accounts.victim.home / "mine", MINE)
    for name in (".began.7", ".ended.7", "began", "ended"):
        accounts.stranger.call((marks / name).symlink_to, file)
    done = run_script(accounts.victim, project, script(project), umask=0o002)
    assert done.returncode == 0, done.stderr
    assert file.read_text() == MINE
    left = [path for path in marks.iterdir() if not path.is_symlink()]
    assert {path.name for path in left} == {"began", "ended"}
    assert all(path.stat().st_uid == accounts.victim.uid and not path.stat().st_mode & 0o022 for path in left)


@pytest.mark.parametrize("has_own", [True, False])
def test_what_is_printed_goes_through_no_link_and_stays_the_users_own(accounts, project, has_own):
    """Under the name that its user gives, in a folder of the group; also where it has no file of the run's."""
    file = accounts.victim.write(accounts.victim.home / "mine", MINE)
    accounts.victim.sh(f"umask 002; mkdir -p {project}/logs; mkdir -m 700 {project}/run; chmod 2775 {project}/logs")
    accounts.stranger.call((project / "logs" / "7").symlink_to, file)
    text = payload_text(Stage("fit", cores=1, command="echo out; echo err >&2", stdout="logs/%j"), 1)
    kept = f">{project}/run/o 2>{project}/run/e" if has_own else "2>&1 | cat"
    done = accounts.victim.run(
        "sh", "-c", f'sh -c -- "$1" {kept}', "sh", text, cwd=project, env={"SLURM_JOB_ID": "7"}, umask=0o002
    )
    assert done.stdout == ("" if has_own else "out\nerr\n")
    assert file.read_text() == MINE
    made = project / "logs" / "7"
    assert (made.read_text(), made.is_symlink()) == ("out\nerr\n", False)
    assert made.stat().st_uid == accounts.victim.uid
    assert not made.stat().st_mode & 0o022
    assert [path.name for path in made.parent.iterdir()] == ["7"]


def test_a_file_of_another_user_gets_no_secret_and_is_not_run(accounts, project, marks):
    accounts.stranger.write(marks / ".payload.7", f"id -u >{project}/acted\n", mode=0o666)
    holder = accounts.stranger.start("tail", "-f", marks / ".payload.7", stdout=subprocess.PIPE)
    try:
        text = script(project, f"{PRIVATE}\nexport SECRET=hush; echo $SECRET >{project}/ran")
        done = run_script(accounts.victim, project, text, umask=0o002)
    finally:
        holder.kill()
    assert done.returncode == 0, done.stderr
    assert (project / "ran").read_text() == "hush\n"
    assert "hush" not in holder.communicate()[0]
    assert not (project / "acted").exists()


@pytest.mark.parametrize("part", ["run", "run/posts", "run/marks/a1"])
def test_nothing_is_run_where_another_user_has_made_a_folder_of_the_marks(accounts, project, marks, part):
    os.chown(project / part, accounts.stranger.uid, GROUP)
    done = run_script(accounts.victim, project, script(project, f"touch {project}/ran"), umask=0o002)
    assert done.returncode == JobOutcome.UNABLE.exit_code
    assert f"{project / part} belongs to another user: nothing is run" in done.stderr
    assert not (project / "ran").exists()


SLOW_LS = """#!/bin/sh
case "$*" in *.owner.* | */fd/*) sleep 0.2 ;; esac
PATH=${PATH#*:} exec ls "$@"
"""


def test_a_file_that_is_swapped_makes_nobody_the_owner_of_a_folder(accounts, project, marks):
    """Whoever owns the folder puts a file, or a pipe, of their own in the place of each that is made there."""
    os.chown(marks, accounts.stranger.uid, GROUP)
    accounts.victim.write(accounts.victim.mkdir(accounts.victim.home / "bin") / "ls", SLOW_LS, mode=0o755)
    path = f"{accounts.victim.home}/bin:{accounts.victim.environment['PATH']}"
    swap = "while :; do for f in .owner.*; do [ -O $f ] || [ ! -e $f ] || { : >mine; mv -f mine $f; }; done; done"
    swapper = accounts.stranger.start("bash", "-c", swap, cwd=marks, umask=0)
    try:
        for shell in SHELLS:
            text = script(project, f"touch {project}/ran")
            env = {"JOB": "7", "ASA_PATIENCE_S": "0", "PATH": path}
            done = accounts.victim.run(shell, input=text, cwd=project, env=env, umask=0o002)
            assert done.returncode == JobOutcome.UNABLE.exit_code, shell
            assert f"{marks} belongs to another user: nothing is run" in done.stderr
    finally:
        swapper.kill()
        swapper.wait()
    assert not (project / "ran").exists()


EXCHANGE = """
cd "$1"
echo ready
until ls $2 >/dev/null 2>&1; do :; done
cp -a run fake 2>/dev/null
for file in $2; do
  mkdir -p "fake/${file#*/}"; rmdir "fake/${file#*/}" 2>/dev/null || rm -f "fake/${file#*/}"
  printf '%b\\n' "$3" "touch $1/acted" >"fake/${file#*/}"
done
chmod -R a+rwX fake
mv run stolen && mv fake run
"""
"""Puts a folder that looks like the victim's into its place, as soon as a file is there that others may not read."""
SLOW = """#!/bin/sh
case "$*" in *asa_file* | *asa_task* | -n\\ -e*) sleep 1 ;; esac
PATH=${PATH#*:} exec "${0##*/}" "$@"
"""


@pytest.fixture
def exchanged(accounts, project):
    """Run a text as the victim, while the stranger exchanges the whole folder of the run once a file appears there."""

    def run(shell, text, file, first="#"):
        tools = accounts.victim.mkdir(accounts.victim.home / "bin")
        for tool in ("env", "sed", "awk"):
            accounts.victim.write(tools / tool, SLOW, mode=0o755)
        thief = accounts.stranger.start(
            "bash", "-c", EXCHANGE, "x", project, file, first, umask=0, stdout=subprocess.PIPE
        )
        assert thief.stdout.readline() == "ready\n"
        env = {"JOB": "7", "ASA_PATIENCE_S": "0", "PATH": f"{tools}:{accounts.victim.environment['PATH']}"}
        done = accounts.victim.run(shell, input=text, cwd=project, env=env)
        thief.communicate(timeout=20)
        assert thief.returncode == 0, "it was exchanged"
        assert not (project / "acted").exists(), done.stderr
        return done

    return run


@pytest.mark.parametrize("shell", SHELLS)
def test_a_run_that_is_exchanged_as_its_job_begins_is_gone_on_with(accounts, project, marks, exchanged, shell):
    """As in a project's folder in which others may rename what they do not own."""
    text = script(project, f"{PRIVATE}\necho its own >{project}/ran")
    done = exchanged(shell, text, "run/marks/a1/.payload.7")
    assert done.returncode == 0, done.stderr
    assert (project / "ran").read_text() == "its own\n"
    assert (project / "stolen" / "marks" / "a1" / "ended").exists()
    assert (project / "stolen" / "posts" / "x").exists()
    assert not (project / "run" / "posts" / "x").exists()


@pytest.fixture
def swapped(accounts, project, marks):
    """Run a text as the victim, whose job has another's folder in the place of its run's before the text begins."""

    def run(shell, text, plant):
        payload = Payload(
            "a", text, str(project), project / "run" / "marks", project / "run" / "posts", "a1", awaits=("go",)
        )
        env = {"JOB": "7", "SLURM_JOB_ID": "7", "ASA_PATIENCE_S": "0", "ASA_LEG_LOOK_S": "0.1"}
        script = batch_script(payload, "JOB", pauses_s=(0.1,))
        job = accounts.victim.start(shell, "-c", script, cwd=project, env=env, stderr=subprocess.PIPE)
        until((marks / "claim").is_symlink)
        accounts.stranger.sh(f"umask 0; cd {project} && mv run stolen && mkdir -p run/tasks && {plant}", check=True)
        accounts.victim.write(project / "stolen" / "posts" / "go", "")
        errors = job.communicate(timeout=30)[1]
        assert not (project / "acted").exists(), errors
        return job.returncode, errors

    return run


@pytest.mark.parametrize("shell", SHELLS)
def test_what_a_host_hands_over_is_run_of_its_runs_own_folder(accounts, project, swapped, shell):
    accounts.victim.write(accounts.victim.mkdir(project / "run" / "handed") / "s", "echo its own >ran")
    code, errors = swapped(shell, command_of(project / "run", "s"), "mkdir run/handed; echo touch acted >run/handed/s")
    assert code == 0, errors
    assert (project / "ran").read_text() == "its own\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_number_of_an_array_is_one(accounts, project, swapped, shell):
    """It is read of the run's own folder, and nothing else than a number is taken for one."""
    stage = Stage(
        "a", cores=1, walltime_s=60, command="echo $SLURM_ARRAY_JOB_ID $OF_HIM >>ran", array=parse_array_of("1-2")
    )
    text = payload_text(stage.in_turn(1, 1), 1, folder=f"{project}/run/tasks/a")
    code, errors = swapped(shell, text, "echo 5 OF_HIM=1 >run/tasks/.array-a")
    assert code == 0, errors
    assert (project / "ran").read_text() == "7\n7\n"
    here = f"ASA_RUN_HELD= asa_array={project}/number\n{job_text('here', 'array')}\necho $SLURM_ARRAY_JOB_ID"
    accounts.victim.write(project / "number", "5 OF_HIM=1\n")
    assert accounts.victim.run(shell, "-c", here, env={"SLURM_JOB_ID": "8"}).stdout == "8\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_leg_writes_into_its_runs_own_folder(accounts, project, swapped, shell):
    file = accounts.victim.write(accounts.victim.home / "mine", MINE)
    stage = Stage("a", cores=1, walltime_s=60, command="sleep 2", continues=Continuation(warn="USR1", warn_s=1.0))
    text = payload_text(stage, 1, turn=Turn(1, f"{project}/run/tasks/a", 2.0))
    code, errors = swapped(
        shell, text, f"mkdir run/tasks/a; cd run/tasks/a; ln -s {file} .told.1; ln -s {file} wanted.1"
    )
    assert (project / "stolen" / "tasks" / "a" / ".told.1").exists(), (code, errors)
    assert file.read_text() == MINE


@pytest.fixture(params=["700 home", "755 home", "1777 home", "2775 home", "777 home", "1777 other", "700 project"])
def temporary(request, accounts, project):
    """A folder for temporary files, and whether nobody else can exchange what is in it, nor itself."""
    mode, where = request.param.split()
    maker = accounts.stranger if where == "other" else accounts.victim
    above = {"home": accounts.victim.home, "project": project}.get(where) or accounts.group_folder("others", 0o1777)
    accounts.victim.home.chmod(0o755)
    return maker.mkdir(above / "tmp", int(mode, 8)), request.param in {"700 home", "755 home", "1777 home"}


@pytest.mark.full
@pytest.mark.parametrize("shell", SHELLS)
def test_a_jobs_files_lie_where_nobody_else_can_exchange_them(accounts, project, temporary, shell):
    """Before, in a folder of another user that has the sticky bit, and below one that others can write to."""
    folder, is_used = temporary
    stage = Stage("a", cores=1, walltime_s=60, script="#!/bin/sh\necho $0")
    text = payload_text(stage, 1, folder=f"{project}/tasks")
    said = accounts.victim.run(shell, input=text, cwd=project, env={"TMPDIR": str(folder)}).stdout
    assert str(Path(said).parent) == (str(folder) if is_used else "/tmp"), said


_TEMPORARY = "from asa.core import temporary; print(temporary.base_folder())"


def test_files_of_a_command_lie_where_nobody_else_can_exchange_them(accounts, temporary):
    folder, is_used = temporary
    said = accounts.victim.run(sys.executable, "-c", _TEMPORARY, env={"TMPDIR": str(folder)}).stdout.strip()
    assert said == (str(folder) if is_used else "/tmp"), said


_MAKES = {"TemporaryDirectory", "NamedTemporaryFile", "mkdtemp", "mkstemp", "mktemp"}


def test_no_file_that_ends_with_a_command_lies_elsewhere():
    """What has no name (`TemporaryFile`) nobody finds."""
    root = Path(__file__).parents[1]
    home = root / "asa" / "core" / "temporary.py"
    sources = [path for room in ("asa", "backends", "workflows") for path in (root / room).rglob("*.py")]

    def makes(path):
        text = path.read_text()
        if not any(word in text for word in _MAKES):
            return []  # to parse them all takes seconds
        nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        return [call for call in map(ast.unparse, nodes) if call.partition("(")[0].rpartition(".")[2] in _MAKES]

    made = {path: makes(path) for path in sources}
    assert {path: calls for path, calls in made.items() if calls and path != home} == {}
    assert len(made[home]) == 3
    assert all("dir=base_folder(" in call for call in made[home])


@pytest.mark.parametrize("shell", SHELLS)
def test_a_run_that_is_away_as_its_job_begins_is_not_made_anew(accounts, project, marks, shell):
    """Where others could make it as well, or exchange it once it is made; it is waited for: it may be mounted late."""
    (project / "run").rename(project / "away")
    text = script(project, f"touch {project}/ran")
    done = accounts.victim.run(shell, input=text, cwd=project, env={"JOB": "7", "ASA_PATIENCE_S": "0"})
    assert done.returncode == JobOutcome.UNABLE.exit_code
    assert f"{project}/run is not there: nothing is run" in done.stderr
    assert not (project / "run").exists()
    assert not (project / "ran").exists()
    late = accounts.victim.start(
        shell, "-c", text, cwd=project, env={"JOB": "7", "ASA_PATIENCE_S": "60"}, stderr=subprocess.DEVNULL
    )
    time.sleep(0.3)
    (project / "away").rename(project / "run")
    assert late.wait(timeout=60) == 0
    assert (project / "ran").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_tasks_of_a_run_that_is_exchanged_are_those_that_it_had(accounts, project, marks, exchanged, shell):
    stage = Stage("a", cores=1, walltime_s=60, tasks=(f"echo its own >>{project}/ran",) * 2)
    text = script(project, payload_text(stage, 1, folder=f"{project}/run/tasks/a"))
    done = exchanged(shell, text, "run/tasks/a/0/list", "1 2 0\\n1 \\c")
    assert done.returncode == 0, done.stderr
    assert (project / "ran").read_text() == "its own\n" * 2


def test_no_task_is_taken_of_a_folder_of_another_user(accounts, project, marks):
    accounts.stranger.mkdir(project / "run" / "tasks", mode=0o777)
    accounts.stranger.mkdir(project / "run" / "tasks" / "a", mode=0o777)
    stage = Stage("a", cores=1, walltime_s=60, tasks=(f"touch {project}/ran",))
    text = script(project, payload_text(stage, 1, folder=f"{project}/run/tasks/a"))
    done = run_script(accounts.victim, project, text)
    assert done.returncode == JobOutcome.UNABLE.exit_code, done.stderr
    assert f"{project}/run/tasks/a belongs to another user: nothing of it is run" in done.stderr
    assert not (project / "ran").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_folder_belongs_to_whoever_makes_this_users_files_there(accounts, project, marks, shell):
    """As where a file system says another's name of all; here `-O` has no say."""
    text = script(project, f"touch {project}/ran").replace('[ ! -O "$1" ] || return 0', ":")
    assert '-O "$1"' not in text
    done = accounts.victim.run(shell, input=text, cwd=project, env={"JOB": "7", "ASA_PATIENCE_S": "0"}, umask=0o002)
    assert done.returncode == 0, done.stderr
    assert (project / "ran").exists()
    assert not list(project.rglob(".owner*"))


def test_a_folder_that_root_has_made_will_do(accounts, project, marks):
    for path in (project / "run", *(project / "run").rglob("*")):
        os.chown(path, 0, GROUP)
        path.chmod(0o2777)
    done = run_script(accounts.victim, project, script(project, f"touch {project}/ran"))
    assert done.returncode == 0, done.stderr
    assert (project / "ran").exists()


def environment(user, project):
    """Have a user make a conda environment of a file, with umask 002, and return its folder."""
    name = user.sh(
        f"umask 002; cd {project}; echo 'name: e' >e.yml; cksum <e.yml | awk '{{ print $1 \"-\" $2 }}'"
    ).stdout
    prefix = project / ".asa" / "conda" / name.strip()
    user.sh(f"umask 002; mkdir -p {prefix}/bin {prefix}/etc/conda/activate.d", check=True)
    user.write(prefix / "bin" / "tool", f"#!/bin/sh\ntouch {project}/ran\n", mode=0o775)
    user.write(prefix / "etc" / "conda" / "activate.d" / "a.sh", f"touch {project}/activated\n", mode=0o664)
    return prefix


def run_with(user, project, conda):
    text = user.call(_payload, conda, env={"ASA_TRUSTED": "/nowhere"})
    return [user.run(shell, "-c", text, cwd=project, umask=0o002) for shell in SHELLS]


@pytest.mark.parametrize("part", [".asa", ".asa/conda", "prefix", "link"])
def test_an_environment_of_another_user_is_not_activated(accounts, project, part):
    if part == "link":
        environment(accounts.victim, project)
        accounts.victim.sh(f"mv {project}/.asa {project}/own", check=True)
        accounts.stranger.call((project / ".asa").symlink_to, "own")
        place = project / ".asa"
    else:
        prefix = environment(accounts.victim, project)
        place = prefix if part == "prefix" else project / part
        os.chown(place, accounts.stranger.uid, GROUP)
    for done in run_with(accounts.victim, project, "e.yml"):
        assert done.returncode == JobOutcome.SETUP_FAILED.exit_code
        assert f"{place} belongs to another user: nothing in it is run" in done.stderr
    assert not (project / "ran").exists()
    assert not (project / "activated").exists()
    if part == "prefix":  # the remedy that the message names
        trusted = re.search("conda = '(.*)'", done.stderr)[1]
        assert [done.returncode for done in run_with(accounts.victim, project, trusted)] == [0] * len(SHELLS)


def test_each_member_of_a_group_has_environments_in_its_project(accounts, project):
    prefix = environment(accounts.stranger, project)
    own = project / f".asa-{accounts.victim.uid}" / "conda" / prefix.name
    for done in run_with(accounts.victim, project, "e.yml"):
        assert f"conda env create -f 'e.yml' -p '{own}'" in done.stderr
    accounts.victim.call(_trust, project / ".asa")
    trusting = accounts.victim.call(_payload, "e.yml")
    done = accounts.victim.run("sh", "-c", trusting, cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert (project / "activated").exists()
    (project / "activated").unlink()
    accounts.victim.sh(f"mkdir -p {own}/bin; echo 'touch own' >{own}/bin/tool; chmod +x {own}/bin/tool", check=True)
    for done in run_with(accounts.victim, project, "e.yml"):
        assert (done.returncode, done.stderr) == (0, "")
    assert (project / "own").exists()
    assert not (project / "activated").exists()
    os.chown(own, accounts.stranger.uid, GROUP)
    for done in run_with(accounts.victim, project, "e.yml"):
        assert f"{own} belongs to another user: nothing in it is run" in done.stderr


def test_a_trusted_environment_is_the_one_that_was_looked_at(accounts, project):
    """A link of another user may lead to it, and elsewhere a moment later."""
    environment(accounts.stranger, project)
    trusted, evil = accounts.place / "trusted", project / "evil"
    shutil.copytree(project / ".asa", evil)
    (project / ".asa").rename(trusted)
    accounts.stranger.call((project / ".asa").symlink_to, trusted)
    next(evil.rglob("a.sh")).write_text(f"touch {project}/evil-ran\n")
    accounts.victim.call(_trust, trusted)
    text = accounts.victim.call(_payload, "e.yml")
    activate = '  asa_activate "$asa_prefix"\n}'
    assert activate in text
    swapping = text.replace(activate, f"mv .asa away; ln -s {evil} .asa\n{activate}")
    done = accounts.victim.run("sh", "-c", swapping, cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert (project / "activated").exists()
    assert not (project / "evil-ran").exists()


def _payload(conda):
    return payload_text(Stage("a", cores=1, command="tool", preparation=Preparation(conda=conda)), 1)


def test_ones_own_environment_in_a_groups_project_is_activated(accounts, project):
    prefix = environment(accounts.victim, project)
    assert prefix.stat().st_mode & 0o2020 == 0o2020
    for done in run_with(accounts.victim, project, "e.yml"):
        assert (done.returncode, done.stderr) == (0, "")
    assert (project / "ran").exists()
    accounts.victim.sh(f"mv {project}/.asa {project}/own; ln -s own {project}/.asa", check=True)
    assert all(done.returncode == 0 for done in run_with(accounts.victim, project, "e.yml")), (
        "also by a link of one's own"
    )


def test_a_script_for_a_launcher_lies_where_nobody_else_can_swap_it(accounts, project):
    """Not in the folder in which commands run, as that of a group's project."""
    programs, run = accounts.victim.mkdir(accounts.victim.home / "bin"), made(accounts.victim, project / "asa-runs")
    srun = 'while case $1 in --*) ;; *) false ;; esac; do shift; done; "$@"'
    accounts.victim.write(programs / "srun", srun, mode=0o755)
    stage = Stage("a", cores=1, script="echo $0", preparation=Preparation(launcher="srun"))
    text = payload_text(stage, 1, folder=f"{run}/tasks/a")
    path = f"{programs}:{accounts.victim.environment['PATH']}"
    done = accounts.victim.run("sh", "-c", text, cwd=project, env={"PATH": path}, umask=0o002)
    assert done.returncode == 0, done.stderr
    file = Path(done.stdout.strip())
    assert file.is_relative_to(run)
    assert not file.parent.stat().st_mode & 0o022
    with pytest.raises(PermissionError):
        accounts.stranger.call(os.listdir, file.parent)


def test_what_cron_calls_lies_in_a_folder_of_its_user_alone(accounts, monkeypatch):
    state = accounts.victim.home / ".local" / "state" / "asa"
    with pytest.raises(InputError):  # there is no table of a user without a name
        accounts.victim.call(_begin_cron, umask=0o000)
    assert stat.S_IMODE(state.stat().st_mode) & 0o777 == 0o700
    accounts.victim.sh(f"chmod 755 {accounts.victim.home}; chmod 777 {state}")
    with pytest.raises(OwnerError, match="can be changed by every user"):
        accounts.victim.call(_begin_cron)


def test_what_cron_calls_does_not_lie_where_others_can_exchange_it(accounts, project):
    home = accounts.victim.home
    accounts.victim.sh("mkdir -p .local/state; chmod 755 . .local; chmod 2775 .local/state")
    os.chown(home / ".local" / "state", accounts.victim.uid, GROUP)
    (home / ".local" / "state").chmod(0o2775)
    with pytest.raises(OwnerError, match=f"{home}/.local/state can be changed by group {GROUP}"):
        accounts.victim.call(_begin_cron)
    assert not list((home / ".local" / "state").rglob("look-*"))
    with pytest.raises(OwnerError, match=f"{project} can be changed by group {GROUP}"):
        accounts.victim.call(_begin_cron, env={"XDG_STATE_HOME": str(project / "state")})
    accounts.victim.sh("rm -r .local")
    with pytest.raises(InputError) as caught:  # there is no table of a user without a name
        accounts.victim.call(_begin_cron, umask=0o000)
    assert not isinstance(caught.value, OwnerError)


def test_a_run_that_cron_cannot_look_after_is_not_begun(accounts, project, monkeypatch):
    monkeypatch.setattr(cron, "_runs", lambda: True)
    for name in ("bin", "work"):
        accounts.victim.mkdir(accounts.victim.home / name)
    accounts.victim.write(accounts.victim.home / "bin" / "crontab", "#!/bin/sh\nexit 0\n", mode=0o755)
    work = accounts.victim.write(accounts.victim.home / "work" / "flow.toml", FLOW).parent
    env = {"XDG_STATE_HOME": str(project / "state"), "PATH": f"{accounts.victim.home}/bin:{os.environ['PATH']}"}
    for way, option in (("--detach-by cron", "--detach-by=cron"), ("cron", "--detach")):
        queue = ("--backend", "local", "--option", f"spool={accounts.victim.home}/queue")
        done = accounts.victim.asa("run", "flow.toml", *queue, option, cwd=work, env=env)
        said = " ".join(done.stderr.split())
        assert done.returncode == 2, said
        assert f"{way}: " in said
        assert f"{project} can be changed by group {GROUP}; name a folder of yours alone with XDG_STATE_HOME" in said
        assert not (work / "asa-runs").exists()


def test_a_list_of_trusted_places_that_others_can_exchange_lists_nothing(accounts, project):
    theirs = accounts.stranger.mkdir(project / "theirs", mode=0o777)
    env = {"ASA_TRUSTED": str(project / "trusted")}
    said = accounts.victim.call(_said_of_the_list, theirs, f"{project}\n", 0o600, env=env)
    assert f"{project}/trusted counts for nothing, as {project} can be changed by group {GROUP}" in said


def _begin_cron():
    os.environ["PATH"] = "/nowhere"
    try:
        cron.begin(["true"], "0123456789ab")
    except FileNotFoundError as error:  # of crontab
        raise InputError(str(error)) from error


def test_a_file_system_may_call_its_user_otherwise(accounts, project):
    mine = accounts.victim.mkdir(project / "mine")
    theirs = accounts.stranger.mkdir(project / "theirs", mode=0o777)
    assert accounts.victim.call(_trouble_of_another_uid, mine) == ""
    assert accounts.victim.call(_trouble_of_another_uid, theirs) == f"belongs to user {accounts.stranger.uid}"


def _trouble_of_another_uid(path):
    """Ask as somebody whose files are another's by the file system, as where uids are mapped or root is squashed."""
    owned.os.geteuid = lambda: 7
    return owned.trouble(path, path.stat())
