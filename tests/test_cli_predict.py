"""``asa learn`` and ``asa predict``."""

import getpass
import gzip
import importlib
import json
import os
import platform
import re
from types import SimpleNamespace
from typing import ClassVar

import forked
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from asa import QueuedJob, WaitStore
from asa.backend import Capabilities
from asa.cli.learn import learn
from asa.cli.predict import predict
from asa.estimators.stored import WaitRecord
from asa.sites import OpenedSite
from asa.waits import QueueEvent, exactly

APP = typer.Typer()
APP.command()(learn)
SACCT = "JobID|User|Partition|Submit|Start|End|State|TimelimitRaw|ReqCPUS"


def asa(*arguments, bank, code=0, piped=""):
    env = {"ASA_BANK": str(bank), "PATH": "/usr/bin:/bin", "COLUMNS": "100", "HOME": str(bank.parent)}
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as pipe:
        pipe.write(piped)  # which is less than a pipe holds
        pipe.close()
        return forked.asa(*arguments, env=env, code=code, stdin=reading)


def swf(path, jobs=400, seed=0, cores=(1, 16)):
    rng = np.random.default_rng(seed)
    submit = np.cumsum(rng.exponential(600.0, jobs)).astype(int)
    lines = ["; MaxProcs: 64"]
    for number in range(jobs):
        wide = int(rng.integers(len(cores)))
        wait = int(10 ** rng.normal(2 + 1.5 * wide, 0.2))
        lines.append(f"{number} {submit[number]} {wait} 60 {cores[wide]} -1 -1 {cores[wide]} 3600 -1 1 7 1 1 1 1 -1 -1")
    path.write_text("\n".join(lines) + "\n")
    return path


def accounting(now, jobs=120):
    rows = [SACCT]
    for number in range(jobs):
        submit = int(now) - 4 * 86_400 + 2000 * number
        rows.append(f"{number}|ann|batch|{submit}|{submit + 900}|{submit + 1000}|COMPLETED|60|16")
    return "\n".join(rows) + "\n"


@pytest.fixture
def bank(tmp_path):
    return tmp_path / "bank"


def test_what_a_log_taught_is_told_with_probabilities(tmp_path, bank):
    learned = asa("learn", "--from", swf(tmp_path / "north.swf"), bank=bank)
    assert "400 waits on 'north'" in learned.stderr
    assert "400 of them are new" in learned.stderr
    answers = {}
    for cores in (1, 16):
        told = asa("predict", "--cores", cores, "--walltime", "1h", "--within", "10min", "--output", "json", bank=bank)
        answers[cores] = json.loads(told.stdout)
    narrow, wide = answers[1], answers[16]
    for answer, wait in ((narrow, 100), (wide, 3162)):
        quantiles = list(answer["quantiles_s"].values())
        assert quantiles == sorted(quantiles)
        assert list(answer["quantiles_s"]) == [f"p{10 * i}" for i in range(1, 10)]
        assert answer["quantiles_s"]["p10"] < wait < answer["quantiles_s"]["p90"]
        assert 0.5 < answer["wait_s"] / wait < 2
        assert 380 < answer["observations"] <= answer["observations_in_bank"] == 400
        assert 150 < answer["observations_of_geometry"] < 250
        recent = answer["recent"]
        assert recent["of_geometry"]
        assert recent["jobs"] > 100
        assert recent["within_2x"] > 0.7
        assert 0.35 < recent["within_p50"] < 0.65
        assert 0.8 < recent["within_p90"] < 0.97
    assert narrow["probability_within"]["600"] > 0.9
    assert wide["probability_within"]["600"] < 0.1
    table = asa("predict", "--cores", 16, "--walltime", "1h", bank=bank)
    assert "9 in 10 such jobs start within" in table.stdout
    assert f"Learned from the latest {wide['observations']} waits of the 400 in the bank" in table.stdout
    assert "not specific to a user" in " ".join(table.stdout.split())
    assert "As of the last submission in the bank, which is long ago" in table.stdout


def test_learning_again_or_more_adds_only_what_is_new(tmp_path, bank):
    path = swf(tmp_path / "north.swf")
    asa("learn", "--from", path, "--limit", 100, bank=bank)
    assert "300 of them are new" in asa("learn", "--from", path, bank=bank).stderr
    assert " 0 of them are new" in asa("learn", "--from", path, bank=bank).stderr
    packed = tmp_path / "north.swf.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert " 0 of them are new" in asa("learn", "--from", packed, bank=bank).stderr
    shown = json.loads(asa("predict", "--cores", 16, "--walltime", "1h", "--output", "json", bank=bank).stdout)
    assert shown["observations_in_bank"] == 400


def test_a_file_that_is_known_is_not_added_again_until_something_is_deleted(tmp_path, bank, monkeypatch):
    """To make records of each job and to look for each in the bank takes seconds."""
    path, other = swf(tmp_path / "north.swf"), swf(tmp_path / "south.swf", jobs=50, seed=1)
    added = []
    given = WaitStore.extend
    monkeypatch.setattr(WaitStore, "extend", lambda store, records: added.append(given(store, records)) or added[-1])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def learn(path, *options):
        before = len(added)
        runner = CliRunner().invoke(APP, ["--from", str(path), "--bank", str(bank), *options])
        assert runner.exit_code == 0, runner.output
        return added[before:]

    assert learn(path) == [400]
    assert learn(path) == []
    assert learn(other) == [50]
    assert learn(path) == []
    assert learn(path, "--system", "west") == [400], "of another system they are other waits"
    assert learn(path, "--limit", "10") == [0]
    assert asa("bank", "forget", "--system", "south", "--yes", bank=bank)
    assert learn(other) == [50]
    assert learn(path) == [0]
    path.write_text(path.read_text().replace(" 3600 ", " 7200 "))
    assert learn(path) == [400]


def test_many_waits_are_learned_in_the_background(tmp_path, bank, monkeypatch):
    """The command that is begun leaves what the first prediction would have to learn."""
    begun = []
    module = importlib.import_module("asa.cli.learn")
    monkeypatch.setattr(module, "_MANY", 300)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("asa.estimators.readiness.later", lambda *words: begun.append(words) or True)
    for path in (swf(tmp_path / "north.swf"), swf(tmp_path / "few.swf", jobs=50)):
        told = CliRunner().invoke(APP, ["--from", str(path), "--bank", str(bank), "--system", "north"])
    assert len(begun) == 1
    assert "in the background" not in told.output
    assert begun[0][:2] == ("-m", "asa")
    asa(*begun[0][2:], bank=bank)
    caches = bank.parent / ".cache" / "asa" / "learned"
    assert [file for file in caches.rglob("*.json") if '"estimator"' in file.read_text()]


def test_accounting_may_come_through_a_pipe(bank):
    import time

    asa("learn", "--from", "-", "--system", "south", bank=bank, piped=accounting(time.time()))
    told = asa("predict", "--cores", 16, "--walltime", "1:00:00", "--user", "ann", bank=bank)
    assert "south batch" in told.stdout
    assert "long ago" not in told.stdout
    assert "whose job" not in told.stdout
    stranger = asa("predict", "--cores", 16, "--walltime", "1:00:00", "--user", "bob", bank=bank, code=2)
    assert "no job of user 'bob' is in the bank" in stranger.stderr
    unnamed = asa("learn", "--from", "-", bank=bank, piped=accounting(time.time()), code=2)
    assert "Name it with --system" in unnamed.stderr
    mixed = accounting(time.time()).replace("|batch|", "|long|", 1)
    asa("learn", "--from", "-", "--system", "west", bank=bank, piped=mixed)
    undecided = asa("predict", "--cores", 16, "--walltime", "1h", "--system", "west", bank=bank, code=2)
    assert "2 partitions: batch, long" in undecided.stderr
    hint = asa("learn", "--from", "-", "--system", "west", bank=bank, piped=mixed).stderr.split("Ask with: asa ")[1]
    asa(*hint.split(), bank=bank)  # which works as it is written


def test_systems_and_partitions_are_told_apart(tmp_path, bank):
    asa("learn", "--from", swf(tmp_path / "north.swf"), bank=bank)
    asa("learn", "--from", swf(tmp_path / "south.swf", seed=1), bank=bank)
    for arguments, words in (
        ([], "knows 2 systems: north, south"),
        (["--system", "nroth"], "Did you mean 'north'"),
        (["--system", "north", "--partition", "gpu"], "no partition 'gpu'"),
    ):
        assert words in asa("predict", "--cores", 16, "--walltime", "1h", *arguments, bank=bank, code=2).stderr
    asa("predict", "--cores", 16, "--walltime", "1h", "--system", "south", bank=bank)


def test_a_job_wider_than_any_that_is_known_gets_no_answer(tmp_path, bank):
    """An earlier version predicted a shorter wait than for a narrower job."""
    asa("learn", "--from", swf(tmp_path / "north.swf"), bank=bank)
    refused = asa("predict", "--cores", 1_000_000, "--walltime", "1h", bank=bank, code=2).stderr
    widest = int(re.search(r"no job of more than (\d+) cores is known on north", refused)[1])
    asa("predict", "--cores", widest, "--walltime", "1h", bank=bank)
    assert "--cores" in asa("predict", "--cores", widest + 1, "--walltime", "1h", bank=bank, code=2).stderr


def test_runs_on_this_machine_do_not_keep_a_bank_from_telling_of_the_cluster(tmp_path, bank):
    asa("learn", "--from", swf(tmp_path / "north.swf"), bank=bank)
    asa("learn", "--from", swf(tmp_path / "here.swf", seed=1), "--system", platform.node().partition(".")[0], bank=bank)
    assert "on north" in asa("predict", "--cores", 16, "--walltime", "1h", bank=bank).stdout


def test_a_bank_of_runs_on_this_machine_tells_of_it_alone_and_only_if_it_is_named(tmp_path, bank):
    here = platform.node().partition(".")[0]
    asa("learn", "--from", swf(tmp_path / "here.swf"), "--system", here, bank=bank)
    refused = " ".join(asa("predict", "--cores", 16, "--walltime", "1h", bank=bank, code=2).stderr.split())
    assert "knows only waits of jobs on this computer" in refused
    assert "--backend simulated --option system=uppmax" in refused
    assert f"on {here}" in asa("predict", "--cores", 16, "--walltime", "1h", "--system", here, bank=bank).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "--cores", "16", "--walltime", "1h"], "knows nothing yet"),
        (["predict", "--cores", "16", "--walltime", "soon"], "--walltime: 'soon' is no duration"),
        (["predict", "--cores", "16", "--walltime", "0"], "--walltime: is 0"),
        (["predict", "--cores", "16", "--walltime", "1h", "--within", "soon"], "--within: 'soon' is no duration"),
        (["learn", "--from", "-"], "standard input: is empty"),
        (["predict", "--cores", "0", "--walltime", "1h"], "--cores"),
        (["learn", "--from", "none.swf"], "none.swf"),
        (["learn", "--from", "."], "Is a directory"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_remedy(arguments, words, bank):
    assert words in asa(*arguments, bank=bank, code=2).stderr


def test_a_partition_is_not_asked_for_where_there_are_none(tmp_path, bank):
    log = swf(tmp_path / "north.swf")
    log.write_text(log.read_text().replace(" 1 1 1 1 -1 -1", " 1 1 -1 -1 -1 -1"))
    asa("learn", "--from", log, bank=bank)
    told = asa("predict", "--cores", 1, "--walltime", "1h", "--partition", "batch", bank=bank, code=2).stderr
    assert "--partition: its jobs are of no partition\nLeave it out" in told


def test_names_are_only_names(tmp_path, bank):
    """Names are not interpreted as markup."""
    asa("learn", "--from", swf(tmp_path / "a.swf", jobs=50), "--system", "[/bar]", bank=bank)
    told = asa("predict", "--cores", 16, "--walltime", "1h", bank=bank)
    assert "[/bar]" in told.stdout


def test_those_that_start_last_do_not_stand_for_all(tmp_path, bank):
    """A log that ends while jobs wait shows the longest waits last; at the log's end they are not known yet."""
    path = swf(tmp_path / "north.swf", jobs=400, cores=(16,))
    rows = path.read_text().splitlines()
    last = int(rows[-1].split()[1])
    rows += [f"{900 + i} {last - 10 + i % 10} 900000 60 16 -1 -1 16 3600 -1 1 7 1 1 1 1 -1 -1" for i in range(10)]
    path.write_text("\n".join(rows) + "\n")
    asa("learn", "--from", path, bank=bank)
    told = json.loads(asa("predict", "--cores", 16, "--walltime", "1h", "--output", "json", bank=bank).stdout)
    assert told["quantiles_s"]["p50"] < 1000


def test_a_bank_that_knows_nothing_says_how_it_is_begun(tmp_path, bank):
    """The hint is to learn from the site's accounting or a log, into the same bank."""
    told = asa("predict", "--cores", 1, "--walltime", "1h", bank=bank, code=2).stderr
    assert "`asa learn --since 30d`" in told
    assert "`asa learn --from FILE`" in told
    other = tmp_path / "a bank"
    told = asa("predict", "--cores", 1, "--walltime", "1h", "--bank", other, bank=bank, code=2).stderr
    assert f"--from FILE --bank '{other}'" in told


def test_a_partition_without_a_name_is_not_named(tmp_path, bank):
    rows = [line.replace("|batch|", "||") if number % 2 else line for number, line in enumerate(_rows())]
    (tmp_path / "jobs.txt").write_text("\n".join(rows) + "\n")
    learned = asa("learn", "--from", tmp_path / "jobs.txt", "--system", "north", bank=bank).stderr
    assert "--partition batch" in learned
    told = asa("predict", "--cores", 16, "--walltime", "1h", bank=bank, code=2).stderr
    assert "1 partition: batch; of others the partition is not known" in told
    assert """as in --partition batch; for jobs without a known partition, --partition \"\".""" in " ".join(
        told.split()
    )
    assert "''" not in told
    asa("predict", "--cores", 16, "--walltime", "1h", "--partition", "", bank=bank)
    told = asa("predict", "--cores", 16, "--walltime", "1h", "--partition", "x", bank=bank, code=2).stderr
    assert "Known: batch." in told


def _rows():
    return accounting(1_700_000_000.0).splitlines()


# ---------------------------------------------------------------------- several requests


def test_several_requests_are_compared(tmp_path, bank):
    asa("learn", "--from", swf(tmp_path / "north.swf"), bank=bank)
    arguments = ("predict", "--cores", "1,16", "--walltime", "1h,2h", "--output", "json")
    told = json.loads(asa(*arguments, bank=bank).stdout)
    assert [(one["cores"], one["walltime_s"]) for one in told["requests"]] == [
        (1, 3600.0), (1, 7200.0), (16, 3600.0), (16, 7200.0)
    ]  # fmt: skip
    medians = [one["quantiles_s"]["p50"] for one in told["requests"]]
    assert medians[0] <= medians[1] <= medians[3]
    assert medians[0] <= medians[2] <= medians[3]
    assert told["requests"][told["best"]]["cores"] == 1
    assert told["requests"][2]["probability_before_best"] < 0.5
    table = asa("predict", "--cores", "1,16", "--walltime", "1h", bank=bank).stdout
    assert "best" in table
    assert "With --run-time" in table


def test_the_first_to_end_depends_on_how_long_they_run(tmp_path, bank):
    """Narrow jobs wait 100 s, wide ones 3162 s."""
    asa("learn", "--from", swf(tmp_path / "north.swf"), bank=bank)

    def best(*run_times):
        given = ("--cores", "1,16", "--walltime", "20h", "--run-time", ",".join(run_times), "--output", "json")
        told = json.loads(asa("predict", *given, bank=bank).stdout)
        return told["requests"][told["best"]]["cores"]

    assert best("30min", "20min") == 1
    assert best("18h", "20min") == 16


def test_what_would_not_end_within_its_walltime_is_not_offered(tmp_path, bank):
    asa("learn", "--from", swf(tmp_path / "north.swf"), bank=bank)
    given = ("predict", "--cores", "1,16", "--walltime", "30min,2h", "--run-time", "90min,10min")
    told = json.loads(asa(*given, "--output", "json", bank=bank).stdout)
    assert [(one["cores"], one["walltime_s"]) for one in told["requests"]] == [(1, 7200.0), (16, 1800.0), (16, 7200.0)]
    given = ("predict", "--cores", "1", "--walltime", "30min", "--run-time", "90min")
    assert "no run time fits into a walltime" in asa(*given, bank=bank, code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cores", "1,many", "--walltime", "1h"], "'many' is not a number of cores"),
        (["--cores", ",", "--walltime", "1h"], "--cores: names nothing"),
        (["--cores", "1,2,3", "--walltime", "1h", "--run-time", "1h,2h"], "2 run times for 3 numbers of cores"),
        (["--cores", "1", "--walltime", "1h", "--bank-only", "--site", "x"], "--site: does not go"),
        (["--cores", ",".join(map(str, range(1, 60))), "--walltime", "1h,2h"], "118 combinations"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, words, tmp_path, bank):
    asa("learn", "--from", swf(tmp_path / "north.swf", cores=(1, 64)), bank=bank)
    assert words in asa("predict", *arguments, bank=bank, code=2).stderr


def test_what_is_named_twice_is_asked_once(tmp_path, bank):
    asa("learn", "--from", swf(tmp_path / "north.swf"), bank=bank)
    given = ("predict", "--cores", "1,16,1", "--walltime", "1h,60min,", "--partition", "p1,p1", "--output", "json")
    assert len(json.loads(asa(*given, bank=bank).stdout)["requests"]) == 2


def test_a_table_says_what_it_was_learned_from_and_how_good_that_was(tmp_path, bank):
    asa("learn", "--from", swf(tmp_path / "north.swf"), bank=bank)
    told = " ".join(asa("predict", "--cores", "1,16", "--walltime", "1h", bank=bank).stdout.split())
    for words in ("Learned from the latest", "were within a factor of two", "As of the last submission"):
        assert words in told


def test_a_row_says_the_same_in_any_company(tmp_path, bank):
    """The row of a request is the same alone and beside others."""
    asa("learn", "--from", swf(tmp_path / "north.swf"), bank=bank)
    alone = json.loads(asa("predict", "--cores", 16, "--walltime", "1h", "--output", "json", bank=bank).stdout)[
        "quantiles_s"
    ]
    for cores, within in (
        ("1,16", 1.1),
        ("16,1", 1.1),
        ("1,2,4,8,16", 2.0),
    ):  # but for what makes waits rise with cores
        told = json.loads(asa("predict", "--cores", cores, "--walltime", "1h", "--output", "json", bank=bank).stdout)
        row = next(one for one in told["requests"] if one["cores"] == 16)["quantiles_s"]
        for level in ("p20", "p50", "p80"):
            assert 1 / within < row[level] / alone[level] < within


def test_a_second_question_is_answered_from_what_is_kept(tmp_path, bank):
    asa("learn", "--from", swf(tmp_path / "north.swf"), bank=bank)
    first = asa("predict", "--cores", 16, "--walltime", "1h", "--output", "json", bank=bank).stdout
    assert list((bank.parent / ".cache" / "asa" / "learned").rglob("*.json"))
    assert asa("predict", "--cores", 16, "--walltime", "1h", "--output", "json", bank=bank).stdout == first
    asa("bank", "forget", "--all", "--yes", bank=bank)
    assert not list((bank.parent / ".cache" / "asa" / "learned").rglob("*.json"))


class Site:
    """A queue that shows only the user's own jobs, and a batch system with its own start estimates."""

    words_s: ClassVar[list[float | None]] = [36_000.0]
    condition = submit = find = cancel = hold = release = status = wait = None  # nothing is submitted

    def __init__(self, others=False):
        self.capabilities = Capabilities("north", 64, 16, age_accrues=False, partition="batch")
        self.others, self.asked = others, []

    def now(self):
        return 1e9

    def queue_events(self, most, *, ends=False):
        name = "somebody" if self.others else getpass.getuser()
        return [
            QueueEvent("submitted", 1, 1e9 - 600, QueuedJob(1e9 - 600, 4, 3600.0, name, "north", "batch")),
            QueueEvent("started", 1, 1e9 - 300),
        ]

    def estimated_start(self, spec):
        self.asked.append((spec.cores, spec.walltime_s, spec.partition))
        word_s = self.words_s[len(self.asked) % len(self.words_s)]
        return None if word_s is None else self.now() + word_s


def predicted(site, bank, monkeypatch, *arguments):
    facility = SimpleNamespace(connect=lambda _folder: site)
    opened = OpenedSite("slurm-cli", facility, {})
    monkeypatch.setattr("asa.cli.known_waits.find_site", lambda *_: opened)
    app = typer.Typer()
    app.command()(predict)
    done = CliRunner().invoke(app, ["--bank", str(bank), *arguments], env={"COLUMNS": "100"}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def lived(bank, factor, count=30):
    """Record waits of own runs of half an hour, for each of which the batch system had predicted a multiple."""
    stated = tuple(600.0 * place for place in range(1, 10))
    WaitStore(bank).extend(
        WaitRecord(
            QueuedJob(1e9 - 9000 * (count - n), 4, 3600.0, getpass.getuser(), "north", "batch"),
            exactly(1800.0),
            forecast=stated,
            estimator="asa",
            word_s=1800.0 * factor,
        )
        for n in range(count)
    )


def test_what_the_batch_system_says_is_told_with_how_far_off_it_was(bank, monkeypatch):
    lived(bank, factor=20)
    asked = ("--cores", "4", "--walltime", "1h")
    told = " ".join(predicted(Site(), bank, monkeypatch, *asked).split())
    assert re.search(
        r"Slurm itself says 10h00m \(lately off by a factor of 20, asa.s predictions by 1.7; weight \d+%\)", told
    )
    with_it = json.loads(predicted(Site(), bank, monkeypatch, *asked, "--output", "json"))
    without = json.loads(predicted(Site(), bank, monkeypatch, *asked, "--output", "json", "--no-ask-site"))
    assert (with_it["site_word"]["wait_s"], with_it["site_word"]["outcomes"]) == (36_000.0, 30)
    assert "site_word" not in without
    assert without["wait_s"] / 2 < with_it["wait_s"] < 2 * without["wait_s"], "its bias is known"
    seen = json.loads(predicted(Site(others=True), bank, monkeypatch, *asked, "--output", "json"))
    assert seen["site_word"]["share"] == 0, "the queue itself tells more"


def test_each_request_is_asked_for_once_and_no_more_than_twelve(bank, monkeypatch):
    lived(bank, factor=1)
    site = Site()
    told = json.loads(
        predicted(site, bank, monkeypatch, "--cores", "1,2,4,8", "--walltime", "1h,2h,3h,4h", "--output", "json")
    )
    assert len(told["requests"]) == 16
    assert len(site.asked) == len(set(site.asked)) == 12
    wide = Site()
    predicted(wide, bank, monkeypatch, "--cores", "2,4", "--walltime", "1h", "--run-time", "30min,30min")
    assert wide.asked == [(2, 3600.0, "batch"), (4, 3600.0, "batch")]


@pytest.mark.parametrize("word_s", [None, float("nan"), float("inf")])
def test_a_batch_system_that_says_nothing_of_use_breaks_no_prediction(bank, monkeypatch, word_s):
    lived(bank, factor=1)
    monkeypatch.setattr(Site, "words_s", [word_s])
    assert "itself says" not in predicted(Site(), bank, monkeypatch, "--cores", "4", "--walltime", "1h")
