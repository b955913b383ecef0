"""The pages of all strategies under all schedulers: their sentences follow from the figures."""

import io
import math
import re
from dataclasses import replace
from html import unescape

import pytest
from rich.console import Console

from asa.report.page import Folded, render
from asa.studies.schedulers.page import scheduler_pages, schedulers_page
from asa.studies.schedulers.study import LeftOut, SchedulerCampaign, SchedulerRun, conclude
from asa.studies.tables import of_schedulers
from asa.timeline import Lane, Span, Timeline

DONE = Timeline("w", 0.0, 60.0, (Lane("1", ("a",), 8, 60.0, 0.0, None, 0.0, (Span("running", 0.0, 60.0, 8, "a"),),
                                      "completed", ""),))  # fmt: skip
WAYS = {  # makespan over Big Job's, core-hours over Per-Stage's, seconds that others wait longer
    "first": {
        "big-job": (1.0, 2.0, 90.0), "per-stage": (3.0, 1.0, 0.0), "x": (1.5, 1.01, 30.0), "y": (1.5, 1.0, -10.0),
    },
    "second": {
        "big-job": (1.0, 2.0, 10.0), "per-stage": (2.0, 1.0, 0.0), "x": (0.5, 1.5, 30.0), "y": (1.2, 1.0, -30.0),
    },
}  # fmt: skip


def results(ways=WAYS, workflows=("w",), longer=1.0, left_out=(), luck=0.0):
    return conclude(SchedulerCampaign(seeds=3), trials(ways, workflows, longer, luck), left_out)


def trials(ways=WAYS, workflows=("w",), longer=1.0, luck=0.0):
    """Make three replications; `luck`: each strategy has its good and its bad one at another time."""
    return [
        SchedulerRun("log", scheduler, workflow, 8, name, seed,
              100.0 * span * (1 + place) * math.exp(luck * ((seed + number) % 3 - 1) * (1 + number / 10)), 10.0 * cost,
              0.0, 50.0 * span, 60.0, 10, 200.0, 3.0, longer * harm + 300 * luck * ((seed + number) % 3 - 1),
              harm / 100, harm / 360, DONE)
        for scheduler, of in ways.items()
        for place, workflow in enumerate(workflows)
        for seed in range(3)
        for number, (name, (span, cost, harm)) in enumerate(of.items())
    ]  # fmt: skip


def numbers(page):
    """Return the numbers of a page below its summary."""
    [section] = [section for section in page.sections if section.key == "numbers"]
    [part] = section.parts
    return list(part.paragraphs)


def test_the_summary_answers_in_plain_sentences():
    """Which to take, what it costs, whether others suffer, and how sure that is; the numbers come after that."""
    assert schedulers_page(results()).summary == [
        "The fastest is `x`, with 13 % less time than Big Job; it is clearly ahead of all others.",
        (
            "`x` costs 23 % more core-hours than Per-Stage; to save core-hours take `y`, which comes out quickest of "
            "those that cost least, with 34 % more time than Big Job."
        ),
        "Everybody else waits clearly longer for `x`, by 30s of 3m20s; most for `big-job`, by 50s.",
        "This rests on 3 replications in each of 2 cells; what is called clear or significant is so with 95 %.",
    ]
    luck = schedulers_page(results(luck=0.5)).summary
    assert luck[0].startswith("In time no strategy differs significantly from the others; `x` comes first, with ")
    assert "The others wait neither significantly longer nor less for `x`." in luck
    part = scheduler_pages(results())["first"].summary
    assert part[0] == (
        "The fastest is `big-job`, with 67 % less time than Per-Stage; it is clearly ahead of all others."
    )
    assert part[2] == "Everybody else waits clearly longer for `big-job`, by 1m30s of 3m20s."
    cheap = {"first": {"big-job": (1.0, 1.0, 0.0), "per-stage": (1.0, 1.0, 0.0)}}
    assert schedulers_page(results(cheap)).summary[:2] == [
        (
            "In time no strategy differs significantly from the others; `big-job` comes first, with as much time as "
            "Per-Stage."
        ),
        "`big-job` is among those that cost least.",
    ]


def test_one_replication_is_not_called_proof():
    once = conclude(SchedulerCampaign(seeds=1), [one for one in trials() if one.seed == 0])
    assert schedulers_page(once).summary[-1] == (
        "This rests on 1 replication in each of 2 cells, which proves nothing: take more seeds."
    )
    assert "1 seed;" in printed(once)


def printed(told):
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(of_schedulers(told))
    return console.export_text()


def test_no_zero_has_a_sign():
    """Neither on the page nor in the tables, where others wait a little less."""
    near = {name: {way: (span, cost, -0.001) for way, (span, cost, _) in ways.items()} for name, ways in WAYS.items()}
    for luck in (0.0, 1e-5):
        told = results(near, luck=luck)
        page = unescape(render(schedulers_page(told)))
        shown = re.sub(
            r'data-value="[^"]*"|<style>.*?</style>|<script>.*?</script>| d="[^"]*"', "", page, flags=re.DOTALL
        )
        for text in (shown, printed(told)):
            assert "0.0" in text
            assert not re.search(r"(?<![\w.])-0(\.0+)?(?![.\d])", text)


def test_waits_are_not_divided_by_about_nothing():
    """Where Per-Stage hardly waits there is no figure, and no axis."""
    brief = conclude(
        SchedulerCampaign(), [replace(one, perceived_wait_s=one.perceived_wait_s / 50) for one in trials()]
    )
    page = schedulers_page(brief)
    [table] = next(section for section in page.sections if section.key == "standings").parts[:1]
    places = {column.heading: number for number, column in enumerate(table.columns)}
    assert all(math.isnan(row[places["Waits between stages, over Per-Stage's"]]) for row in table.rows)
    assert [row[places["All waits, over Per-Stage's"]] for row in table.rows] == [1.0] * 8
    assert "waits between stages</text>" not in render(page)
    assert "waits between stages</text>" in render(schedulers_page(results()))
    assert "nan" not in printed(brief)


def test_the_numbers_follow_from_the_figures():
    told = numbers(schedulers_page(results()))
    assert told[0] == (
        "Over the 2 schedulers, geometric means of makespan over Big Job's and core-hours over Per-Stage's: "
        "big-job 1.00 and 2.00, per-stage 2.45 and 1.00, x 0.87 and 1.23, y 1.34 and 1.00."
    )
    assert told[1] == (
        "Over the 2 schedulers quickest: x, at 0.87 of Big Job's makespan and 1.23 of Per-Stage's core-hours; "
        "of those that cost least y, at 1.34 of Big Job's makespan."
    )
    waits = next(words for words in told if words.startswith("How much longer the others wait"))
    assert waits.endswith(
        "y -20s (clearly shorter), per-stage +0s, x +30s (clearly longer), big-job +50s (clearly longer); without "
        "this workflow they wait 3m20s."
    )
    ahead = next(words for words in told if words.startswith("Longer than with Per-Stage"))
    assert ahead.endswith("big-job +50s (clearly longer), x +30s (clearly longer), y -20s (clearly shorter).")
    assert "Quickest, or not significantly slower: big-job under 1 of 2, x under 1 of 2." in told
    assert "Likewise of those that cost within 2 % of the least: y under 2 of 2, x under 1 of 2." in told
    assert "Significantly the quickest: big-job under 1 of 2, x under 1 of 2." in told
    assert any(
        words.endswith("longer in 4 of 8 cases of a scheduler and a strategy, and significantly less in 2.")
        for words in told
    )
    first, second = told[-2:]
    assert first.startswith(
        "Under `first` quickest: big-job, at 2.00 of Per-Stage's core-hours; of those that cost least "
    )
    assert first.endswith("x, y, at 1.50 of Big Job's makespan; big-job makes the others wait 1m30s longer.")
    assert second.startswith("Under `second` quickest: x, at 0.50 of Big Job's makespan and 1.50 of Per-Stage's core-")
    assert second.endswith("least y, at 1.20 of Big Job's makespan; x makes the others wait 30s longer.")


def test_what_chance_may_have_done_is_not_claimed():
    """In three replications with much luck no strategy is called first, or harmful."""
    near = {name: {way: (1 + span / 100, cost, harm) for way, (span, cost, harm) in ways.items()}
            for name, ways in WAYS.items()}  # fmt: skip
    page = schedulers_page(results(near, luck=0.5))
    said = numbers(page)
    assert "Quickest, or not significantly slower: each of the 4, under all 2." in said
    assert "Significantly the quickest: none, under any scheduler." in said
    told = " ".join(said)
    assert all("(none of the others is significantly slower)" in words for words in (said[1], said[-1]))
    assert "wait significantly longer in none of 8 cases" in told
    assert "clearly longer" not in told
    assert "makes the others wait" not in told
    assert said[0].count(" to ") == 3, "each has its interval, but for Big Job's of itself"
    overview, *_ = page.sections
    assert set(overview.parts[0].marks.values()) == {"best"}
    assert overview.parts[2].marks == {}
    certain, *_ = schedulers_page(results()).sections
    assert set(certain.parts[2].marks.values()) == {"good", "bad"}


def test_who_is_not_significantly_slower_is_named():
    """Others are slower: the good replications of `x` are Big Job's bad ones, and those of `y` are the same."""
    said = numbers(schedulers_page(results({"first": WAYS["first"], "other": WAYS["first"]}, luck=0.1)))
    assert "Under `other` quickest: big-job (not significantly quicker than x), at 2.00 of" in said[-1]
    assert "of those that cost least x, y (none of the others is significantly slower), at 1.50 (0.93 to" in said[-1]


def test_averages_are_over_what_all_ran_under():
    """Otherwise a strategy that ran only in easy cells would be ahead; the page says how many cells count."""
    only = {**WAYS, "third": {name: way for name, way in WAYS["first"].items() if name != "x"}}
    told = numbers(schedulers_page(results(only)))
    assert told[0].startswith(
        "Over the 2 of 3 schedulers under which every strategy ran, geometric means of makespan over Big Job's and "
        "core-hours over Per-Stage's: big-job 1.00 and 2.00, per-stage 2.45 and 1.00, x 0.87 and 1.23,"
    )
    assert "Quickest, or not significantly slower: big-job under 2 of 3, x under 1 of 3." in told
    apart = {"first": only["third"], "second": {"big-job": (1.0, 2.0, 0.0), "per-stage": (2.0, 1.0, 0.0),
                                                "x": (1.0, 1.0, 0.0)}}  # fmt: skip
    page = schedulers_page(results(apart))
    assert "There is no scheduler under which every strategy ran: there are no averages." in numbers(page)
    assert page.summary == [
        "No strategy can be recommended over all schedulers: under none did every strategy run; see each."
    ]


def test_big_job_is_not_held_against_itself():
    """If it costs no more than others."""
    cheap = {name: {**ways, "big-job": (1.0, 1.0, 0.0)} for name, ways in WAYS.items()}
    told = numbers(schedulers_page(results({**cheap, "second": cheap["first"]}, workflows=("w", "v"))))
    assert told[1] == "Over the 2 schedulers quickest: big-job, at 1.00 of Per-Stage's core-hours."
    assert told[-1] == (
        "Under `second` quickest: big-job, at 1.00 of Per-Stage's core-hours; x makes the others wait 30s longer."
    )
    assert not any("over Big Job's, by workflow" in words for words in told)
    same = {"first": {"big-job": (1.0, 1.0, 0.0), "per-stage": (0.9, 1.0, 0.0)}}
    assert numbers(schedulers_page(results(same))) == [
        "Under `first` quickest: per-stage, at 0.90 of Big Job's makespan."
    ]


def test_harm_is_drawn_with_its_intervals():
    text = render(schedulers_page(results(luck=0.5)))
    strip = text.partition('aria-label="How much longer others wait')[2].partition("</svg>")[0]
    assert len(re.findall(r'class="whisker', strip)) == 8
    assert re.search(r'aria-label="x, first: [-\dhms]+ \([-\dhms]+ to [-\dhms]+\)"', strip)


def test_other_figures_are_other_words():
    """Nobody waits longer; two do the same; one scheduler needs no words over all."""
    told = " ".join(numbers(schedulers_page(results(longer=-1.0))))
    assert "wait significantly longer in 2 of 8" in told
    same = {name: {**ways, "z": ways["x"]} for name, ways in WAYS.items()}
    told = numbers(schedulers_page(results(same)))
    assert "The same in every cell: x and z." in told
    assert told[-1].startswith("Under `second` quickest: x, z, at 0.50")
    assert len(numbers(schedulers_page(results({"first": WAYS["first"]})))) == 1


def test_workflows_are_told_apart_where_there_are_several():
    page = schedulers_page(results(workflows=("w", "v")))
    assert "Makespan of y over Big Job's, by workflow: w 1.34, v 1.34." in numbers(page)
    [table] = [
        part
        for part in page.sections[0].parts
        if getattr(part, "caption", "").startswith("Makespan, over Big Job's, by")
    ]
    assert [row[0] for row in table.rows] == ["w", "v"]
    assert table.rows[0][1:] == pytest.approx([1.0, 6**0.5, 0.75**0.5, 1.8**0.5])


def test_a_scheduler_has_a_page_with_the_charts_of_all_its_cells():
    pages = scheduler_pages(results({"wfp:a=1": WAYS["first"], **WAYS}, ("w", "v")))
    assert list(pages) == ["wfp-a-1", "first", "second"]
    page = pages["second"]
    assert len(numbers(page)) == 1
    folded = [part for section in page.sections for part in section.parts if isinstance(part, Folded)]
    assert [one.title for one in folded] == ["Jobs: w on 8 cores of log", "Jobs: v on 8 cores of log"]
    assert [len(one.parts) for one in folded] == [4, 4]
    text = render(page)
    assert "first" not in text.partition("<main")[2]


def test_what_was_left_out_is_said():
    page = schedulers_page(results(left_out=[LeftOut("log", "first", "asks", "it needs plans")]))
    assert "it needs plans" in render(page)
    assert "What was left out" not in render(schedulers_page(results()))


def test_what_is_best_on_an_axis_reaches_its_end():
    """Others are as far out as they are good: the kiviat's corners are worked out by hand."""
    text = render(schedulers_page(results({"first": WAYS["first"]})))
    rings = re.findall(r'<polygon points="([^"]+)" class="curve[^"]*"><title>([^<]+)', text)
    corners = {name: [tuple(map(float, at.split(","))) for at in points.split()] for points, name in rings}
    x, y = 380, corners["big-job"][0][1] + 130  # the middle: Big Job is quickest, and the radius is 130

    def reach(name):
        return [((cx - x) ** 2 + (cy - y) ** 2) ** 0.5 / 130 for cx, cy in corners[name]]

    assert reach("big-job") == pytest.approx([1, 1 / 2, 2 / 3, 0, 190 / 290, 2.9 / 3.9], abs=0.01)
    assert reach("per-stage") == pytest.approx([1 / 3, 1, 0, 0, 190 / 200, 2.9 / 3], abs=0.01)
    assert reach("y") == pytest.approx([2 / 3, 1, 1 / 2, 0, 1, 1], abs=0.01)
