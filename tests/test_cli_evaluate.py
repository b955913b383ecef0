"""``asa evaluate``, as a user types it."""

import csv
import json
import math
import sys

import forked
import pytest

from asa.cli.evaluate import evaluate
from asa.core import plugins
from asa.core.options import Output
from asa.errors import InputError, TraceError, UnknownNameError
from asa.studies.accuracy.study import installed

LOG = "; MaxProcs: 64\n" + "".join(
    f"{i} {i * 300} {7919 * i % 4000 if i % 3 else 0} {200 + 997 * i % 3000} 8 -1 -1 "
    f"{1 + 31 * i % 40} {600 + i % 2 * 3000} -1 1 1 1 1 1 1 -1 -1\n"
    for i in range(600)
)
STARTS = """\
id,true_start_time,estimate_start_time,diff_in_s
1,2022-12-01 12:00:00,2022-12-01 12:01:00,60.0
2,2022-12-01 12:00:00,2022-12-01 11:59:30,31.5
"""
BLOCKS = [f"coverage_{level}_{end}" for level in ("p50", "p90") for end in ("min", "max")]
KEYS = [
    *("trace", "estimator", "geometry", "jobs", "log10_error", "hit_ratio", "within_2x", "within_p50", "within_p90"),
    *("coverage_p10", "coverage_p20", "coverage_p30", "coverage_p40", "coverage_p50"),
    *("coverage_p60", "coverage_p70", "coverage_p80", "coverage_p90", *BLOCKS),
    *("pinball_s", "pinball_log10", "late_s", "late_share", "idle_core_h"),
    *("abs_error_s", "abs_error_p50_s", "abs_error_p90_s", "bias_s"),
    *("regret_per_job", "regret_bound_per_job", "us_per_job"),
]
# What a third party would install: an estimator that draws, and one that says the same for ever.
TOYS = """\
import random
from asa.waits import WaitForecast

class Drawing:
    def __init__(self, surroundings):
        self.generator = random.Random(surroundings.seed)
        self.waits = [60.0]
    def predict(self, job):
        wait_s = self.generator.choice(self.waits)
        return WaitForecast((wait_s,) * 9, wait_s)
    def submitted(self, job, forecast=None):
        return 0
    def observe(self, ticket, observation):
        self.waits.append(observation.wait_s)
    def state(self):
        return {}

class Steady(Drawing):
    def predict(self, job):
        return WaitForecast((60.0,) * 9, 60.0)

class Seer(Steady):
    sees_queue = True
    def ended(self, ticket, run_s):
        pass
"""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


@pytest.fixture
def starts(tmp_path):
    path = tmp_path / "starts.csv"
    path.write_text(STARTS)
    return path


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """Install the third party's package, for this process and its child processes."""
    folder = tmp_path / "site"
    (folder / "toys-1.0.dist-info").mkdir(parents=True)
    (folder / "toys.py").write_text(TOYS)
    (folder / "toys-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    lines = "[asa.estimators]\ndrawing = toys:Drawing\nsteady = toys:Steady\nseer = toys:Seer\n"
    (folder / "toys-1.0.dist-info" / "entry_points.txt").write_text(lines)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(folder)
    forget = plugins._installed.cache_clear
    forget()
    yield "drawing,steady"
    forget()
    sys.modules.pop("toys", None)


def asa(*arguments, code=0):
    return forked.asa("evaluate", *arguments, code=code)


def records(capsys, traces, **options):
    evaluate(traces, output=Output.JSON, **options)
    return json.loads(capsys.readouterr().out)


def without_time(scores):
    return [{key: value for key, value in score.items() if key != "us_per_job"} for score in scores]


def test_tables_say_how_it_went(log, toys):
    """There are two tables per trace, with an explanation of the columns; stderr stays empty without a terminal."""
    done = asa(log, "--estimators", toys)
    for words in ("log.swf: 600 waits", "what errors cost", "drawing", "steady", "oracle", "Pinball", "Bound"):
        assert words in done.stdout
    assert not done.stderr


def test_what_the_reader_found_odd_is_told(tmp_path, toys, capsys):
    """The log has a wait of -1."""
    path = tmp_path / "odd.swf"
    path.write_text(LOG + "601 180001 -1 60 8 -1 -1 8 600 -1 1 1 1 1 1 1 -1 -1\n")
    evaluate([path], estimators="steady")
    told = capsys.readouterr().out
    assert "odd.swf: 1 jobs" in told
    assert "whole file" not in told
    evaluate([path], estimators="steady", limit=10)
    assert ", in the whole file\n" in capsys.readouterr().out
    score, *_ = records(capsys, [path], estimators="steady")
    assert sum(score["oddities_of_file"].values()) == 1


def test_processes_do_not_change_the_numbers(log, starts, toys, tmp_path):
    """One or three processes make no difference; only the seed does."""
    more = tmp_path / "more.swf"
    more.write_text(LOG.replace(" 8 -1 -1 ", " 4 -1 -1 "))
    arguments = (more, starts, log, "--estimators", toys, "--by", "geometry", "--output", "json")
    several, one, other = (json.loads(asa(*arguments, *rest).stdout) for rest in (["-j", 3], ["-j", 1], ["--seed", 7]))
    assert without_time(several) == without_time(one)
    assert without_time(other) != without_time(one)
    assert [(score["trace"], score["estimator"]) for score in one if score["geometry"] is None] == [
        *((str(more), name) for name in ("drawing", "steady", "oracle")),
        (str(starts), "scheduler"),
        *((str(log), name) for name in ("drawing", "steady", "oracle")),
    ]


def test_json_holds_every_figure(log, toys, capsys):
    """Keys are stable."""
    scores = records(capsys, [log], estimators=toys)
    assert all(list(score) == [*KEYS, "oddities_of_file"] for score in scores)
    drawing, steady, oracle = scores
    assert steady["jobs"] == 600
    assert steady["log10_error"] > 0.5
    assert steady["us_per_job"] > 0
    assert (oracle["log10_error"], oracle["hit_ratio"], oracle["within_2x"], oracle["us_per_job"]) == (0, 1, 1, None)
    assert steady["coverage_p10"] == steady["coverage_p90"] == pytest.approx(1 / 3, abs=0.05)
    assert drawing["coverage_p90_min"] <= drawing["coverage_p90"] <= drawing["coverage_p90_max"]


def test_csv_holds_the_same(log, starts, toys, capsys, tmp_path):
    """Cells are empty where JSON has null."""
    path = tmp_path / "scores.csv"
    scores = records(capsys, [log, starts], estimators=toys, by="geometry", csv_file=path)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(scores) > 4
    for row, score in zip(rows, scores, strict=True):
        assert list(row) == KEYS
        assert row == {key: "" if score[key] is None else str(score[key]) for key in KEYS}


def test_geometries_add_up_to_the_whole(log, toys, capsys):
    """The log has jobs of many widths and two times."""
    scores = [
        score for score in records(capsys, [log], estimators=toys, by="geometry") if score["estimator"] == "steady"
    ]
    whole, *parts = scores
    assert len(parts) > 5
    assert sum(part["jobs"] for part in parts) == whole["jobs"] == 600
    assert math.fsum(part["late_s"] * part["jobs"] for part in parts) == pytest.approx(whole["late_s"] * 600)


def test_a_limit_takes_the_first_jobs(log, starts, toys, capsys, tmp_path):
    """The log is read as if it ended there."""
    short = tmp_path / "short.swf"
    short.write_text("".join(LOG.splitlines(keepends=True)[:201]))
    limited, whole = (
        records(capsys, [path, starts], estimators=toys, limit=limit) for path, limit in ((log, 200), (short, 200))
    )
    assert [score["jobs"] for score in limited] == [200, 200, 200, 2]
    for one, other in zip(without_time(limited), without_time(whole), strict=True):
        assert {**one, "trace": ""} == {**other, "trace": ""}
    assert records(capsys, [starts], limit=1)[0]["jobs"] == 1


def test_all_but_those_that_see_the_queue_are_the_default(log, toys, capsys):
    """Those on demand."""
    expected = {name for name in installed(queue=True) if name in installed()}
    assert {"drawing", "steady"} <= expected
    assert "seer" not in expected
    names = [score["estimator"] for score in records(capsys, [log], limit=30)]
    assert set(names) == expected | {"oracle"}
    assert len(names) == len(set(names))


def test_who_sees_the_queue_is_evaluated_when_asked_for(log, toys, capsys, monkeypatch):
    """Such an estimator is requested by `--queue`, or by name."""
    assert [score["estimator"] for score in records(capsys, [log], estimators="seer")] == ["seer", "oracle"]
    every = plugins.names
    monkeypatch.setattr(
        plugins, "names", lambda group: ["steady", "seer"] if group == "asa.estimators" else every(group)
    )
    assert [s["estimator"] for s in records(capsys, [log], queue=True)] == ["steady", "seer", "oracle"]


def test_estimated_starts_of_a_scheduler(starts, capsys):
    """Only times in seconds are known, and the rest is null; rows whose values do not fit are reported."""
    [score] = records(capsys, [starts])
    known = {key for key, value in score.items() if value is not None}
    seconds = {"abs_error_s", "abs_error_p50_s", "abs_error_p90_s", "bias_s", "late_s", "late_share"}
    assert known == {"trace", "estimator", "jobs", "oddities_of_file"} | seconds
    assert (score["estimator"], score["jobs"], score["abs_error_s"], score["bias_s"]) == ("scheduler", 2, 45.0, 15.0)
    evaluate([starts])
    out = capsys.readouterr().out
    assert "starts.csv" in out
    assert "1 jobs with a diff_in_s that is not the difference" in out


def test_a_figure_is_written(log, toys, tmp_path, capsys):
    """The file is a PNG of a certain size."""
    evaluate([log], estimators=toys, plot=tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.png").stat().st_size > 20_000
    assert "Figure written" in capsys.readouterr().err


def test_a_page_is_written_alone_or_in_a_folder(log, starts, toys, tmp_path, capsys):
    """One page has all logs, the course of Algorithm 1, and the reader's remarks."""
    for place, page in (("one.html", "one.html"), ("all", "all/accuracy.html")):
        evaluate([log, starts], estimators=toys, limit=300, page=tmp_path / place)
        text = (tmp_path / page).read_text()
        for words in ("300 waits of one log", "starts.csv", "Policy", "the first 300 of each log", "a diff_in_s that"):
            assert words in text
    assert 'href="accuracy.html"' in (tmp_path / "all" / "index.html").read_text()
    assert "Written to" in capsys.readouterr().err


def refused(kind, words, traces, **options):
    with pytest.raises(kind, match=words) as caught:
        evaluate(traces, **options)
    assert caught.value.hint
    return caught.value


def test_what_cannot_be_is_refused_in_words(log, starts, toys, tmp_path):
    """The error says what is wrong, where, and what to do."""
    refused(InputError, "by 'user'", [log], by="user")
    refused(InputError, "names nothing", [log], estimators=" , ")
    error = refused(UnknownNameError, "no estimator 'stedy'", [log], estimators="stedy")
    assert "Did you mean 'steady'?" in error.hint
    refused(InputError, "over time", [starts], plot=tmp_path / "a.png")
    refused(InputError, "no kind of figure", [log], plot=tmp_path / "a.xyz")
    refused(InputError, "no such folder", [log], page=tmp_path / "none" / "a.html")
    refused(InputError, "it is no folder", [log], page=log)
    refused(InputError, "folder does not exist", [log], csv_file=tmp_path / "none" / "a.csv")
    refused(InputError, "cannot be written", [log], csv_file=tmp_path, estimators="steady")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.swf", "", "is empty"),
        ("empty.csv", "", "is empty"),
        ("no_jobs.swf", "; MaxProcs: 64\n", "holds no jobs"),
        ("no_waits.swf", "".join(f"{i} {i} -1 60 8 -1 -1 8 600 -1 1 1 1 1 1 1 -1 -1\n" for i in range(9)), "wait"),
        ("left.swf", "".join(f"{i} {i} 9 -1 8 -1 -1 8 600 -1 5 1 1 1 1 1 -1 -1\n" for i in range(9)), "no job whose"),
        ("half.csv", "true_start_time\n2022-12-01 12:00:00\n", "lacks the column estimate_start_time"),
        ("bare.csv", "true_start_time,estimate_start_time\n", "has no row"),
        ("prose.txt", "It was a dark and stormy night.\n", "no job history"),
    ],
)
def test_files_without_waits_are_refused_in_words(tmp_path, toys, name, content, words):
    """The error names the file."""
    path = tmp_path / name
    path.write_text(content)
    assert name in str(refused(InputError, words, [path], estimators="steady"))


def test_files_that_are_not_there_are_refused_in_words(tmp_path):
    """A folder is refused, too."""
    refused(TraceError, "cannot be read", [tmp_path / "nowhere.swf"])
    refused(TraceError, "cannot be read", [tmp_path])


def test_errors_on_the_command_line_are_two_lines_and_exit_code_2(tmp_path):
    """There is no traceback."""
    done = asa(tmp_path / "nowhere.swf", code=2)
    assert "nowhere.swf" in done.stderr
    assert not done.stdout
