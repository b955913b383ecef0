"""Slurm's crontab, by a stand-in that keeps a table: who looks at a run there, and the user's own entries."""

import os
import shlex
from pathlib import Path

import pytest
from asa.backends.slurm.facility import SlurmCommands

from asa import keepers
from asa.errors import BackendError, InputError
from asa.keepers import Way, scrontab
from asa.sites import open_facility

SCRONTAB = """#!/bin/sh
echo "$*" >>{folder}/calls
[ ! -e {folder}/disabled ] || {{ echo "scrontab: fatal: scrontab is disabled on this cluster" >&2; exit 1; }}
case $1 in
  -l) [ -e {folder}/table ] || {{ echo "no crontab for ada" >&2; exit 1; }}; cat {folder}/table ;;
  -r) rm {folder}/table ;;
  -) cat >{folder}/table ;;
esac
"""
OWN = "DIR=/home/ada\n#SCRON -t 1:00\n@hourly $DIR/date.sh\n"


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Yield the path of the user's table."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "scrontab").write_text(SCRONTAB.format(folder=tmp_path))
    (folder / "scrontab").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "run").mkdir()
    return tmp_path / "table"


def keep(table, mark="ab12", **settings):
    folder, facility = table.parent / "run", SlurmCommands(**settings)
    return facility, keepers.keep(Way.SCRONTAB, folder, mark, facility, 600.0)


def test_a_small_job_with_the_site_s_terms_looks_once_a_minute(table, monkeypatch):
    monkeypatch.setenv("SBATCH_ACCOUNT", "astro")
    _, made = keep(table, partition="short", scrontab_options="--qos=cron --constraint='a&b'")
    assert made.text == "a small job of Slurm's crontab looks at it once a minute"
    options, entry = table.read_text().splitlines()
    asked = shlex.split(options.removeprefix("#SCRON "))
    assert {"--time=10", "--mem=500M", "--ntasks=1", "--partition=short", "--account=astro"} <= set(asked)
    assert asked[-2:] == ["--qos=cron", "--constraint=a&b"]
    assert f"--output={table.parent}/run/scrontab.out" in asked
    when, _, line = entry.partition(" /bin/sh ")
    assert when == "* * * * *"
    script, _, mark = line.partition(" # ")
    assert mark == "asa run ab12"
    called = Path(shlex.split(script)[0]).read_text()
    assert f"-m asa tick {table.parent}/run --quiet --kept=ab12" in called


def test_the_user_s_entries_stay(table):
    table.write_text(OWN)
    facility, _ = keep(table)
    keep(table, "cd34")
    assert table.read_text().startswith(OWN)
    scrontab.end(facility, "ab12")
    assert table.read_text().startswith(OWN)
    assert "ab12" not in table.read_text()
    assert len(table.read_text().splitlines()) == 5
    scrontab.end(facility, "cd34")
    assert table.read_text() == OWN
    assert not list((table.parent / "state" / "asa").glob("look-*"))


def test_an_entry_that_slurm_disabled_goes_as_a_whole(table):
    """Slurm puts a word before each of its lines when the user has cancelled its job."""
    facility, _ = keep(table)
    disabled = "".join(f"#DISABLED: {line}\n" for line in table.read_text().splitlines())
    table.write_text(OWN + disabled)
    scrontab.end(facility, "ab12")
    assert table.read_text() == OWN


def test_an_empty_table_is_removed(table):
    facility, _ = keep(table)
    scrontab.end(facility, "ab12")
    assert not table.exists()
    calls = (table.parent / "calls").read_text().splitlines()
    scrontab.end(facility, "ab12")
    assert (table.parent / "calls").read_text().splitlines() == [*calls, "-l"], "nothing to write"


def test_a_site_that_has_not_enabled_it_says_so(table):
    (table.parent / "disabled").touch()
    assert scrontab.trouble(SlurmCommands()) == "scrontab says 'scrontab is disabled on this cluster'"
    with pytest.raises(BackendError, match="is disabled"):
        keep(table)
    assert keepers.kept(table.parent / "run") is None
    assert not list((table.parent / "state" / "asa").glob("look-*"))


def test_no_program_or_another_backend_is_told(table, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert scrontab.trouble(SlurmCommands()) == "there is no `scrontab` command here"
    assert "no option for another cluster" in scrontab.trouble(SlurmCommands(cluster="small"))
    local = open_facility("local").facility
    assert "this backend" in scrontab.trouble(local)
    with pytest.raises(InputError, match="this backend"):
        keepers.keep(Way.SCRONTAB, table.parent / "run", "ab12", local, 600.0)


def test_a_path_that_slurm_would_change_is_refused(table, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", f"{table.parent}/$HOME")
    with pytest.raises(BackendError, match="cannot be called from Slurm's crontab"):
        keep(table)
    assert not table.exists()
