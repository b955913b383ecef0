"""``asa bank``, as a user types it."""

import json
import os
import pty
import time
from types import SimpleNamespace

import forked
import pytest
from typer.testing import CliRunner

from asa.cli.bank import app
from asa.errors import AsaError
from asa.estimators.store import WaitStore
from asa.estimators.stored import WaitRecord
from asa.waits import QueuedJob, at_least, at_most, exactly

NOW_S = time.time()
DAY_S = 86400.0


def asa(*arguments, code=0, env=None):
    """Run the command in this process, which is faster than a new one."""
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "100", **(env or {})})
    if isinstance(done.exception, AsaError):
        assert done.exception.exit_code == code, done.exception
        return SimpleNamespace(stdout=done.stdout, stderr=str(done.exception))
    assert done.exit_code == code, done.output
    return done


def asa_process(*arguments, code=0, **more):
    """Run the command as a user does."""
    return forked.asa("bank", *arguments, code=code, **more)


def job(days_ago=0.0, cores=64, system="hpc2n", partition="batch"):
    return QueuedJob(NOW_S - days_ago * DAY_S, cores, 3600.0, "ada", system, partition)


@pytest.fixture
def bank(tmp_path):
    """Return a bank of four old waits from a log, and of own forecasts: 60 s, p90 600 s."""
    folder = tmp_path / "bank"
    forecast = (10.0, 20.0, 30.0, 40.0, 60.0, 90.0, 120.0, 300.0, 600.0)
    with WaitStore(folder, durable=False) as store:
        store.extend(
            WaitRecord(job(100 + i, cores=1, partition="long"), exactly(wait_s), source="old.swf")
            for i, wait_s in enumerate((100.0, 200.0, 300.0, 400.0))
        )
        for seen in (exactly(31.0), exactly(119.0), exactly(500.0), exactly(5000.0), at_most(700.0), at_least(800.0)):
            store.append(WaitRecord(job(), seen, forecast, "asa"))
    return folder


def test_show_tells_of_each_kind_of_job(bank):
    """Each kind has its number of jobs, its usual waits, and the accuracy of its forecasts."""
    text = asa("show", "--bank", bank).stdout
    wide, narrow = (next(line for line in text.splitlines() if label in line) for label in ("33-64 cores", "long 1 c"))
    assert wide.split()[-6:-3] == ["6", "5m10s", "1h00m"]
    assert wide.split()[-2:] == ["50", "60"]  # 31 and 119 of four; 31, 119 and 500 of five that can be told
    assert narrow.split()[-6:-3] == ["4", "4m10s", "6m10s"]
    assert narrow.split()[-2:] == ["-", "-"]
    assert time.strftime("%Y-%m-%d", time.gmtime(NOW_S - 100 * DAY_S + 100)) in narrow
    assert f"10 observations of 2 kinds of job, 1 source learned from; in {bank}" in text
    assert "Note" not in text


def test_show_as_json_tells_the_same(bank):
    """Times are in seconds, and percentages are fractions."""
    shown = json.loads(asa("show", "--bank", bank, "--output", "json").stdout)
    assert shown["observations"] == 10
    assert shown["skipped"] == {}
    wide, narrow = shown["geometries"]
    assert wide["geometry"]["size_class"] == 6
    assert (wide["observations"], wide["median_s"], wide["within_2x"], wide["within_p90"]) == (6, 309.5, 0.5, 0.6)
    assert (narrow["median_s"], narrow["p90_s"], narrow["within_2x"]) == (250.0, 370.0, None)
    assert narrow["last_s"] == pytest.approx(NOW_S - 100 * DAY_S + 100)


def test_show_names_the_kinds_seen_most_and_all_if_asked(tmp_path):
    """The output says how many kinds it leaves out; a log's own clock gives no date."""
    with WaitStore(tmp_path / "bank", durable=False) as store:
        store.extend(
            WaitRecord(QueuedJob(5000.0, 2**size, 60.0, system=f"m{size}"), exactly(1.0))
            for size in range(23)
            for _ in range(size + 1)
        )
    text = asa("show", "--bank", tmp_path / "bank").stdout
    assert "m22 " in text
    assert "m3 " in text
    assert "m2 " not in text
    assert "--all shows all" in text
    assert "at 1h23m" in text
    text = asa("show", "--all", "--bank", tmp_path / "bank").stdout
    assert "m0 " in text
    assert "--all" not in text


def test_show_says_what_was_damaged(bank):
    """The rest is shown."""
    (live,) = bank.glob("live-*")
    live.write_bytes(live.read_bytes()[:-9])
    text = asa("show", "--bank", bank).stdout
    assert "9 observations" in text
    assert "Note: 1 x line cut off" in text
    assert list(json.loads(asa("show", "--bank", bank, "--output", "json").stdout)["skipped"].values()) == [1]


def test_without_a_bank_one_is_told_how_to_begin(tmp_path):
    """Showing an absent bank is no failure, and creates nothing."""
    env = {"ASA_BANK": str(tmp_path / "mine")}
    for words in ("does not exist yet", "is empty"):
        text = asa("show", env=env).stdout
        assert f"The bank {tmp_path / 'mine'} {words}. Fill it with `asa learn --from FILE`" in text
        assert json.loads(asa("show", "--output", "json", env=env).stdout)["observations"] == 0
        if words == "does not exist yet":
            assert not (tmp_path / "mine").exists()
            for arguments in (("export", tmp_path / "x"), ("forget", "--all", "--yes")):
                told = asa(*arguments, env=env, code=2).stderr
                assert "there is no bank" in told
                assert "asa learn" in told
        (tmp_path / "mine").mkdir(exist_ok=True)


def test_a_bank_goes_from_one_place_to_another(bank, tmp_path):
    """A bank is exported and imported; doing so twice changes nothing."""
    done = asa_process("export", tmp_path / "file.gz", "--bank", bank)
    assert "10 observations written" in done.stderr
    for count in (10, 0):
        done = asa("import", tmp_path / "file.gz", "--bank", tmp_path / "other")
        assert f"{count} new observations added to {tmp_path / 'other'}" in done.stderr
    kept, given = WaitStore(bank).read(), WaitStore(tmp_path / "other").read()
    assert [one.observation for one in given] == [one.observation for one in kept]
    assert not {one.job.user for one in given if one.job.user} & {one.job.user for one in kept}


def test_what_is_no_bank_is_refused(bank, tmp_path):
    """The error names the file, and no bank is created."""
    (tmp_path / "log.swf").write_text("; MaxProcs: 4\n")
    told = asa("import", tmp_path / "log.swf", "--bank", tmp_path / "other", code=2).stderr
    assert f"{tmp_path / 'log.swf'}: is not a bank of waits" in told
    process = asa_process("import", tmp_path / "log.swf", "--bank", tmp_path / "other", code=2)
    assert process.stderr == f"asa: cannot use the input: {told}\n"
    assert not (tmp_path / "other").exists()
    assert "cannot be read" in asa("import", tmp_path / "none", "--bank", bank, code=2).stderr
    assert "cannot be written" in asa("export", tmp_path / "no" / "file", "--bank", bank, code=2).stderr
    assert "is a file, not the folder of a bank" in asa("show", "--bank", tmp_path / "log.swf", code=2).stderr
    (bank / f"kept-host-1-{'0' * 16}.jsonl").write_text('{"format":"asa-waits","version":9}\n')
    assert "Upgrade" in asa("show", "--bank", bank, code=2).stderr


@pytest.mark.parametrize(
    ("conditions", "left"),
    [
        (["--source", "old.swf"], 6),
        (["--source", ""], 4),
        (["--system", "hpc2n"], 0),
        (["--partition", "long", "--system", "hpc2n"], 6),
        (["--older-than", "2436h"], 8),
        (["--older-than", "90d", "--source", ""], 10),
        (["--system", "other"], 10),
        (["--all"], 0),
    ],
    ids=str,
)
def test_forget_removes_what_meets_every_condition(bank, conditions, left):
    """The output says how many jobs that were."""
    told = asa("forget", *conditions, "--yes", "--bank", bank).stderr
    assert len(WaitStore(bank).read()) == left
    assert (f"{10 - left} observations deleted" in told) == (left < 10)
    assert ("None of 10 observations matches" in told) == (left == 10)


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([], "there is no condition"),
        (["--all", "--system", "hpc2n"], "both conditions and --all"),
        (["--older-than", "1:30"], "'1:30' is not an age"),
        (["--older-than", "90"], "'90' is not an age"),
        (["--older-than", "a while"], "--older-than: 'a while' is not an age"),
        (["--all"], "would delete 10 of 10 observations"),
    ],
)
def test_forget_refuses_what_was_perhaps_not_meant(bank, conditions, words):
    """Nothing is forgotten where nobody can be asked, either."""
    assert words in asa("forget", *conditions, "--bank", bank, code=2).stderr
    assert len(WaitStore(bank).read()) == 10


@pytest.mark.parametrize(("answer", "left"), [("y\n", 6), ("n\n", 10), ("\n", 10)])
def test_forget_asks_at_a_terminal(bank, answer, left):
    """Only a yes counts as one."""
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode())
    done = asa_process("forget", "--source", "old.swf", "--bank", bank, stdin=theirs)
    os.close(ours)
    os.close(theirs)
    assert "Delete 4 of 10 observations?" in done.stderr
    assert len(WaitStore(bank).read()) == left
