"""Tables and figures of studies."""

from __future__ import annotations

import math

import pytest
from rich.console import Console

from asa.core.intervals import Interval
from asa.report.page.drawing import Bar
from asa.studies import present
from asa.studies.present import (
    Figure,
    Look,
    Panel,
    PlottedSeries,
    Row,
    Table,
    draw,
    shares_of_best,
    side_by_side,
    stacked,
)


def shown(table, width=60):
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def drawn(figure, monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr("asa.studies.present.save_figure", lambda figure, path: made.append(figure))
    draw(figure, tmp_path / "a.png")
    return made[0]


def test_a_table_has_words_to_the_left_and_numbers_to_the_right():
    lines = shown(Table(["what", "s"], [("one", "1"), Row(["another", "1,234"], "dim")], "Times")).splitlines()
    assert next(line.rstrip() for line in lines if line.strip()) == "Times"
    one, another = (next(line for line in lines if line.lstrip().startswith(name)) for name in ("one", "another"))
    assert one.rstrip().endswith("1")
    assert len(one.rstrip()) == len(another.rstrip())


def test_what_is_not_known_is_a_hyphen():
    assert present.number(math.nan, 2, "+") == present.plus_minus(Interval(math.nan, math.nan, math.nan), 2) == "-"
    assert present.plus_minus(Interval(1.0, math.nan, math.nan), 1, "+") == "+1.0"


def test_shares_are_of_the_best():
    """The smallest loss is best; in a column of equal ones all are best."""
    shares = shares_of_best([[1.0, 10.0, 7.0], [3.0, 20.0, 7.0], [2.0, 40.0, 7.0]], [False, True, False])
    assert shares.tolist() == [[0.0, 1.0, 1.0], [1.0, pytest.approx(1 / 3), 1.0], [0.5, 0.0, 1.0]]


def test_a_figure_names_each_series_once(monkeypatch, tmp_path):
    """Except series whose names begin with an underscore; missing panels leave their positions empty."""
    panel = Panel(
        [PlottedSeries("a", [1, 2]), PlottedSeries("b", [2, 3], kind="step"), PlottedSeries("_c", [1, 1], kind="area")]
    )
    figure = drawn(Figure([panel] * 3, (6, 4), 2, looks={"a": Look("red")}), monkeypatch, tmp_path)
    assert [axes.get_visible() for axes in figure.axes] == [True, True, True, False]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
    assert figure.axes[0].lines[0].get_color() == "red"


def test_a_legend_is_no_wider_than_its_figure(monkeypatch, tmp_path):
    """Long names are in several rows."""
    pytest.importorskip("matplotlib")
    lines = [PlottedSeries(f"a method, number {number} (1.0 h)", [1, 2]) for number in range(9)]
    figure = drawn(Figure([Panel(lines)], (10, 4)), monkeypatch, tmp_path)
    figure.savefig(tmp_path / "b.png")
    assert figure.legends[0].get_window_extent().width < 10 * figure.dpi


def test_panels_that_share_an_axis_show_all(monkeypatch, tmp_path):
    panels = [Panel([PlottedSeries("a", [0, high])], y_limits=(0, None)) for high in (1, 5)]
    figure = drawn(Figure(panels, (6, 4), share_y="all"), monkeypatch, tmp_path)
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert figure.axes[0].get_ylim()[0] == 0
    assert figure.axes[0].get_ylim()[1] > 5


def test_bars_stand_beside_or_on_each_other(monkeypatch, tmp_path):
    """Bars of parts have their heights above them; a bar without parts is not drawn."""
    side = side_by_side({"a": [1, 2], "b": [3, 4]}, {"b": ["x", "y"]})
    assert side[0].xs[0] + side[0].width == pytest.approx(side[1].xs[0])
    pile = stacked(
        {"one": Bar((("wait", 1.0), ("run", 1200.0))), "none": Bar(()), "other": Bar((("wait", 2.0), ("run", 3.0)))}
    )
    figure = drawn(Figure([Panel(side), Panel(pile)], (6, 4)), monkeypatch, tmp_path)
    assert [text.get_text() for text in figure.axes[1].texts if text.get_text()] == ["1,201", "5"]
    assert [bar.get_y() for bar in figure.axes[1].patches[3:]] == [1.0, 0.0, 2.0]


def test_points_have_their_intervals_and_spokes_their_names(monkeypatch, tmp_path):
    one = PlottedSeries("a", [2.0], [1.0], kind="point", x_bounds=[(0.5, 3.0)], y_bounds=[(math.nan, math.nan)])
    figure = drawn(Figure([Panel([one], level=1.0, upright=1.0)], (6, 4)), monkeypatch, tmp_path)
    segment = figure.axes[0].collections[0].get_segments()[0]
    assert segment[:, 0].tolist() == [0.5, 3.0]
    web = drawn(
        Figure([Panel([PlottedSeries("a", [1, 0, 0.5])], spokes=["x", "y", "z"])], (6, 4)), monkeypatch, tmp_path
    )
    assert [text.get_text() for text in web.axes[0].texts] == ["x", "y", "z"]
