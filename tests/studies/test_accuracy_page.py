"""The page of an evaluation: its words follow from the figures, and every log and estimator is on it."""

import math
import re
from html import unescape

import pytest
from report.test_page import Reader

from asa.report.page import Folded, PageTable, render
from asa.studies.accuracy.convergence import Convergence
from asa.studies.accuracy.page import accuracy_page
from asa.studies.accuracy.scores import Course, Score
from asa.waits import LEVELS


def score(estimator, error, *, trace="logs/a.swf.gz", p90=0.9, **more):
    coverage = (*(level for level in LEVELS[:-1]), p90)
    given = {
        "jobs": 1000, "log10_error": error, "hit_ratio": 0.25, "within_2x": 0.5, "coverage": coverage,
        "within_p50": 0.7, "within_p90": 0.95,
        "coverage_p50_range": (0.45, 0.55), "coverage_p90_range": (0.86, 0.93), "pinball_log10": 0.2,
        "abs_error_p50_s": 600.0, "late_s": 60.0, "idle_core_h": 2.0,
        "course": Course((1.0, 2.0), (error, error), (0.5, 0.5), (0.9, p90)),
    }  # fmt: skip
    return Score(trace, estimator, **given | more)


TWO = [
    score("near", math.log10(2)),
    score("far", 1.0, p90=0.7),
    score("oracle", 0.0),
    score("near", math.log10(4), trace="logs/b.swf", p90=0.897),
    score("far", 0.5, trace="logs/b.swf", p90=0.9),
    score("oracle", 0.0, trace="logs/b.swf"),
]


def words(page):
    return " ".join(page.summary)


def test_the_summary_follows_from_the_figures():
    told = words(accuracy_page(TWO))
    assert told.startswith("2,000 waits of 2 logs, each predicted by 2 estimators as it was submitted.")
    assert "`near` is closest on 1 of them: on average it is off by a factor of 2.0 to 4.0." in told
    assert "Next is `far` (3.2 to 10.0)." in told
    assert "for 25 % of the waits" in told
    assert "its p90 covers 89.7 to 90.0 % of the waits, and its p50 50.0 %, equal waits spread" in told
    assert "So 95 % of the jobs started within its p90, and 70 % within its p50" in told
    assert "its p90 covers 86 to 93 %" in told
    assert "by more than 5 points on some log: `far` (70 to 90 %)" in told
    assert "off by less than 10m00s" in told


def test_other_figures_are_other_words():
    """One log, and one estimator whose quantiles cover what they state."""
    page = accuracy_page([score("only", 0.3), score("oracle", 0.0)])
    told = words(page)
    assert "1,000 waits of one log, each predicted by one estimator" in told
    assert "`only` is off by a factor of 2.0 in the mean." in told
    assert "are closest" not in render(page)
    assert "is closest" not in render(page)
    assert "Next is" not in told
    assert "does not hold" not in told
    last = words(accuracy_page([score(name, error) for name, error in (("a", 1.0), ("b", 0.5), ("c", 2.0))]))
    assert "Next is `a` (10.0), last `c` (100)." in last


@pytest.mark.parametrize(
    ("shares", "said"),
    [((0.86, 0.94), "What it states holds: its p90 covers 86.0 to 94.0 %"),
     ((0.7, 0.9), "What it states holds on 1 of them only: its p90 covers 70.0 to 90.0 %"),
     ((0.119, 0.119), "What it states does not hold: its p90 covers 11.9 % of the waits")],
)  # fmt: skip
def test_whether_what_is_stated_holds_is_what_the_figures_say(shares, said):
    scores = [score("only", 0.3, p90=share, trace=f"{place}.swf") for place, share in enumerate(shares)]
    assert said in words(accuracy_page(scores))


def test_who_failed_on_a_log_comes_after_who_did_not():
    """Its mean is over fewer logs, and its figure on that log is missing."""
    page = accuracy_page([*TWO, score("brief", 0.1)])
    assert "`near` is closest" in words(page)
    table = next(part for part in page.sections[0].parts if isinstance(part, PageTable))
    assert [row[0] for row in table.rows] == ["near", "far", "brief"]
    assert table.rows[2] == ["brief", 0.1, None, 0.1]
    assert {table.rows[row][0] for row, column in table.marks if column == 1} == {"brief"}


def test_every_log_has_its_tables_and_figures():
    html = render(accuracy_page(TWO, oddities={"logs/b.swf": {"left out: wait unknown": 3}}))
    read = Reader(html)
    headings = [value for tag, name, value in read.attributes if tag == "section" and name == "id"]
    assert headings == ["best", "stated", "columns", "log-1", "log-2"]
    assert html.count("<svg viewBox") == 3 + 2 * 2
    assert "3 jobs: left out: wait unknown." in html
    assert html.count(">oracle<") == 6, "in the three tables of each log, and ranked nowhere"
    marks = [unescape(label) for tag, name, label in read.attributes if (tag, name) == ("path", "aria-label")]
    assert {"near, a: 0.301", "far, b: 0.5", "far, a: 70"} <= set(marks)


def test_geometries_are_folded_and_named():
    of = [score(name, 0.4, geometry=where, jobs=jobs) for where, jobs in (("8 cores", 90), ("1 core", 910))
          for name in ("near", "far")]  # fmt: skip
    page = accuracy_page([*TWO[:3], *of])
    [folded] = [part for part in page.sections[-1].parts if isinstance(part, Folded)]
    [table] = folded.parts
    assert [tuple(row[:2]) for row in table.rows] == [
        (f"{where}: {jobs} waits", name)
        for where, jobs in (("1 core", 910), ("8 cores", 90))
        for name in ("near", "far")
    ]
    assert words(page) == words(accuracy_page(TWO[:3])), "the whole log counts"


def test_a_scheduler_s_own_estimates_are_told_in_time():
    starts = Score(
        "starts.csv", "scheduler", jobs=2, abs_error_s=45.0, abs_error_p50_s=45.0, bias_s=15.0, late_share=0.5
    )
    page = accuracy_page([starts])
    assert page.summary == []
    html = render(page)
    assert "started later than predicted" in html
    assert re.search(r'data-value="15.0"[^>]*>15s<', html)
    both = accuracy_page([*TWO, starts])
    assert [section.title for section in both.sections][-3:] == ["a", "b", "starts.csv"]


@pytest.mark.parametrize(
    ("found", "lost", "said"),
    [(9.0, (), "mostly after 9 submissions."), (math.nan, (), "finds a new wait never."),
     (9.0, (50.0, 100.0), "submissions; 75 % of the drops it does not find before the next change.")],
)  # fmt: skip
def test_figure_5_is_told_and_drawn(found, lost, said):
    one = Convergence("tuned", (10.0, 20.0, 20.0), (20.0, 20.0, 20.0), (90.0, 100.0), found, lost, ())
    page = accuracy_page(TWO, [one])
    assert "Algorithm 1, policy `tuned`: 95 % of its predictions are the closest; it" in page.summary[-1]
    assert page.summary[-1].endswith(said)
    assert "what came true" in render(page)
