"""The two accounts of the tests are two: what is private to one is closed to the other."""

from pathlib import Path

import pytest
from accounts import GROUP


def test_what_is_private_to_one_is_closed_to_the_other(accounts):
    secret = accounts.victim.write(accounts.victim.home / "secret", "of mine", mode=0o600)
    assert accounts.victim.call(secret.read_text) == "of mine"
    with pytest.raises(PermissionError):
        accounts.stranger.call(secret.read_text)
    assert accounts.stranger.sh('cat "$1"', secret).returncode != 0
    with pytest.raises(PermissionError):
        accounts.stranger.call(Path("/etc/shadow").read_text)


def test_both_write_into_a_project_of_their_group(accounts):
    project = accounts.group_folder()
    for user in (accounts.victim, accounts.stranger):
        made = user.write(project / user.name, "")
        assert (made.stat().st_uid, made.stat().st_gid) == (user.uid, GROUP)


def test_both_run_asa(accounts):
    for user in (accounts.victim, accounts.stranger):
        assert user.run("asa", "--version").stdout.startswith("asa ")
        done = user.asa("runs", cwd=user.home)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
