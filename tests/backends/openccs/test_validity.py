"""Times of validity, checked minute by minute against a plain reading of cron."""

import time
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from asa.backends.openccs.pieces import PointedError
from asa.backends.openccs.validity import Cron, Validity, ValidityError
from hypothesis import example, given
from hypothesis import strategies as st

from asa.errors import InputError

HOUR, DAY, WEEK = 3600, 86400, 7 * 86400
AUGUST_2017 = 1501545600
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]


def seconds(text):
    return int(datetime.fromisoformat(f"{text}+00:00").timestamp())


def windows(text, since, until):
    return list(Validity.parse(text).windows(since, until))


def refusal(text):
    with pytest.raises(ValidityError) as caught:
        Validity.parse(text)
    return caught.value


def understood(text):
    try:
        return Validity.parse(text), None
    except ValidityError as error:
        return None, error


def test_always():
    """Also where no calendar reaches."""
    assert windows(" always ", -5, 1 << 62) == [(-5, 1 << 62)]
    assert windows("always", 7, 7) == windows("always", 8, 7) == []


@pytest.mark.parametrize(
    "text",
    [
        "01.08.17-31.08.17",
        "01.08.2017 - 31.08.2017",
        "01.08.17/2017-08-31",
        "2017-08-01/2017-08-31",
        "2017-08-01T00:00 / 2017-09-01T00:00",
        "2017-08-01T02:00:00+02:00/2017-08-31T23:00-01:00",
        "1501545600/1504224000",
    ],
)
def test_a_date_is_a_whole_day(text):
    """As a start, it is its first second; as an end, its last."""
    assert windows(text, 0, 1 << 40) == [(AUGUST_2017, AUGUST_2017 + 31 * DAY)]


def test_either_side_may_be_absent():
    """For ever, that is."""
    assert windows("2017-08-01/", 0, 1 << 40) == windows("01.08.17-", 0, 1 << 40) == [(AUGUST_2017, 1 << 40)]
    assert windows("/2017-07-31", -7, 1 << 40) == windows("-31.07.17", -7, 1 << 40) == [(-7, AUGUST_2017)]


def test_what_is_outside_is_cut_off():
    """Or all of it."""
    text = "2017-08-01/2017-08-31T12:00"
    end = AUGUST_2017 + 30 * DAY + 12 * HOUR
    assert windows(text, AUGUST_2017 + 5, end + 5) == [(AUGUST_2017 + 5, end)]
    assert windows(text, end, end + 5) == windows(text, 0, AUGUST_2017) == []


def test_mondays_and_fridays_in_the_morning():
    """From seven to eleven."""
    monday = seconds("2017-07-31")
    assert windows("* 7-10 * * mon,fri", monday, monday + WEEK) == [
        (monday + 7 * HOUR, monday + 11 * HOUR),
        (monday + 4 * DAY + 7 * HOUR, monday + 4 * DAY + 11 * HOUR),
    ]


def test_the_papers_maintenance_every_two_months():
    """On Mondays from eight to six."""
    months = [start for start, _ in windows("* 8-17 * */2 mon", seconds("2017-01-01"), seconds("2018-01-01"))]
    assert {datetime.fromtimestamp(start, UTC).month for start in months} == {1, 3, 5, 7, 9, 11}
    assert all(datetime.fromtimestamp(start, UTC).strftime("%a %H:%M") == "Mon 08:00" for start in months)


def test_windows_are_joined_over_hours_days_and_weeks():
    """As far as they touch."""
    assert windows("59,0 * * * *", 0, 2 * HOUR) == [(0, 60), (3540, 3660), (7140, 7200)]
    assert windows("* 22-23,0-1 * * *", 0, DAY) == [(0, 2 * HOUR), (22 * HOUR, DAY)]
    assert windows("* * * * wed,thu", 0, 2 * WEEK) == [(0, DAY), (6 * DAY, 8 * DAY), (13 * DAY, 14 * DAY)]


@pytest.mark.parametrize(
    "text", ["* * * * *", "*/1 0-23 * * *", "* * 1-31 * mon", "* * 1 1-12 0-6", "* * * jan-dec sun-sat"]
)
def test_a_cron_string_may_be_always(text):
    """However that is said; it is one window then, and takes no time."""
    assert windows(text, 5, 1 << 62) == [(5, 1 << 62)]
    assert Cron.parse(text).template() == ((0, HOUR),)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("0 0 13 * fri", [1, 8, 13, 15, 22, 29]),
        ("0 0 */31 * fri", [1]),
        ("0 0 */2 * fri", [1, 15, 29]),
        ("0 0 13-19 * */6", [16, 17]),
        ("0 0 1-31 * fri", [*range(1, 32)]),
        ("0 0 * * fri", [1, 8, 15, 22, 29]),
        ("0 0 13 * *", [13]),
        ("0 0 13 2 *", []),
    ],
)
def test_either_day_suffices_where_neither_begins_with_an_asterisk(text, days):
    """As in cron; otherwise both must be right. The first of December 2017 was a Friday."""
    begin = seconds("2017-12-01")
    assert [(start - begin) // DAY + 1 for start, _ in windows(text, begin, begin + 31 * DAY)] == days


@pytest.mark.parametrize(
    ("text", "weekdays"),
    [
        ("0", {0}), ("7", {0}), ("sun", {0}), ("5-7", {5, 6, 0}), ("fri-sun", {5, 6, 0}), ("sun-tue", {0, 1, 2}),
        ("SAT-Sun", {6, 0}), ("sun-sun", {0}), ("1-5/2", {1, 3, 5}), ("*/2", {0, 2, 4, 6}), ("6-0", {6, 0}),
    ],
)  # fmt: skip
def test_sunday_is_both_ends_of_the_week(text, weekdays):
    """0, and 7."""
    assert Cron.parse(f"0 0 * * {text}").weekdays == weekdays


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("*/5 * * * *", HOUR),
        ("0 */2 * * *", DAY),
        ("0 * * * mon", WEEK),
        ("* * * * 0-5", WEEK),
        ("0 0 1-31 * mon", DAY),
        ("0 0 1 * 0-6", DAY),
        ("0 0 1 * *", None),
        ("0 0 */2 * *", None),
        ("0 0 * jan *", None),
        ("0 0 1 * mon", None),
    ],
)
def test_periods(text, period):
    """The shortest one that is exact."""
    assert Cron.parse(text).period == period
    assert bool(Cron.parse(text).template()) == (period is not None)


def test_the_29th_of_february():
    """Of no year but every fourth, and not of 2100."""
    found = windows("0 12 29 feb *", seconds("2096-01-01"), seconds("2105-01-01"))
    assert found == [(noon := seconds(f"{year}-02-29T12:00:00"), noon + 60) for year in (2096, 2104)]


def test_the_31st():
    """Of the months that have one."""
    found = windows("0 0 31 * *", seconds("2017-01-01"), seconds("2018-01-01"))
    assert [datetime.fromtimestamp(start, UTC).month for start, _ in found] == [1, 3, 5, 7, 8, 10, 12]


def test_days_beyond_the_calendar():
    """After the year 9999 it goes on as it began 400 years before."""
    cycle = 146_097 * DAY
    here = windows("0 0 1 * mon", 0, 60 * DAY)
    assert windows("0 0 1 * mon", 40 * cycle, 40 * cycle + 60 * DAY) == [
        (40 * cycle + a, 40 * cycle + b) for a, b in here
    ]
    assert windows("0 0 1 * mon", -8 * cycle, -8 * cycle + 60 * DAY) == [
        (a - 8 * cycle, b - 8 * cycle) for a, b in here
    ]


def test_windows_come_one_by_one():
    """Nobody waits for the last of them."""
    endless = Validity.parse("0 0 1 1 *").windows(0, 1 << 62)
    assert [datetime.fromtimestamp(start, UTC).year for start, _ in islice(endless, 4)] == [1970, 1971, 1972, 1973]


@pytest.mark.parametrize(
    ("before", "wrong", "message"),
    [
        ("", "", "a validity is missing here"),
        ("  ", "Always", "'Always' is no validity"),
        ("", "2017-08-01", "'2017-08-01' is no validity"),
        ("", "/", "has neither a start nor an end"),
        ("", "2017-13-01/", "'2017-13-01' is no time: month must be in 1..12"),
        ("", "soon/", "'soon' is no time"),
        ("2017-08-01/", "never", "'never' is no time"),
        ("2017-08-01 / ", "2017-07-31", "is no later than 2017-08-01, where it begins"),
        ("2017-08-01T12:00/", "2017-08-01T12:00", "is no later than"),
        ("2017-08-01/", "2017-08-02/2017-08-03", "'2017-08-02/2017-08-03' is no time"),
        ("01.08.17-", "32.08.17", "'32.08.17' is no date"),
        ("", "2017-31.08.17", "'2017' is no date"),
        ("01.08.17-", "5", "'5' is no date"),
        ("", "01.08.1969-", "is before 1970"),
        ("/", "9999-12-31", "is too late to be counted"),
        ("* *", "", "a cron string has five fields, this one 2"),
        ("* * * * * ", "*", "a cron string has five fields, this one 6"),
        ("* ", "24 * * *", "'24' is no hour: these are 0 to 23"),
        ("* * ", "0 * *", "'0' is no day of the month: these are 1 to 31"),
        ("* * * jan,", "abc *", "'abc' is no month: these are 1 to 12, or jan, feb"),
        ("* * * * ", "8", "'8' is no day of the week: these are 0 to 7, or sun, mon"),
        ("5,", ",6 * * * *", "something is missing here"),
        ("5-", " * * * *", "something is missing here"),
        ("", "-5 * * * *", "something is missing here"),
        ("* 22-", "4 * * *", "is before 22"),
        ("* * * * fri-", "mon", "is before fri"),
        ("*/", "0 * * * *", "must be 1 or more"),
        ("*/", " * * * *", "a number is missing here"),
        ("*/", "90 * * * *", "is more than all of 0 to 59"),
        ("*/", "5/5 * * * *", "'5/5' is no whole number"),
        ("5/", "10 * * * *", "a step needs a range before it"),
        ("", "٣ * * * *", "'٣' is no minute"),
        ("* * ", "? * *", "'?' is no day of the month"),
        ("* * ", "L * *", "'L' is no day of the month"),
        ("* * ", "30,31 2 *", "no such day is in any of these months"),
        ("0 0 ", "31 apr,jun *", "no such day is in any of these months"),
    ],
)
def test_what_is_wrong_is_pointed_at(before, wrong, message):
    """As in a request."""
    error = refusal(before + wrong)
    assert isinstance(error, PointedError)
    assert error.position == len(before)
    pointer = str(error).split("\n")[1]
    assert pointer.startswith(f"{' ' * len(before)}^ {message}")


def test_a_wrong_range_is_mended_in_the_hint():
    """What is written there can be copied."""
    assert refusal("* 22-4 * * *").hint == "Write 22-23,0-4."
    assert Cron.parse("* 22-23,0-4 * * *").hours == {22, 23, 0, 1, 2, 3, 4}
    assert refusal("5/10 * * * *").hint == "Write 5-59/10."
    assert refusal("* * * * fri-mon").hint == "Write 5-7,0-1."


def test_a_validity_has_times_or_a_cron_string():
    """Both could not be written."""
    with pytest.raises(InputError, match="both times and a cron string"):
        Validity(start_s=5, cron=Cron.parse("* * * * *"))


@pytest.mark.parametrize(
    "text", ["always", "2017-08-01/", "/31.08.17", "2017-08-01/2017-08-31T12:00", " * 7-10  * * mon,fri"]
)
def test_a_written_validity_reads_back(text):
    """Nothing is lost."""
    validity = Validity.parse(text)
    assert Validity.parse(str(validity)) == validity
    assert hash(Validity.parse(str(validity))) == hash(validity)


# ------------------------------------------------------------------ an oracle


def fields(low, high, names=None):
    """Build fields as text, each with the numbers that it matches."""
    numbers = st.integers(low, high)

    def say(number, named):
        return names[number - low] if names and named and number - low < len(names) else str(number)

    ranges = st.tuples(numbers, numbers, st.booleans()).map(
        lambda r: (f"{say(min(r[:2]), r[2])}-{say(max(r[:2]), False)}", {*range(min(r[:2]), max(r[:2]) + 1)})
    )
    parts = st.one_of(
        st.tuples(numbers, st.booleans()).map(lambda n: (say(*n), {n[0]})),
        ranges,
        st.tuples(numbers, numbers, st.integers(1, high)).map(
            lambda r: (f"{min(r[:2])}-{max(r[:2])}/{r[2]}", {*range(min(r[:2]), max(r[:2]) + 1, r[2])})
        ),
        st.integers(1, high).map(lambda step: (f"*/{step}", {*range(low, high + 1, step)})),
    )
    lists = st.lists(parts, min_size=1, max_size=3).map(
        lambda some: (",".join(text for text, _ in some), set().union(*(values for _, values in some)))
    )
    return st.just(("*", {*range(low, high + 1)})) | lists


CRONS = st.tuples(fields(0, 59), fields(0, 23), fields(1, 31), fields(1, 12, MONTHS), fields(0, 7, WEEKDAYS)).filter(
    lambda five: min(five[2][1]) <= 29
)  # which are in every month, once in a while


def counts(cron, minute):
    """Whether cron would start a job at this minute, as its manual says."""
    (_, minutes), (_, hours), (of_month, days), (_, months), (of_week, weekdays) = cron
    then = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    by_day = then.day in days
    by_weekday = (then.weekday() + 1) in weekdays or (then.weekday() == 6 and 0 in weekdays)
    restricted = not of_month.startswith("*") and not of_week.startswith("*")
    day = by_day or by_weekday if restricted else by_day and by_weekday
    return then.minute in minutes and then.hour in hours and then.month in months and day


def minute_by_minute(cron, since, until):
    found = []
    for minute in range(since // 60, -(-until // 60)):
        if counts(cron, minute):
            start, end = max(60 * minute, since), min(60 * minute + 60, until)
            if found and found[-1][1] == start:
                found[-1] = found[-1][0], end
            else:
                found.append((start, end))
    return found


def written(cron):
    return " ".join(text for text, _ in cron)


@given(CRONS, st.integers(0, seconds("2105-01-01")), st.integers(1, 3 * DAY))
def test_windows_are_the_minutes_that_match(cron, since, length):
    """One by one."""
    assert windows(written(cron), since, since + length) == minute_by_minute(cron, since, since + length)


@given(CRONS, st.integers(0, 50_000))
def test_the_days_of_a_year_that_match(cron, first):
    """As three days leave out most months, here only days are looked at, of 400."""
    midnight = [("0", {0}), ("0", {0}), *cron[2:]]
    days = range(first, first + 400)
    found = windows(written(midnight), DAY * first, DAY * (first + 400))
    assert found == [(DAY * day, DAY * day + 60) for day in days if counts(midnight, 1440 * day)]


@given(CRONS, st.integers(-3 * WEEK, seconds("2105-01-01")), st.integers(1, 3 * WEEK))
@example([("*", {*range(60)})] * 2 + [("*", {*range(1, 32)}), ("*", {*range(1, 13)}), ("*", {*range(8)})], 5, WEEK)
def test_the_template_unrolled_is_all_there_is(cron, since, length):
    """Both ways: the windows of one period, again and again, are the windows; those of one period are the template."""
    periodic = Cron.parse(written([*cron[:2], ("*", ()), ("*", ()), cron[4]]))
    period, template, until = periodic.period, periodic.template(), since + length
    unrolled = []
    for begin in range(since // period * period, until, period):
        for start, end in template:
            start, end = max(begin + start, since), min(begin + end, until)  # noqa: PLW2901
            if unrolled and unrolled[-1][1] == start < end:
                unrolled[-1] = unrolled[-1][0], end
            elif start < end:
                unrolled.append((start, end))
    found = Validity(cron=periodic)
    assert list(found.windows(since, until)) == unrolled
    assert list(found.windows(7 * period, 8 * period)) == [
        (7 * period + start, 7 * period + end) for start, end in template
    ]
    assert period in {HOUR, DAY, WEEK}
    for shorter in (HOUR, DAY):
        if shorter < period:
            parts = [[(a - at, b - at) for a, b in found.windows(at, at + shorter)] for at in range(0, period, shorter)]
            assert any(part != parts[0] for part in parts)


@given(CRONS, st.integers(0, 4 * 10**9), st.lists(st.integers(1, WEEK), min_size=2, max_size=2).map(sorted))
def test_windows_of_a_part_are_the_part_of_the_windows(cron, since, cuts):
    """Clipping is all that a narrower question does; what comes is in order and does not touch."""
    validity = Validity.parse(written(cron))
    whole = list(validity.windows(since, since + WEEK))
    first, last = since + cuts[0], since + cuts[1]
    clipped = [(max(start, first), min(end, last)) for start, end in whole]
    assert list(validity.windows(first, last)) == [(start, end) for start, end in clipped if start < end]
    edges = [edge for window in whole for edge in window]
    assert edges == sorted(set(edges))


TOKENS = st.sampled_from(
    [
        *"*/-,. \t\n\0\ud800٣²", "mon", "jan", "7", "0", "31", "99", "9" * 5000, "always", "2017-08-01", "T12:00", "Z",
        "01.08.17", "31.08.2017", " * ", "* * *", "*/5",
    ]
)  # fmt: skip


@given(st.text() | st.lists(TOKENS, max_size=12).map("".join))
@example("9999-12-31/")
@example("/31.12.9999")
@example("00.00.00-00.00.00")
@example("0001-01-01/")
@example("01.01.0000-")
def test_any_text_is_a_validity_or_is_pointed_at(text):
    """Never another error, and never a place outside the text."""
    validity, error = understood(text)
    if error is None:
        assert Validity.parse(str(validity)) == validity
    else:
        assert 0 <= error.position <= len(text)
        assert str(error).encode()  # could be printed


def test_a_year_of_hourly_windows_is_cheap():
    """The first few minutes of each hour of some months, and of all."""
    for text in ("0-4 * * * *", "0-4 * 1-30 * *"):
        validity = Validity.parse(text)
        took = []
        for _ in range(5):
            begin = time.process_time()
            number = sum(1 for _ in validity.windows(AUGUST_2017, AUGUST_2017 + 365 * DAY))
            took.append(time.process_time() - begin)
        assert number in {8760, 8760 - 7 * 24}
        assert min(took) < 0.05
