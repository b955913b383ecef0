"""Pages: what is in them, that nothing of a user's becomes markup, that they need nothing else, and their figures."""

import json
import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from forked import asa

from asa.report.page import Column, Figure, Page, Section, Table, Text, render
from asa.report.page.drawing import Bar, Dot, bars, curves, dots, gantt, kiviat
from asa.timeline import Lane, Span, Timeline

EVIL = "<script>alert(1)</script> & 'so' \"on\""
RUN = Timeline(
    EVIL,
    0.0,
    400.0,
    (
        Lane("1", ("a", "b"), 8, 600.0, 0.0, 30.0, 20.0, (
            Span("pending", 0.0, 20.0, 8), Span("held", 20.0, 25.0, 8), Span("running", 25.0, 200.0, 8, "a"),
            Span("running", 200.0, 400.0, 4, "b"),
        ), "completed", "why"),
        Lane("2", (EVIL,), 1, 600.0, 50.0, None, None, (Span("pending", 50.0, 90.0, 1),), "cancelled", EVIL),
    ),
)  # fmt: skip


class Reader(HTMLParser):
    """What a page consists of, as a browser takes it."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]


def a_page(*parts, **more):
    return render(Page("Title", more.pop("summary", ["It is `so`."]), [Section("one", "One", parts)], **more))


def drawings():
    return {
        "gantt": gantt(RUN),
        "bars": bars({"28": {"asa": Bar((("", 3.0),), 2.0, 4.0), EVIL: Bar((("", 5.0),))}}, title=EVIL, unit="s"),
        "stacked": bars({"28": {"asa": Bar((("waiting", 3.0), (EVIL, 4.0)))}}, title="t", unit="s"),
        "published": bars({"28": {"asa": Bar((("", 3.0),))}}, title="t", unit="s", published={("28", "asa"): 4.0}),
        "dots": dots(
            [Dot(EVIL, 1.0, 2.0, (0.5, 1.5), (1.0, 3.0)), Dot("b", 1.0, 2.0)], title="t", x_words="x", y_words="y"
        ),
        "curves": curves({EVIL: [(0, 1), (5, 3)], "b": [(0, 2)]}, title="t", x_words="x", y_words="y", steps=True),
        "kiviat": kiviat({EVIL: [0.0, 1.0, 0.5], "b": [1.0, 1.0, 1.0]}, [EVIL, "y", "z"], title="t"),
    }


@pytest.mark.parametrize("name", list(drawings()))
def test_drawings_are_whole_and_within_their_frame(name):
    """Nothing is drawn outside, nothing is nan, and what users call their things stays words."""
    svg = drawings()[name]
    root = ET.fromstring(svg)
    assert not re.search(r'="[^"]*(nan|inf)[^"]*"', svg)
    *_, width, height = map(float, root.get("viewBox").split())
    for shape in root.iter():
        for key, most in (("x", width), ("y", height), ("x1", width), ("x2", width), ("y1", height), ("y2", height)):
            if (value := shape.get(key)) is not None:
                assert -1 <= float(value) <= most + 1, (name, ET.tostring(shape))
        if shape.get("width") and shape.get("x"):
            assert float(shape.get("x")) + float(shape.get("width")) <= width + 1
    assert not [shape for shape in root.iter() if shape.tag == "script"]
    assert root.get("aria-label")


def test_lengths_of_bars_are_in_proportion():
    root = ET.fromstring(gantt(RUN))
    wide = {
        shape.get("aria-label"): float(shape.get("width")) for shape in root.iter("rect") if shape.get("aria-label")
    }
    by_begin = {label.split(",")[0]: value for label, value in wide.items()}
    assert by_begin["b: 3m20s to 6m40s"] == pytest.approx(by_begin["a: 25s to 3m20s"] * 200 / 175, rel=0.01)
    tall = [
        float(shape.get("height"))
        for shape in ET.fromstring(drawings()["bars"]).iter("rect")
        if shape.find("title") is not None
    ]
    assert tall[1] / tall[0] == pytest.approx(5 / 3, rel=0.01)


def test_what_cannot_be_drawn_does_not_break_a_page():
    """No jobs, no spread, one value, a whole of nothing."""
    empty = Timeline("r", 5.0, 5.0, ())
    for svg in (
        gantt(empty),
        bars({}, title="t", unit="s"),
        bars({"a": {"b": Bar((("", 0.0),))}}, title="t", unit="s"),
        dots([Dot("a", 1.0, 1.0)], title="t", x_words="x", y_words="y"),
        curves({"a": [(1.0, 1.0)]}, title="t", x_words="x", y_words="y"),
    ):
        ET.fromstring(svg)
        assert "nan" not in svg


def test_a_page_stands_alone():
    """No address is asked for anything, and nothing of what users wrote becomes markup."""
    table = Table(
        [Column("Name"), Column("Much", 1, EVIL)], [(EVIL, 1.25), ("b", None), ("c", math.nan)], EVIL, {(0, 1): "best"}
    )
    page = a_page(Text((EVIL, "a `b` c")), Figure(gantt(RUN), EVIL), table, made={"Seeds": EVIL})
    read = Reader(page)
    assert read.tags.count("script") == 1
    assert not [a for a in read.attributes if a[1] in {"src", "onerror", "onload"}]
    assert all(value.startswith("#") for _, name, value in read.attributes if name in {"href", "xlink:href"})
    assert "http" not in page.replace("http-equiv", "")
    assert "@import" not in page
    assert "<code>b</code>" in page
    assert ">\N{EN DASH}<" in page
    assert re.search(r'data-value="1.25"[^>]*>1.2<span class="sign" aria-label="best"> ★', page)


def test_long_tables_can_be_searched_and_short_ones_need_not_be():
    columns = [Column("Name"), Column("Much", 0)]
    assert 'type="search"' not in a_page(Table(columns, [(str(i), i) for i in range(7)]))
    assert 'type="search"' in a_page(Table(columns, [(str(i), i) for i in range(8)]))


def test_the_same_page_is_the_same_text():
    assert a_page(Figure(gantt(RUN))) == a_page(Figure(gantt(RUN)))


# ---------------------------------------------------------------------- pages of comparisons


def test_a_comparison_has_a_page(tmp_path):
    """Its figures are those of the tables, and there is a chart of each strategy's first run."""
    arguments = ("compare", "blast", "--cores", "28,56", "--seeds", 2, "--strategies", "big-job,asa", "--jobs", 1)
    told = json.loads(asa(*arguments, "--json", "--report", "page.html", cwd=tmp_path).stdout)
    page = (tmp_path / "page.html").read_text()
    for cores in (28, 56):
        for strategy in ("big-job", "asa"):
            spans = [one["makespan_s"] for one in told if (one["cores"], one["strategy"]) == (cores, strategy)]
            assert f">{sum(spans) / 2:,.0f}<" in page
            assert f"What jobs did: {strategy}, {cores} cores" in page
    assert page.count("<svg viewBox") == 3 + 4
    assert "asa compare blast --cores 28,56" in page
    assert "cannot be written" in asa(*arguments, "--report", "no/where.html", cwd=tmp_path, code=2).stderr


def test_the_campaigns_have_pages(tmp_path):
    """Every figure beside the paper's, with its verdict; every scheduler with its strategies."""
    arguments = ("campaign", "paper", "--seeds", 1, "--jobs", 1, "--mode", "sequential", "--results", "kept.jsonl")
    told = json.loads(asa(*arguments, "--json", "--report", "paper.html", cwd=tmp_path).stdout)
    page = (tmp_path / "paper.html").read_text()
    assert len(told["usages"]) == 54
    row = next(
        one for one in told["usages"] if (one["workflow"], one["cores"], one["strategy"]) == ("blast", 56, "asa")
    )
    assert f">{row['makespan_s']['ours']['mean']:,.1f}<" in page
    assert page.count("as the paper") > 54
    assert page.count("<svg viewBox") == 6 + 3 + 6 + 3
    several = (
        "campaign", "schedulers", "--schedulers", "easy,wfp", "--strategies", "chained", "--workflows", "graph",
        "--seeds", 1, "--jobs", 1, "--window", "1h", "--report", "all.html",
    )  # fmt: skip
    asa(*several, cwd=tmp_path)
    page = (tmp_path / "all.html").read_text()
    for words in ("Under easy", "Under wfp", "chained", "big-job", "What that does to everybody else"):
        assert words in page
    assert "cannot be written" in asa(*arguments, "--report", "no/where.html", cwd=tmp_path, code=2).stderr
