"""Durations, memory, core-hours, prices of time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError
from asa.units import (
    core_hours,
    format_duration,
    format_price,
    format_walltime,
    parse_duration,
    parse_memory,
    parse_price,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400), ("30:00", 1800), ("2:00:00", 7200), ("1-0", 86400), ("1-12", 129600), ("1-12:30", 131400),
        ("1-02:03:04", 93784), ("1h30m", 5400), ("45s", 45), ("1.5h", 5400), ("2 days", 172800), ("90min", 5400),
        (" 5M ", 300), ("0", 0),
    ],
)  # fmt: skip
def test_every_spelling_of_a_duration(text, seconds):
    """Slurm's six spellings and units."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-5", "5x", "1-", "h", "1h30", "1:2-3"])
def test_what_is_no_duration_is_refused_with_the_spellings(text):
    """The remedy is in the message."""
    with pytest.raises(InputError, match="Slurm"):
        parse_duration(text)


@given(st.integers(0, 400 * 86400))
def test_a_written_walltime_reads_back(seconds):
    """What is sent to Slurm means what was meant."""
    assert parse_duration(format_walltime(seconds)) == seconds


def test_a_walltime_is_never_cut_short():
    """Rounded up to the second."""
    assert format_walltime(59.2) == "0-00:01:00"


def test_durations_for_people():
    """The two largest units."""
    assert [format_duration(s) for s in (59.6, -90, 86400)] == ["1m00s", "-1m30s", "1d00h"]


@pytest.mark.parametrize(("text", "size"), [("512", 512 << 20), ("4G", 4 << 30), ("1.5t", 3 << 39), ("2KiB", 2048)])
def test_memory_sizes(text, size):
    """Slurm's units are powers of 1024, MiB by default."""
    assert parse_memory(text) == size


def test_no_memory_size_is_refused():
    """With the remedy."""
    with pytest.raises(InputError, match="512M"):
        parse_memory("lots")


def test_equation_1():
    """C = n t, in core-hours."""
    assert core_hours(28, 1137) == pytest.approx(8.843, abs=5e-4)


@pytest.mark.parametrize(
    ("text", "price_s"),
    [
        ("30", 30.0), ("0", 0.0), ("1e3", 1000.0), (" 1.5 ", 1.5),
        ("1 h = 200 core-hours", 18.0), ("1h=200 core-hours", 18.0), ("200 core-hours = 1 h", 18.0),
        ("1 Hour = 200 Core Hours", 18.0), ("30 min = 100 core-h", 18.0), ("1 core-hour = 18 s", 18.0),
        ("200 core-hours per hour", 18.0), ("200 core-hours an hour", 18.0), ("200 core-hours/h", 18.0),
        ("4800 core-hours a day", 18.0), ("1h30m = 300 core-hours", 18.0), ("1 h = 0.5 core-hours", 7200.0),
    ],
)  # fmt: skip
def test_a_price_of_time_is_read_in_words_and_as_seconds(text, price_s):
    assert parse_price(text) == pytest.approx(price_s)


@pytest.mark.parametrize(
    "text",
    ["", "much", "-3", "nan", "inf", "1e999", "1 h", "200 core-hours", "1 h = 200", "h = 200 core-hours", "1 h = 1 h",
     "60 = 200 core-hours", "1 h = 0 core-hours", "0 h = 200 core-hours", "1 h = -5 core-hours", "1 h = 2 = 3",
     "1 x = 200 core-hours", "200 core-hours per week", "1 core-hour = 2 core-hours", "1 h = 200 eurohours"],
)  # fmt: skip
def test_what_is_no_price_is_refused_with_how_to_write_one(text):
    with pytest.raises(InputError, match="is no price of time") as refused:
        parse_price(text)
    assert "1 h = 200 core-hours" in refused.value.hint


@given(st.floats(1e-3, 1e6))
def test_a_price_that_is_written_is_read_again(price_s):
    """To the digits that are shown."""
    assert parse_price(format_price(price_s).replace(",", "")) == pytest.approx(price_s, rel=0.06)
