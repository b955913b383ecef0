"""Pages: their content, no markup from users' text, no outside files, and their figures."""

import json
import math
import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from forked import asa

from asa.cli.report import check_page
from asa.errors import InputError, MissingExtraError
from asa.metrics import measure
from asa.records import RunEnded, RunStarted, StageEnded, StageStarted, Started, Submitted
from asa.report.folder import write_folder
from asa.report.page import Column, Page, PageFigure, PageTable, Section, Text, render, rendering
from asa.report.page.drawing import Bar, Dot, bars, curves, dots, gantt, kiviat, strips
from asa.report.run import run_page
from asa.strategies import Keep
from asa.timeline import Lane, Span, Timeline
from asa.units import format_duration
from asa.workflow import Stage, Workflow

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
        "powers": curves({"a": [(0, 0), (5, 30), (9, 4e5)]}, title="t", x_words="x", y_words="y", powers=True),
        "strips": strips({EVIL: {"a": -1.0, EVIL: 2.5}, "b": {"a": 0.5}}, title=EVIL, x_words="x", goal=0.0),
        "kiviat": kiviat({EVIL: [0.0, 1.0, 0.5], "b": [1.0, 1.0, 1.0]}, [EVIL, "y", "z"], title="t"),
    }


@pytest.mark.parametrize("name", list(drawings()))
def test_drawings_are_whole_and_within_their_frame(name):
    """Nothing is drawn outside, nothing is nan, and what users call their things stays words."""
    svg = drawings()[name]
    whole = ET.fromstring(svg)
    root = whole if whole.tag == "svg" else whole.find("svg")
    assert not re.search(r'="[^"]*(nan|inf)[^"]*"', svg)
    *_, width, height = map(float, root.get("viewBox").split())
    for shape in root.iter():
        for key, most in (("x", width), ("y", height), ("x1", width), ("x2", width), ("y1", height), ("y2", height)):
            if (value := shape.get(key)) is not None:
                assert -1 <= float(value) <= most + 1, (name, ET.tostring(shape))
        if shape.get("width") and shape.get("x"):
            assert float(shape.get("x")) + float(shape.get("width")) <= width + 1
    assert not [shape for shape in whole.iter() if shape.tag == "script"]
    assert root.get("aria-label")


def legend_of(root):
    """Return the words of a drawing's legend, which is a list beside it."""
    return ["".join(entry.itertext()) for entry in root.iter("li")]


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


def test_what_a_dependency_keeps_back_is_drawn_otherwise_and_the_legend_says_how():
    kept = Lane(
        "3", ("c",), 1, 600.0, 50.0, 300.0, None, (Span("kept", 50.0, 300.0, 1), Span("pending", 300.0, 400.0, 1)),
        "pending", "why", "", 90.0,
    )  # fmt: skip
    root = ET.fromstring(gantt(replace(RUN, lanes=(*RUN.lanes, kept))))
    told = {shape.get("aria-label"): shape.get("class") for shape in root.iter() if shape.get("role") == "img"}
    assert told["held by a dependency: 50s to 5m00s, 4m10s; 1 core; job 3, pending"] == "bar kept"
    assert told["c: predicted to start at 5m00s"] == "believed"
    words = legend_of(root)
    assert ("held by a dependency" in words, "predicted end of its wait" in words) == (True, False)
    assert "held by a dependency" not in legend_of(ET.fromstring(gantt(RUN)))
    assert re.search(r"\.kept \{ fill: url\(#fill-keeps\)", page := a_page(PageFigure(gantt(RUN))))
    assert '<pattern id="fill-keeps"' in page


def test_of_a_job_kept_back_till_nobody_knows_when_only_its_wait_is_told():
    kept = Lane("3", ("c",), 1, 600.0, 50.0, None, None, (Span("kept", 50.0, 400.0, 1),), "pending", "why", "", 90.0)
    root = ET.fromstring(gantt(replace(RUN, lanes=(*RUN.lanes, kept))))
    told = {shape.get("aria-label"): shape.get("class") for shape in root.iter("path")}
    assert told["c: its wait was predicted to end at 1m30s"] == "believed wait"
    assert "predicted end of its wait" in legend_of(root)


def test_what_was_believed_beyond_the_chart_is_told_at_its_edge():
    late = replace(RUN.lanes[0], predicted_start_s=4000.0)
    root = ET.fromstring(gantt(replace(RUN, lanes=(late,))))
    root = root.find("svg")
    [arrow] = [shape for shape in root.iter("path") if shape.get("role")]
    assert arrow.get("aria-label") == "a to b: predicted to start at 1h06m, beyond this chart"
    at = float(re.match(r"M([\d.]+)", arrow.get("d"))[1])
    width = float(root.get("viewBox").split()[2])
    assert width - 20 < at < at + 10 < width


def test_jobs_of_the_same_stages_differ_by_their_cores_and_a_cross_ends_those_that_were_withdrawn():
    """As where several race for the same work."""
    lane, pending = RUN.lanes[1], Span("pending", 50.0, 90.0, 4)
    wide = replace(lane, job_id="3", cores=4, spans=(pending,))
    drawn = gantt(replace(RUN, lanes=(RUN.lanes[0], lane, wide)))
    assert drawn.count('class="withdrawn"') == 2 + 1  # and in the legend
    ran = gantt(replace(RUN, lanes=(RUN.lanes[0], replace(lane, start_s=60.0))))
    assert "withdrawn" not in ran
    alike = [replace(each, stages=("fit",)) for each in (lane, wide)]
    assert {"fit, 1 core", "fit, 4 cores"} <= set(re.findall(r">([^<>]+)</text>", gantt(replace(RUN, lanes=alike))))


def test_the_job_of_a_stage_is_the_one_that_ran_it():
    """Not the last one that was to run it."""
    run = [
        RunStarted(time_s=0.0, run="r"),
        *(
            Submitted(time_s=0.0, run="r", stages=("a",), job_id=job, cores=1, walltime_s=60.0, keep=Keep.NOTHING,
                      predicted_wait_s=None, resubmission=0, reason="")
            for job in ("1", "2")
        ),
        Started(time_s=5.0, run="r", stages=("a",), job_id="1"),
        StageStarted(time_s=5.0, run="r", stages=("a",), job_id="1"),
        StageEnded(time_s=9.0, run="r", stages=("a",), job_id="1"),
        RunEnded(time_s=9.0, run="r", outcome="completed", reason=""),
    ]  # fmt: skip
    flow = Workflow("r", [Stage("a", cores=1)])
    page = run_page("r", run, measure(flow, run), strategy="s", workflow=flow)
    [table] = [part for section in page.sections if section.key == "stages" for part in section.parts]
    place = [column.heading for column in table.columns].index("Job")
    assert [row[place] for row in table.rows] == ["1"]


def test_a_point_may_have_the_colour_that_its_thing_has_elsewhere():
    points = [Dot("asa, 28", 1.0, 1.0, colour=4), Dot("asa, 56", 2.0, 1.0, (1.5, 2.5), colour=4), Dot("b", 3.0, 1.0)]
    svg = dots(points, title="t", x_words="x", y_words="y")
    assert re.findall(r'class="bar (c\d)"', svg) == ["c4", "c4", "c2"]
    assert 'class="whisker s4"' in svg


def test_names_of_points_do_not_hide_each_other():
    """Nor does one fall out of the frame, where all points lie at the bottom."""
    svg = dots([Dot(f"n{i}", i, 1.0) for i in range(8)] + [Dot("up", 1.0, 9.0)], title="t", x_words="x", y_words="y")
    root = ET.fromstring(svg)
    places = sorted(float(text.get("y")) for text in root.iter("text") if re.fullmatch(r"n\d|up", text.text))
    assert all(below - above > 12 for above, below in pairwise(places))
    assert places[-1] < float(root.get("viewBox").split()[3]) - 40, "the axis has its words there"


def test_marks_of_a_strip_lie_where_their_values_are():
    root = ET.fromstring(strips({"a": {"x": 0.0, "y": 4.0}, "b": {"x": 1.0}}, title="t", x_words="x"))
    at = {
        shape.get("aria-label"): float(re.match(r"translate\(([\d.]+)", shape.get("transform"))[1])
        for shape in root.iter("path")
        if shape.get("aria-label")
    }
    assert at["b, x: 1"] - at["a, x: 0"] == pytest.approx((at["a, y: 4"] - at["a, x: 0"]) / 4, abs=0.2)
    in_time = strips({"a": {"x": -60.0, "y": 7200.0}}, title="t", x_words="x", in_time=True)
    assert {"a, x: -1m00s", "a, y: 2h00m"} <= {shape.get("aria-label") for shape in ET.fromstring(in_time).iter("path")}
    assert ">1h30m<" in in_time


def test_what_cannot_be_drawn_does_not_break_a_page():
    """No jobs, no spread, one value, a whole of nothing."""
    empty = Timeline("r", 5.0, 5.0, ())
    for svg in (
        gantt(empty),
        bars({}, title="t", unit="s"),
        bars({"a": {"b": Bar((("", 0.0),))}}, title="t", unit="s"),
        dots([Dot("a", 1.0, 1.0)], title="t", x_words="x", y_words="y"),
        curves({"a": [(1.0, 1.0)]}, title="t", x_words="x", y_words="y"),
        strips({}, title="t", x_words="x"),
        strips({"a": {"b": 1.0}}, title="t", x_words="x"),
    ):
        ET.fromstring(svg)
        assert "nan" not in svg


def test_a_page_stands_alone():
    """No address is asked for anything, and nothing of what users wrote becomes markup."""
    table = PageTable(
        [Column("Name"), Column("Much", 1, EVIL)], [(EVIL, 1.25), ("b", None), ("c", math.nan)], EVIL, {(0, 1): "best"}
    )
    page = a_page(Text((EVIL, "a `b` c")), PageFigure(gantt(RUN), EVIL), table, made={"Seeds": EVIL})
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
    assert 'type="search"' not in a_page(PageTable(columns, [(str(i), i) for i in range(11)]))
    assert 'type="search"' in a_page(PageTable(columns, [(str(i), i) for i in range(12)]))


def test_intervals_carry_their_lower_bounds_by_which_they_sort():
    """A column in which words are not intervals alone sorts by its words."""
    rows = [("a", "1,234.5 to 2,000", "1 to 2"), ("b", "", "x"), ("c", "-9.0 to 3.0", ""), ("d", "9-10", "")]
    page = a_page(PageTable([Column("Name"), Column("95 %"), Column("Words")], rows))
    assert re.findall(r'<td data-value="([^"]*)">([^<]*)', page) == [
        ("1234.5", "1,234.5 to 2,000"), ("", ""), ("-9.0", "-9.0 to 3.0"), ("9", "9-10"),
    ]  # fmt: skip


def test_the_same_page_is_the_same_text():
    assert a_page(PageFigure(gantt(RUN))) == a_page(PageFigure(gantt(RUN)))


# ---------------------------------------------------------------------- pages of comparisons


def test_a_comparison_has_a_page(tmp_path):
    """Its figures are those of the tables, and there is a chart of each strategy's first run."""
    arguments = ("compare", "blast", "--cores", "28,56", "--seeds", 2, "--strategies", "big-job,asa", "--jobs", 1)
    told = json.loads(asa(*arguments, "--output", "json", "--report", "page.html", cwd=tmp_path).stdout)
    page = (tmp_path / "page.html").read_text()
    for cores in (28, 56):
        for strategy in ("big-job", "asa"):
            spans = [one["makespan_s"] for one in told if (one["cores"], one["strategy"]) == (cores, strategy)]
            assert f">{format_duration(sum(spans) / 2)}<" in page
            assert f"Jobs: {strategy}, {cores} cores" in page
    assert page.count("<svg viewBox") == 3 + 4
    assert "asa compare blast --cores 28,56" in page
    assert "cannot be written" in asa(*arguments, "--report", "no/where.html", cwd=tmp_path, code=2).stderr


def test_a_page_that_is_replaced_is_named_and_a_stranger_s_is_not_touched(tmp_path):
    """The second is refused before anything is run."""
    arguments = ("compare", "blast", "--cores", 28, "--seeds", 1, "--strategies", "big-job", "--jobs", 1)
    first, second = (
        asa(*arguments, *more, "--report", "all", cwd=tmp_path).stderr
        for more in (
            (),
            (
                "--output",
                "json",
            ),
        )
    )
    assert "compare-blast-uppmax.html" in first
    assert ("replaces" in first, "replaces" in second) == (False, True)
    for name in ("index.html", "compare-blast-uppmax.html"):
        theirs = tmp_path / f"theirs-{name[:5]}"
        theirs.mkdir()
        (theirs / name).write_text("<title>Theirs</title>")
        refused = asa(*arguments, "--report", theirs, cwd=tmp_path, code=2)
        assert f"{theirs / name}: exists already, and is not a page of asa\nName another folder" in refused.stderr
        assert refused.stdout == ""
        assert [file.read_text() for file in theirs.iterdir()] == ["<title>Theirs</title>"]
    (tmp_path / "folder.html").mkdir()
    for place, said in (("folder.html", "it is a folder"), ("", "is empty"), (" ", "is empty")):
        refused = asa(*arguments, "--report", place, cwd=tmp_path, code=2)
        assert (said in refused.stderr, refused.stdout) == (True, "")
    assert not (tmp_path / "index.html").exists()


def test_pages_of_other_settings_stand_beside_each_other(tmp_path):
    """The first page lists all, and says by which command each was made; the same anew takes its own place."""
    arguments = ("compare", "blast", "--cores", 28, "--seeds", 1, "--strategies", "big-job", "--jobs", 1)
    for more in ((), ("--no-age-accrues",), (), ("--no-age-accrues", "--results", "kept.json")):
        told = asa(*arguments, *more, "--report", "all", cwd=tmp_path).stderr
    assert "compare-blast-uppmax-2.html, replaces what was there" in told
    pages = {file.name: file.read_text() for file in (tmp_path / "all").iterdir()}
    assert sorted(pages) == ["compare-blast-uppmax-2.html", "compare-blast-uppmax.html", "index.html"]
    assert "gain no priority" in pages["compare-blast-uppmax-2.html"]
    assert "gain no priority" not in pages["compare-blast-uppmax.html"]
    assert {"compare-blast-uppmax-2.html", "compare-blast-uppmax.html"} <= set(addresses(pages["index.html"]))
    command = "asa compare blast --cores 28 --seeds 1 --strategies big-job"
    for words in (f"<code>{command}</code>", f"<code>{command} --no-age-accrues</code>"):
        assert pages["index.html"].count(words) == 1
    assert re.findall(r'<h2 id="h-compare[^>]*><a[^>]*>([^<]*)<', pages["index.html"]) == [
        "blast on uppmax: strategies compared", "blast on uppmax: strategies compared (2)"
    ]  # fmt: skip


def test_what_pages_need_is_asked_for_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    rendering._template.cache_clear()
    with pytest.raises(MissingExtraError, match="needs jinja2"):
        check_page(tmp_path / "page.html")
    check_page(None)


def test_tables_are_there_even_if_a_page_cannot_be_written(tmp_path):
    """As when somebody puts a file of a part's name there meanwhile: what took long is not lost."""
    arguments = (
        "campaign", "schedulers", "--schedulers", "wfp", "--strategies", "chained", "--workflows", "graph",
        "--seeds", 1, "--jobs", 1, "--window", "1h",
    )  # fmt: skip
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "schedulers-wfp.html").write_text("<title>Theirs</title>")
    refused = asa(*arguments, "--report", "all", cwd=tmp_path, code=2)
    assert "is not a page of asa" in refused.stderr
    assert "chained" in refused.stdout
    assert len(list((tmp_path / "all").iterdir())) == 1


@pytest.mark.full
def test_the_paper_s_evaluation_has_pages(tmp_path):
    """Every figure beside the paper's, with its verdict; and what jobs did, of each workflow on a page of its own."""
    arguments = ("campaign", "paper", "--seeds", 1, "--jobs", 1, "--mode", "sequential")
    told = json.loads(asa(*arguments, "--output", "json", "--report", "all", cwd=tmp_path).stdout)
    page = (tmp_path / "all" / "paper.html").read_text()
    assert len(told["usages"]) == 54
    row = next(
        one for one in told["usages"] if (one["workflow"], one["cores"], one["strategy"]) == ("blast", 56, "asa")
    )
    assert f">{format_duration(row['makespan_s']['ours']['mean'])}<" in page
    assert page.count("as the paper") > 54
    charts = 2 * 3 * 3 + 1  # of the largest size of each centre, by workflow and strategy; and ASA Naive
    assert page.count("<svg viewBox") == 6 + 3 + 6 + 3 + charts
    blast = (tmp_path / "all" / "paper-blast.html").read_text()
    assert blast.count("<svg viewBox") == 2 + 2 + 1 + 6 * 3
    assert "BLAST on 56 cores of hpc2n, sequential" in blast
    assert "BLAST in the paper" in blast
    assert not re.search(r"\bBlast\b", blast)
    assert "montage" not in blast.partition("<main")[2].partition("<footer")[0]
    assert "cannot be written" in asa(*arguments, "--report", "no/where.html", cwd=tmp_path, code=2).stderr


def test_the_schedulers_have_pages_alone_or_in_a_folder(tmp_path):
    """One for a colleague, or a whole folder, in which those of other schedulers stand beside each other."""
    arguments = (
        "campaign", "schedulers", "--strategies", "chained", "--workflows", "graph,blast", "--seeds", 1, "--jobs", 1,
        "--window", "1h", "--results", "kept.jsonl", "--report",
    )  # fmt: skip
    asa(*arguments, "all", "--schedulers", "easy,wfp", cwd=tmp_path)
    asa(*arguments, "one.html", "--schedulers", "easy,wfp", cwd=tmp_path)
    alone, whole = ((tmp_path / name).read_text() for name in ("one.html", "all/schedulers.html"))
    for words in ("Under easy", "Under wfp", "chained", "big-job", "What it costs other users", "Quickest, or"):
        assert words in alone
    drawn = 1 + 2 * (2 + 3)  # the others; under each, two figures and the charts of one workflow
    assert alone.count("<svg viewBox") == whole.count("<svg viewBox") == drawn
    assert not [at for at in addresses(alone) if not at.startswith("#")]
    assert {"index.html", "schedulers-easy.html", "schedulers-wfp.html"} < set(addresses(whole))
    part = (tmp_path / "all" / "schedulers-wfp.html").read_text()
    assert part.count("<svg viewBox") == 2 + 2 * 3
    assert "Jobs: blast" in part
    assert "easy" not in part.partition("<main")[2].partition("<footer")[0]
    (tmp_path / "all" / "mine.html").write_text("<title>Mine</title>")
    asa(*arguments, "all", "--schedulers", "wfp", cwd=tmp_path)
    names = sorted(file.name for file in (tmp_path / "all").iterdir())
    first = ["schedulers-easy.html", "schedulers-wfp.html", "schedulers.html"]
    assert names == ["index.html", "mine.html", "schedulers-2-wfp.html", "schedulers-2.html", *first]


# ---------------------------------------------------------------------- pages in a folder


def addresses(page):
    return [value for _, name, value in Reader(page).attributes if name == "href"]


def test_every_link_of_a_folder_leads_somewhere(tmp_path):
    """And all of them are relative, so that the folder can be moved, packed and put on a server."""
    folder = tmp_path / "all"
    parts = {"a#1/..": Page("A", ["Of a."], []), "b": Page("B", ["Said above."], [])}
    write_folder(folder, "whole", Page(EVIL, ["Said above."], []), parts)
    write_folder(folder, "other", Page("Other", ["Something else."], []))
    write_folder(folder, "other", Page("Other", ["Another."], []), of="something else")
    for file in folder.iterdir():
        for address in addresses(file.read_text()):
            assert address.startswith("#") or (folder / address).is_file(), (file.name, address)
    index = (folder / "index.html").read_text()
    assert {"whole.html", "whole-a-1-...html", "whole-b.html", "other.html", "other-2.html"} <= set(addresses(index))
    for words in ("Something else.", "Said above.", "Of a."):
        assert index.count(words) == 1, words


@pytest.mark.parametrize("name", ["index.html", "whole.html", "whole-part.html"])
@pytest.mark.parametrize("text", ["<title>Theirs</title>", "<meta name=asa-page content='{}'>", "<![x[ ]]>", None])
def test_a_file_of_somebody_else_s_is_not_written_over(tmp_path, name, text):
    """Nor is anything else written then; a folder of that name is one, too."""
    if text is None:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match="is not a page of asa") as refused:
        write_folder(tmp_path, "whole", Page("Whole", [], []), {"part": Page("Part", [], [])})
    assert (refused.value.where, bool(refused.value.hint)) == (str(tmp_path / name), True)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    if text is not None:
        assert (tmp_path / name).read_text() == text


@pytest.mark.parametrize(
    "told",
    ["{}", "[]", "3", '{"title": 1, "summary": [], "is_part": false, "parts": []}', "[" * 100_000,
     '{"title": "t", "summary": [1], "is_part": false, "parts": []}',
     '{"title": "t", "summary": [], "is_part": false, "parts": [["a"]]}'],
)  # fmt: skip
def test_what_tells_of_itself_otherwise_is_none_of_ours(tmp_path, told):
    """And does not keep ours from being written."""
    (tmp_path / "theirs.html").write_text(f"<head><meta name='asa-page' content='{told}'></head>")
    write_folder(tmp_path, "whole", Page("Whole", [], []))
    assert "theirs" not in (tmp_path / "index.html").read_text()


def test_parts_go_with_their_page_and_none_takes_the_place_of_another_s(tmp_path):
    """Also where a part has the name that a second page would have."""
    for of in ("one", "other", "one", "third"):
        write_folder(tmp_path, "whole", Page(of, [of], []), {"part": Page("P", [f"{of}'s"], [])}, of=of)
    names = [file.name for file in sorted(tmp_path.iterdir())]
    assert names == ["index.html", *(f"whole{n}.html" for n in ("-2-part", "-2", "-3-part", "-3", "-part", ""))]
    told = {name: (tmp_path / name).read_text() for name in names}
    for number, of in (("", "one"), ("-2", "other"), ("-3", "third")):
        assert f"<h1>{of}</h1>" in told[f"whole{number}.html"]
        assert f"{of}&#39;s" in told[f"whole{number}-part.html"]
    write_folder(tmp_path, "second", Page("S", [], []), {"2": Page("P", ["Part."], [])}, of="a")
    write_folder(tmp_path, "second", Page("T", [], []), of="b")
    assert "Part." in (tmp_path / "second-2.html").read_text()
    assert "<h1>T</h1>" in (tmp_path / "second-3.html").read_text()


def test_the_first_page_keeps_what_others_wrote(tmp_path):
    """A part is listed under its whole only; a page of somebody else's is left alone."""
    write_folder(tmp_path, "first", Page("First", ["One."], []), {"part": Page("A part", ["Within."], [])})
    (tmp_path / "theirs.html").write_text("<meta name=asa-page content='{no'><title>Theirs</title>")
    write_folder(tmp_path, "second", Page("Second", ["Two."], []))
    write_folder(tmp_path, "first", Page("First", ["Anew."], []))
    index = Reader((tmp_path / "index.html").read_text())
    headings = [value for tag, name, value in index.attributes if tag == "section" and name == "id"]
    assert headings == ["first", "second"]
    text = (tmp_path / "index.html").read_text()
    assert ("Anew." in text, "One." in text, "theirs" in text) == (True, False, False)
    assert not (tmp_path / "first-part.html").exists()
    assert (tmp_path / "theirs.html").exists()
