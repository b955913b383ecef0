"""Every kind of page on a phone and on a desktop, by day and by night: the page fits, and legends wrap."""

import pytest
from forked import asa
from report.chromium import PROGRAM, Chromium
from report.test_page import RUN

from asa.report.page import Page, PageFigure, Section, render
from asa.report.page.drawing import Bar, bars, gantt

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.usefixtures("own_home"),
]

LOG = "; MaxProcs: 64\n" + "".join(
    f"{i} {i * 300} {1 + 61 * i % 900} {200 + 997 * i % 3000} {1 + 31 * i % 40} -1 -1 {1 + 31 * i % 40} 3600"
    " -1 1 1 1 1 1 1 -1 -1\n"
    for i in range(600)
)
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
OUTSIDE = (
    '[...document.querySelectorAll("h1, h2, p, li, dd, figcaption, caption span, .legend")]'
    ".filter((one) => one.checkVisibility())"
    ".filter((one) => { const { left, right } = one.getBoundingClientRect(); return left < 0 || right > innerWidth; })"
    ".map((one) => one.textContent)"
)


def many_stages(file):
    """Write a workflow of 74 stages, of which none is named as another with another number."""
    names = [f"step-{first}{second}-of-the-pipeline" for first in "abcdefgh" for second in "klmnopqrs"][:72]
    names += ["prepare-everything-that-is-needed", "collect"]
    stages = [
        f'[[stage]]\nname = "{name}"\ncores = 2\nwalltime = "30min"\nexpected = "{1 + place % 7}min"\n'
        + (f'after = ["{names[place - 4]}"]\n' if place > 3 else "")
        for place, name in enumerate(names)
    ]
    file.write_text('name = "many"\n' + "".join(stages))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Write each kind of page, as its command does."""
    place = tmp_path_factory.mktemp("pages")
    (place / "log.swf").write_text(LOG)
    many_stages(place / "many.toml")
    asa("init", cwd=place)
    asa("run", "flow.toml", "--backend", "local", "--bank", "none", "--name", "run", "--quiet", cwd=place)
    asa("report", "--out", "run.html", cwd=place)
    compared = ("--seeds", 2, "--strategies", "big-job,per-stage,asa", "--jobs", 1, "--report")
    asa("compare", "montage", "--cores", "16,32", "--trace", "log.swf", *compared, "compare.html", cwd=place)
    asa("compare", "many.toml", "--trace", "log.swf", *compared, "many.html", cwd=place)
    worth = ("worth", "blast", "--cores", 16, "--history", "log.swf", "--moments", 2, "--jobs", 1)
    asa(*worth, "--strategies", "per-stage,asa", "--report", "worth.html", cwd=place)
    asa("evaluate", "log.swf", "--estimators", "asa,mean", "--report", "accuracy.html", "--jobs", 1, cwd=place)
    schedulers = ("campaign", "schedulers", "--trace", "log.swf", "--schedulers", "easy,fcfs", "--workflows", "blast")
    few = ("--cores", 16, "--seeds", 1, "--strategies", "asa", "--jobs", 1)
    asa(*schedulers, *few, "--report", "schedulers", cwd=place)
    return place


@pytest.fixture(scope="module")
def chromium():
    browser = Chromium()
    yield browser
    browser.close()


KINDS = ["run", "compare", "many", "worth", "accuracy", "schedulers/schedulers", "schedulers/index"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.full
def test_a_page_fits(chromium, pages, kind, width, dark):
    """It never scrolls sideways as a whole, and all prose and legends are within the window."""
    chromium.open(pages / f"{kind}.html", width, dark=dark)
    assert chromium.ask(FITS)
    assert chromium.ask(OUTSIDE) == []
    assert chromium.wrong == []


def test_a_legend_of_many_stages_does_not_fill_a_screen(chromium, pages):
    """The longest are named, with their time, and how many others there are."""
    chromium.open(pages / "many.html", 390)
    tall = '[...document.querySelectorAll(".legend")].map((one) => one.getBoundingClientRect().height)'
    assert max(chromium.ask(tall)) < 400
    words = chromium.ask('[...document.querySelectorAll(".legend li")].map((one) => one.textContent)')
    assert "and 64 more" in words


def test_a_legend_stays_in_sight_as_its_chart_is_moved(chromium, pages):
    chromium.open(pages / "compare.html", 390)
    assert chromium.ask('document.querySelector(".drawing").scrollWidth') > 390
    chromium.ask('document.querySelector(".drawing").scrollLeft = 300')
    assert chromium.ask(OUTSIDE) == []


def test_the_title_of_a_run_that_is_called_run(chromium, pages):
    chromium.open(pages / "run.html")
    title = chromium.ask('document.querySelector("h1").textContent')
    assert title.lower().count("run") == 1


def test_stages_that_differ_by_a_number_are_one_entry():
    """They are gathered where there are many, and only there."""
    few = {"g": {"b": Bar((("waiting", 5.0), ("fit1", 1.0), ("fit2", 2.0)))}}
    assert "<li>" in bars(few, title="t")
    assert "fit2</li>" in bars(few, title="t")
    many = {"g": {"b": Bar((("waiting", 5.0), *((f"fit{place}", 1.0) for place in range(30)), ("add", 2.0)))}}
    assert "fit (30)</li>" in bars(many, title="t")
    assert "fit2</li>" not in bars(many, title="t")


def test_axes_of_time_are_durations(tmp_path):
    """In one form, as all durations are."""
    drawn = bars({"g": {"b": Bar((("", 7200.0),)), "c": Bar((("", 90_000.0),))}}, title="t")
    assert ">12h<" in drawn
    assert "1d01h" in drawn
    assert ">1m<" in gantt(RUN)
    assert "seconds" not in render(Page("t", [], [Section("s", "S", [PageFigure(drawn)])])).partition("<main")[2]
