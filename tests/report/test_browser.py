"""Pages in a real browser: they load without errors, sort, filter, tell what is chosen, and lead to each other."""

import pytest
from report.chromium import PROGRAM, Chromium
from report.test_page import RUN

from asa.report.folder import write_folder
from asa.report.page import Column, Folded, Page, PageFigure, PageTable, Section, Text, render
from asa.report.page.drawing import gantt

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.usefixtures("own_home"),
]

ROWS = [
    (f"row {i}", "even" if i % 2 == 0 else "odd", None if i == 3 else float((7 * i) % 13), "x" * i) for i in range(12)
]
MUCH = {name: much for name, _, much, _ in ROWS if much is not None}
NAMES = '[...document.querySelectorAll("tbody tr")].filter((row) => !row.hidden).map((row) => row.cells[0].textContent)'


LONG = "multifactor:fair_share=0:age_accrues=no:weight=1000:half_life=7d"


def a_page(title="Title"):
    table = PageTable([Column("Name"), Column("Kind"), Column("Much", 1), Column("Long")], ROWS, "A table.")
    sections = [
        Section("first", "First", [Text(("Words " * 60,)), table]),
        Section(
            "jobs",
            f"Jobs under {LONG}",
            [PageFigure(gantt(RUN)), Folded("More jobs", [PageFigure(gantt(RUN), "Within.")])],
        ),
    ]
    return Page(title, ["It is `so`."], sections)


@pytest.fixture(scope="module")
def chromium():
    browser = Chromium()
    yield browser
    browser.close()


@pytest.fixture(params=[1000, 380], ids=["desktop", "phone"])
def browser(request, chromium, tmp_path):
    """One that shows the page, in both widths."""
    file = tmp_path / "page.html"
    file.write_text(render(a_page(f"Under {LONG}")), encoding="utf-8")
    chromium.open(file, request.param)
    yield chromium
    assert chromium.wrong == []
    assert chromium.asked == [file.as_uri()], "it needs nothing but itself"


def reach(browser, condition):
    """Go on by the tab key, as who has no mouse does."""
    for _ in range(60):
        browser.press("Tab")
        if browser.ask(f"(() => {{ const at = document.activeElement; return {condition}; }})()"):
            return
    pytest.fail(f"the keyboard does not reach: {condition}")


@pytest.mark.full
def test_a_table_is_sorted_by_the_keyboard(browser):
    """Up, then down; what is unknown comes last both times."""
    reach(browser, 'at.textContent === "Much"')
    browser.press("Enter")
    up = sorted(MUCH, key=MUCH.get)
    assert browser.ask(NAMES) == [*up, "row 3"]
    assert browser.ask('document.activeElement.closest("th").getAttribute("aria-sort")') == "ascending"
    browser.press("Enter")
    assert browser.ask(NAMES) == [*reversed(up), "row 3"]
    browser.ask('[...document.querySelectorAll("thead button")][0].click()')
    assert browser.ask(NAMES) == sorted(name for name, *_ in ROWS)
    assert browser.ask('document.querySelectorAll("[aria-sort]").length') == 1


def test_intervals_sort_by_their_lower_bounds(chromium, tmp_path):
    """Not by their letters; what has none comes last."""
    bounds = ["1,000 to 2,000", "90 to 3,000", "", "-5 to 200"]
    table = PageTable([Column("Name"), Column("95 %")], [(str(place), words) for place, words in enumerate(bounds)])
    (tmp_path / "page.html").write_text(render(Page("T", [], [Section("s", "S", [table])])), encoding="utf-8")
    chromium.open(tmp_path / "page.html")
    chromium.ask('document.querySelectorAll("thead button")[1].click()')
    assert chromium.ask(NAMES) == ["3", "1", "0", "2"]
    chromium.ask('document.querySelectorAll("thead button")[1].click()')
    assert chromium.ask(NAMES) == ["0", "1", "3", "2"]


def test_a_table_is_filtered_by_words_and_by_its_columns(browser):
    """A column is offered where it says the same again and again: not names, not numbers."""
    count = 'document.querySelector(".search output").textContent'
    assert browser.ask('[...document.querySelectorAll(".search select")].length') == 1
    reach(browser, 'at.type === "search"')
    for letter in "row xxxxxxxxx":
        browser.press(letter)
    assert browser.ask(NAMES) == ["row 9", "row 10", "row 11"]
    reach(browser, 'at.tagName === "SELECT"')
    browser.press("o")
    assert browser.ask("document.activeElement.value") == "=odd"
    assert (browser.ask(NAMES), browser.ask(count)) == (["row 9", "row 11"], "2 of 12 rows")
    browser.press("Home")
    assert len(browser.ask(NAMES)) == 3
    clear = 'const all = document.querySelector("input"); all.value = ""; all.dispatchEvent(new Event("input"))'
    browser.ask(f"(() => {{ {clear} }})()")
    assert (len(browser.ask(NAMES)), browser.ask(count)) == (12, "")


def test_a_chart_tells_what_is_chosen(browser):
    """By the keyboard, and by the mouse."""
    told = 'document.querySelector(".described").textContent'
    reach(browser, 'at.matches("figure rect.bar")')
    assert browser.ask(told) == "pending: 0s to 20s, 20s; 8 cores; job 1, completed"
    believed = 'document.querySelector("figure .believed[tabindex]")'
    browser.ask(f'{believed}.scrollIntoView({{block: "center", inline: "center"}})')
    place = browser.ask(
        f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({believed}.getBoundingClientRect())"
    )
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    assert browser.ask(told) == "a to b: predicted to start at 30s"


def test_what_is_folded_opens_by_the_keyboard_and_in_print(browser):
    is_open = 'document.querySelector("details").open'
    assert not browser.ask(is_open)
    reach(browser, 'at.tagName === "SUMMARY"')
    browser.press("Enter")
    assert browser.ask(is_open)
    browser.press("Enter")
    assert not browser.ask(is_open)
    assert browser.printed().startswith(b"%PDF")
    assert browser.ask(is_open)


def test_a_page_fits_its_window(browser):
    """Tables and drawings scroll within themselves; the page does not."""
    assert browser.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_letters_of_charts_can_be_read_and_captions_are_whole(browser):
    """However narrow the window is; whichever way a table is moved, its caption stays within."""
    drawn = '(({a, d}) => [a, d])(document.querySelector("figure text").getScreenCTM())'
    assert min(browser.ask(drawn)) * 12 >= 12
    inside = "(({left, right}) => left >= 0 && right <= innerWidth)"
    long = "A table " * 40
    browser.ask(f'document.querySelector("caption span").textContent = "{long}"')
    browser.ask('document.querySelector("tbody th").style.minWidth = "2000px"')
    for moved in (0, 100):
        browser.ask(f'document.querySelector(".scrolls").scrollLeft = {moved}')
        assert browser.ask(f'{inside}(document.querySelector("caption span").getBoundingClientRect())')


@pytest.mark.parametrize("dark", [False, True])
def test_words_stand_out_from_the_paper_by_day_and_by_night(chromium, tmp_path, dark):
    file = tmp_path / "page.html"
    file.write_text(render(a_page()), encoding="utf-8")
    chromium.open(file, dark=dark)
    for place in ("p", "caption", "td", "figcaption", "nav a"):
        paper, ink = (
            chromium.ask(f'getComputedStyle(document.querySelector("{of}")).{what}.match(/[0-9]+/g).map(Number)')
            for of, what in (("body", "backgroundColor"), (place, "color"))
        )
        assert (sum(paper) < 384) == dark
        assert contrast(paper, ink) >= 4.5, place


def test_print_is_on_white_paper_and_not_cut_off(chromium, tmp_path):
    """Whatever the screen is like."""
    file = tmp_path / "page.html"
    file.write_text(render(a_page()), encoding="utf-8")
    chromium.open(file, 794, dark=True)
    chromium.send(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    assert chromium.ask('getComputedStyle(document.querySelector("code")).backgroundColor') == "rgb(243, 245, 247)"
    assert chromium.ask('getComputedStyle(document.querySelector(".scrolls")).overflow') == "visible"
    assert not chromium.ask('document.querySelector("nav").checkVisibility()')
    chart = 'document.querySelector("figure svg").getBoundingClientRect().right'
    chromium.send("Emulation.setDeviceMetricsOverride", width=680, height=900, deviceScaleFactor=1, mobile=False)
    assert chromium.ask(f"{chart} <= innerWidth")
    assert chromium.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def contrast(one, other):
    """As the accessibility guidelines have it."""

    def light(colour):
        linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
        return sum(part * share for part, share in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_pages_of_a_folder_lead_to_each_other(chromium, tmp_path):
    write_folder(tmp_path / "all", "whole", a_page("The whole"), {"part": a_page("A part")})

    def follow(words):
        chromium.ask(f'[...document.querySelectorAll("a")].find((link) => link.textContent === "{words}").click()')
        chromium.loaded()
        return chromium.ask('document.querySelector("h1").textContent')

    chromium.open(tmp_path / "all" / "index.html")
    assert follow("A part") == "A part"
    assert follow("The whole") == "The whole"
    assert follow("A part") == "A part"
    assert follow("Results") == "Results"
    assert chromium.wrong == []
