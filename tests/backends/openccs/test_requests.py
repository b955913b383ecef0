"""The language of requests: its meaning, its totals, and the positions of errors."""

import pickle
import re

import pytest
from asa.backends.openccs.pieces import LARGEST, LATEST_S, PointedError, iso
from asa.backends.openccs.requests import (
    STANDARD_KINDS,
    Arrangement,
    Chunk,
    PlacementRule,
    RequestError,
    RequestKind,
    ResourceRequest,
    Size,
)
from hypothesis import example, given
from hypothesis import strategies as st

from asa.errors import InputError

GIB = 1 << 30
KINDS = {**STANDARD_KINDS, "disk": RequestKind.SIZE, "matlab": RequestKind.COUNT, "gpu_direct": RequestKind.FLAG}


def refusal(text, kinds=KINDS):
    with pytest.raises(RequestError) as caught:
        ResourceRequest.parse(text, kinds)
    return caught.value


def understood(text):
    try:
        return ResourceRequest.parse(text, KINDS), None
    except RequestError as error:
        return None, error


def test_the_papers_first_example():
    """The request is eight chunks in one rack."""
    request = ResourceRequest.parse("rset=8:ncpus=2:mem=10g:rack=8")
    assert request == ResourceRequest((Chunk(8, {"ncpus": 2, "mem": 10 * GIB}, {"rack": "8"}),))
    assert request.job_set() == {"ncpus": 16, "mem": 80 * GIB}


def test_the_papers_second_example():
    """The request has chunks of two kinds, one of which needs nothing countable."""
    request = ResourceRequest.parse("rset=ncpus=27:vmem=20g:arch=linux+4:acc=fpga")
    assert request.chunks == (
        Chunk(1, {"ncpus": 27, "vmem": 20 * GIB}, {"arch": "linux"}),
        Chunk(4, {}, {"acc": "fpga"}),
    )
    assert request.job_set() == {"ncpus": 27, "vmem": 20 * GIB}


def test_the_papers_third_example():
    """The request has a licence, and no two chunks on one node."""
    request = ResourceRequest.parse("rset=5:ncpus=16:mem=12g:net=IB+ncpus=1:mem=4g,sw=g03,place=scatter:excl")
    assert request.chunks == (
        Chunk(5, {"ncpus": 16, "mem": 12 * GIB}, {"net": "IB"}),
        Chunk(1, {"ncpus": 1, "mem": 4 * GIB}),
    )
    assert request.place == PlacementRule(Arrangement.SCATTER, exclusive=True)
    assert request.job_wide == {"sw": "g03"}
    assert request.licences == {"g03": 1}
    assert request.job_set() == {"ncpus": 81, "mem": 64 * GIB}


def test_job_wide_amounts_count_beside_those_of_chunks():
    """A job's amounts of a resource are added up."""
    request = ResourceRequest.parse("rset=2:ncpus=1:matlab=3,matlab=2,disk=1t", KINDS)
    assert request.job_wide == {"matlab": 2, "disk": 1 << 40}
    assert request.job_set() == {"ncpus": 2, "matlab": 8, "disk": 1 << 40}


def test_two_licences_of_one_name_are_two():
    """The resource by which they are requested does not matter."""
    kinds = {"n": RequestKind.COUNT, "sw": RequestKind.PROPERTY, "tool": RequestKind.PROPERTY}
    assert ResourceRequest.parse("rset=n=1,sw=g03,tool=g03", kinds).licences == {"g03": 2}


def test_threads_and_flags_take_nothing():
    """The number of threads is passed to the job, and flags must be on the node."""
    request = ResourceRequest.parse("rset=2:ncpus=4:ompthreads=8:gpu_direct=true", KINDS)
    assert request.chunks == (Chunk(2, {"ncpus": 4}, {"gpu_direct": "true"}, {"ompthreads": 8}),)
    assert request.job_set() == {"ncpus": 8}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512), ("512b", 512), ("3k", 3 << 10), ("3KB", 3 << 10), ("7m", 7 << 20), ("10g", 10 << 30),
        ("10Gb", 10 << 30), ("2T", 2 << 40), ("1pb", 1 << 50), ("0010g", 10 << 30),
    ],
)  # fmt: skip
def test_sizes_are_bytes(text, size):
    """Units are powers of 1024, in upper or lower case."""
    assert ResourceRequest.parse(f"rset=mem={text}").job_set() == {"mem": size}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("free", PlacementRule()),
        ("free:shared", PlacementRule()),
        ("shared", PlacementRule()),
        ("pack", PlacementRule(Arrangement.PACK)),
        ("scatter:shared", PlacementRule(Arrangement.SCATTER)),
        ("excl", PlacementRule(exclusive=True)),
        ("pack : excl", PlacementRule(Arrangement.PACK, exclusive=True)),
    ],
)
def test_placements(text, place):
    """Each word works alone, and together with a rule for sharing nodes."""
    assert ResourceRequest.parse(f"rset=ncpus=1,place={text}").place == place


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-12", 129600), ("2h", 7200), ("1.1h", 3960)]
)
def test_walltimes_in_every_spelling(text, seconds):
    """All spellings of `asa.units` work, in whole seconds."""
    assert ResourceRequest.parse(f"rset=ncpus=1,walltime={text}").walltime_s == seconds


def test_a_walltime_is_never_cut_short():
    """A fraction of a second is rounded up."""
    assert ResourceRequest.parse("rset=ncpus=1,walltime=1.5s").walltime_s == 2


@pytest.mark.parametrize("name", ["start", "deadline"])
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1501588800", 1501588800),
        ("0", 0),
        ("2017-08-01", 1501545600),
        ("2017-08-01T12:00", 1501588800),
        ("2017-08-01T12:00:01Z", 1501588801),
        ("2017-08-01T12:00:00+02:00", 1501581600),
        ("9999-12-31T23:59:59", LATEST_S),
    ],
)
def test_times(name, text, seconds):
    """Times are in UTC, unless they name another zone."""
    request = ResourceRequest.parse(f"rset=ncpus=1,{name}={text}")
    times = {"start": request.start_s, "deadline": request.deadline_s}
    assert times == {"start": None, "deadline": None, name: seconds}


@pytest.mark.parametrize(
    ("text", "indices"), [("0-9999", range(10000)), ("10", range(10)), ("7-7", range(7, 8)), ("3 - 4", range(3, 5))]
)
def test_arrays(text, indices):
    """An array has its first and last number, or its length."""
    assert ResourceRequest.parse(f"rset=ncpus=1,array={text}").array == indices


def test_a_priority_may_be_less_than_nothing():
    """There is always somebody who can wait."""
    assert ResourceRequest.parse("rset=ncpus=1,priority=-3").priority == -3


def test_spaces_around_separators():
    """Line ends count as spaces, as in a settings file."""
    spaced = " rset = 8 : ncpus = 2 : mem = 10g\n + acc = fpga ,\n sw\t= g03 , place = pack : excl , array = 0 - 9 "
    assert ResourceRequest.parse(spaced) == ResourceRequest.parse(
        "rset=8:ncpus=2:mem=10g+acc=fpga,sw=g03,place=pack:excl,array=0-9"
    )


def test_the_same_request_whatever_the_order_of_its_parts():
    """Only chunks have an order."""
    one = ResourceRequest.parse("rset=ncpus=1:mem=1g,walltime=1h,sw=g03,priority=1")
    assert one == ResourceRequest.parse("priority=1,sw=g03,walltime=1h,rset=mem=1g:ncpus=1")
    assert ResourceRequest.parse("rset=ncpus=1+mem=1g") != ResourceRequest.parse("rset=mem=1g+ncpus=1")


@pytest.mark.parametrize(
    ("before", "wrong", "message"),
    [
        ("rset=8:ncpus=", "two:mem=10g", "'two' is no whole number"),
        ("rset=", "two:ncpus=1", "'two' is no whole number"),
        ("rset=", "0:ncpus=1", "must be 1 or more"),
        ("rset=", "-2:ncpus=1", "must be 1 or more"),
        ("rset=", ":ncpus=1", "a number is missing here"),
        ("rset=8:ncpus=", "0", "must be 1 or more"),
        ("rset=8:ncpus=", "-1", "must be 1 or more"),
        ("rset=8:ncpus=", "1_0", "'1_0' is no whole number"),
        ("rset=8:ncpus=", "٣", "'٣' is no whole number"),
        ("rset=8:ncpus=", "1.5", "'1.5' is no whole number"),
        ("rset=8:ncpus=", ":mem=1g", "a number is missing here"),
        ("rset=8:ncpus=", "9" * 5000, "is more than can be counted"),
        ("rset=ncpus=", str(LARGEST + 1), "is more than can be counted"),
        ("rset=2:ncpus=", str(LARGEST // 2 + 1), "makes more ncpus than can be counted"),
        (f"rset=ncpus={LARGEST}+ncpus=", "1", "makes more ncpus than can be counted"),
        (f"rset=matlab={LARGEST},matlab=", "1", "makes more matlab than can be counted"),
        ("rset=mem=", "1025p", "is more than can be counted"),
        ("rset=mem=", "0g", "must be 1 or more"),
        ("rset=mem=", "-1g", "must be 1 or more"),
        ("rset=mem=", "lots", "'lots' is no size"),
        ("rset=mem=", "", "a size is missing here"),
        ("rset=mem=10", "x", "'x' is no unit"),
        ("rset=mem=1", ".5g", "'.5g' is no unit"),
        ("rset=mem=1", "\u212a", "'\u212a' is no unit"),
        ("rset=mem=1 ", "g", "'g' is no unit"),
        ("rset=", "", "something is missing here"),
        ("rset=", "8", "'8' has no value"),
        ("rset=8:", "", "something is missing here"),
        ("rset=ncpus=1+", "", "something is missing here"),
        ("rset=ncpus=1+", "+mem=1g", "something is missing here"),
        ("rset=ncpus=1:", ":mem=1g", "something is missing here"),
        ("rset=ncpus=1:", "8", "'8' has no value"),
        ("rset=ncpus=1:", "=8", "a name is missing here"),
        ("rset=ncpus=1:mem=1g:", "ncpus=1", "ncpus is given twice in one chunk"),
        ("rset=arch=a:", "arch=b", "arch is given twice in one chunk"),
        ("rset=ompthreads=1:", "ompthreads=1", "ompthreads is given twice in one chunk"),
        ("rset=8:", "ncpu=2", "there is no resource 'ncpu'"),
        ("rset=arch=", "", "a value is missing here"),
        ("rset=arch=li", " nux", "' ' cannot be in a value"),
        ("rset=arch=a", "=b", "'=' cannot be in a value"),
        ("rset=arch=a", "\x1b[2J", r"'\x1b' cannot be in a value"),
        ("rset=gpu_direct=", "yes", "'yes' is neither true nor false"),
        ("rset=ncpus=1,", "", "something is missing here"),
        ("", "", "something is missing here"),
        ("rset=ncpus=1,", ",sw=g03", "something is missing here"),
        ("rset=ncpus=1,", "sw", "'sw' has no value"),
        ("rset=ncpus=1,sw=g", ":1", "':' cannot be in a value"),
        ("rset=ncpus=1,", "wall=2h", "there is no resource 'wall'"),
        ("rset=ncpus=1,", "gpu_direct=true", "gpu_direct is a flag, which only a chunk has"),
        ("rset=ncpus=1,", "ompthreads=2", "ompthreads is a setting, which only a chunk has"),
        ("rset=ncpus=1,sw=a,", "sw=b", "sw is given twice"),
        ("rset=ncpus=1,", "rset=ncpus=1", "rset is given twice"),
        ("place=free,", "place=free,rset=ncpus=1", "place is given twice"),
        ("rset=ncpus=1,start=1,", "deadline=2", "a job has a start or a deadline, not both"),
        ("rset=ncpus=1,deadline=2,", "start=1", "a job has a start or a deadline, not both"),
        ("sw=g03", "", "it asks for no node: rset= is missing"),
        ("rset=ncpus=1,place=", "spread", "'spread' is no placement"),
        ("rset=ncpus=1,place=", "", "something is missing here"),
        ("rset=ncpus=1,place=pack:", "", "something is missing here"),
        ("rset=ncpus=1,place=pack:", "scatter", "'scatter' is no placement"),
        ("rset=ncpus=1,place=excl:", "shared", "'shared' is no placement"),
        ("rset=ncpus=1,place=pack:excl:", "shared", "'shared' is no placement"),
        ("rset=ncpus=1,walltime=", "soon", "'soon' is no duration"),
        ("rset=ncpus=1,walltime=", "0", "is no time at all"),
        ("rset=ncpus=1,walltime=", "9" * 20, "is longer than can be counted"),
        ("rset=ncpus=1,walltime=", "9" * 15 + "d", "is longer than can be counted"),
        ("rset=ncpus=1,start=", "tomorrow", "'tomorrow' is no time"),
        ("rset=ncpus=1,start=", "", "a time is missing here"),
        ("rset=ncpus=1,start=", "2017-02-29", "'2017-02-29' is no time"),
        ("rset=ncpus=1,start=", "2017-08-01 12:00", "'2017-08-01 12:00' is no time"),
        ("rset=ncpus=1,start=", "1969-12-31T23:59", "is before 1970"),
        ("rset=ncpus=1,start=", "-1", "must be 0 or more"),
        ("rset=ncpus=1,deadline=", str(LATEST_S + 1), "is after the year 9999"),
        ("rset=ncpus=1,array=", "0", "must be 1 or more"),
        ("rset=ncpus=1,array=9-", "8", "is less than 9"),
        ("rset=ncpus=1,array=9-", "", "a number is missing here"),
        ("rset=ncpus=1,array=", "-3", "a number is missing here"),
        ("rset=ncpus=1,array=0-", "9:2", "'9:2' is no whole number"),
        ("rset=ncpus=1,priority=", "high", "'high' is no whole number"),
        ("rset=ncpus=1,priority=", str(-LARGEST - 1), "is more than can be counted"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_pointed_at(before, wrong, message):
    """A caret is below the character, and the text above the caret."""
    error = refusal(before + wrong)
    assert error.position == len(before)
    assert error.text == before + wrong
    shown, pointer, *_ = str(error).split("\n")
    assert pointer.lstrip(" ").startswith(f"^ {message}")
    column = pointer.index("^")
    assert re.sub(r"[^ -~]", "?", wrong[:1]) == shown[column : column + 1]


def test_the_whole_message():
    """The message has the text, the caret, and the hint."""
    assert str(refusal("rset=8:ncpu=2, walltime=1h", STANDARD_KINDS)) == (
        "rset=8:ncpu=2, walltime=1h\n"
        "       ^ there is no resource 'ncpu'\n"
        "Did you mean 'ncpus'? Known: ncpus, gpus, mem, vmem, ompthreads, arch, acc, net, rack, sw."
    )


def test_a_word_that_was_meant_is_found_outside_chunks_too():
    """Words of the language and resources are suggested."""
    assert refusal("rset=ncpus=1,waltime=1h").hint.startswith("Did you mean 'walltime'?")
    assert "Did you mean 'excl'?" in refusal("rset=ncpus=1,place=exclusive").hint


def test_a_long_text_is_shown_around_the_caret():
    """Otherwise a terminal might break the line."""
    chunk = "ncpus=16:mem=12g:net=IB+"
    lines = str(refusal("rset=" + 100 * chunk + "ncpus=x:" + 100 * chunk)).split("\n")
    assert len(lines[0]) <= 120
    assert lines[0][lines[1].index("^") :].startswith("x:")


def test_a_long_word_is_not_repeated_whole():
    """The word is already in the text above."""
    for text in ("rset=ncpus=1,walltime=" + 999 * "1h" + "x", "rset=" + 999 * "a" + "=1", "rset=ncpus=" + 999 * "a"):
        assert len(str(refusal(text, STANDARD_KINDS))) < 400


def test_an_error_stays_what_it_is_when_it_travels():
    """An error may go from process to process, or be raised again with its origin."""
    error = refusal("rset=ncpus=x")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.position, copy.text) == (RequestError, str(error), 11, "rset=ncpus=x")
    assert isinstance(error, InputError)
    again = type(error)(error.message, where="stage align", hint=error.hint)
    assert str(again).split("\n") == ["stage align:", *str(error).split("\n")]


AMOUNTS = st.integers(1, 1 << 24)
VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=",:+="), min_size=1, max_size=9)
SIZES = st.builds(lambda n, unit: Size(n << unit), st.integers(1, 2000), st.sampled_from([0, 10, 20, 30]))
CHUNKS = st.builds(
    Chunk,
    st.integers(1, 10000),
    st.fixed_dictionaries({"ncpus": AMOUNTS}, optional={"gpus": AMOUNTS, "mem": SIZES, "vmem": AMOUNTS}),
    st.fixed_dictionaries(
        {}, optional={"arch": VALUES, "rack": VALUES, "gpu_direct": st.sampled_from(["true", "false"])}
    ),
    st.fixed_dictionaries({}, optional={"ompthreads": AMOUNTS}),
)
TIMES = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"start_s": st.integers(0, LATEST_S)}),
    st.fixed_dictionaries({"deadline_s": st.integers(0, LATEST_S)}),
)
REQUESTS = st.builds(
    lambda chunks, times, **others: ResourceRequest(tuple(chunks), **times, **others),
    chunks=st.lists(CHUNKS, min_size=1, max_size=4),
    times=TIMES,
    job_wide=st.fixed_dictionaries({}, optional={"sw": VALUES, "matlab": AMOUNTS, "disk": SIZES}),
    place=st.builds(PlacementRule, st.sampled_from(Arrangement), st.booleans()),
    walltime_s=st.none() | st.integers(1, 10**9),
    array=st.none() | st.builds(lambda first, n: range(first, first + n), st.integers(0, 10**6), st.integers(1, 10**6)),
    priority=st.integers(-(10**6), 10**6),
)


@given(REQUESTS)
def test_a_written_request_reads_back(request_):
    """The text loses nothing and adds nothing."""
    assert ResourceRequest.parse(str(request_), KINDS) == request_


@given(REQUESTS)
def test_a_jobs_sum_is_that_of_its_chunks_one_by_one(request_):
    """Each chunk is counted as often as requested; the test counts in another way."""
    single = ResourceRequest(tuple(Chunk(1, {n: a * c.count for n, a in c.needs.items()}) for c in request_.chunks))
    expected = {name: sum(c.needs.get(name, 0) for c in single.chunks) for c in single.chunks for name in c.needs}
    amounts = {name: value for name, value in request_.job_wide.items() if isinstance(value, int)}
    assert request_.job_set() == {n: expected.get(n, 0) + amounts.get(n, 0) for n in {*expected, *amounts}}


TOKENS = st.sampled_from(
    [
        *"=:+,- \t\n\0\ud800٣²K", *KINDS, "rset", "place", "walltime", "start", "deadline", "array", "priority",
        "free", "pack", "excl", "true", "8", "0", "-1", "10g", "10x", "1h30m", "2017-08-01", "T12:00",
        "Z", "9" * 16, "9" * 5000,
    ]
)  # fmt: skip


@given(st.text() | st.lists(TOKENS, max_size=30).map("".join) | st.lists(TOKENS, max_size=9).map("rset=8:".join))
@example("rset=ncpus=1,start=0001-01-01T00:00+23:59")
@example("rset=ncpus=1,start=9999-12-31T23:59-23:59")
@example("rset=ncpus=1,start=2017-08-01T12:00+99:99")
def test_any_text_is_a_request_or_is_pointed_at(text):
    """There is no other error, and no position outside the text."""
    request, error = understood(text)
    if error is None:
        assert ResourceRequest.parse(str(request), KINDS) == request
    else:
        assert 0 <= error.position <= len(text)
        assert str(error).encode()  # could be printed


@given(REQUESTS, st.data())
def test_a_request_with_one_slip_is_another_or_is_pointed_at(request_, data):
    """One character is removed, or one is added."""
    text = str(request_)
    at = data.draw(st.integers(0, len(text)))
    slip = text[:at] + data.draw(st.sampled_from(["", *"=:+,-x0 "])) + text[at + data.draw(st.integers(0, 1)) :]
    request, error = understood(slip)
    assert request is not None or 0 <= error.position <= len(slip)


def test_times_that_cannot_be_read_are_written_as_numbers():
    """One example is the end of a plan that never ends."""
    assert (iso(1 << 60), iso(-1), iso(0)) == (str(1 << 60), "-1", "1970-01-01T00:00:00Z")


def test_an_error_without_a_text_is_like_any_other():
    """Nothing to point at."""
    assert str(PointedError("is odd", where="here", hint="Correct it.")) == "here:\nis odd\nCorrect it."
