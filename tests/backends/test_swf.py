"""Reading workload logs: what is odd is counted or refused."""

import gzip

import pytest
from asa.backends.simulated.swf import read_swf

from asa.errors import TraceError

HEADER = "; Version: 2.2\n; MaxProcs: 100\n"


def line(job=1, submit=0, run=60, used=4, asked=4, request=600):
    return f"{job} {submit} -1 {run} {used} -1 -1 {asked} {request} -1 1 1 1 1 1 1 -1 -1\n"


def log(tmp_path, *lines, header=HEADER, name="log.swf"):
    path = tmp_path / name
    path.write_text(header + "".join(lines))
    return path


def test_plain_and_compressed_are_one(tmp_path):
    """Gzip is seen by its first bytes, not by the name."""
    plain = log(tmp_path, line(), line(submit=5, run=7, asked=9, request=70))
    packed = tmp_path / "packed.swf"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        trace = read_swf(path)
        assert trace.cores == 100
        assert trace.oddities == {}
        assert trace.table.submit.tolist() == [0, 5]
        assert trace.table.run.tolist() == [60, 7]
        assert trace.table.request.tolist() == [600, 70]
        assert trace.table.cores.tolist() == [4, 9]


@pytest.mark.parametrize(
    ("odd", "words", "left"),
    [
        (line(run=0), "left out: run time 0 or unknown", 1),
        (line(run=-1), "left out: run time 0 or unknown", 1),
        (line(used=-1, asked=-1), "left out: width 0 or unknown", 1),
        (line(used=0, asked=0), "left out: width 0 or unknown", 1),
        (line(asked=101), "left out: wider than the machine", 1),
        (line(submit=-3), "left out: submitted before second 0", 1),
        (line(run=700), "request raised: ran for longer than requested", 2),
        (line(request=-1), "no requested time: run time taken", 2),
    ],
)
def test_each_oddity_has_its_rule_and_is_counted(tmp_path, odd, words, left):
    """Beside a good job, which stays."""
    trace = read_swf(log(tmp_path, odd, line(submit=9)))
    assert trace.oddities == {words: 1}
    assert len(trace.table) == left


def test_the_rules_change_what_they_say(tmp_path):
    """A raised request, a request taken from the run time, a width from the allocation."""
    trace = read_swf(log(tmp_path, line(run=700), line(request=-1), line(asked=-1, used=6)))
    assert trace.table.request.tolist() == [700, 60, 600]
    assert trace.table.run.tolist() == [700, 60, 60]
    assert trace.table.cores.tolist() == [4, 4, 6]


def test_jobs_out_of_order_are_sorted_and_ties_stay(tmp_path):
    """Ids repeat here, which does not matter."""
    trace = read_swf(log(tmp_path, line(submit=50, run=1), line(submit=9, run=2), line(submit=9, run=3)))
    assert trace.table.run.tolist() == [2, 3, 1]
    assert trace.oddities == {"not in order of submission: sorted": 1}


def test_the_machine_may_be_given(tmp_path):
    """For logs without a header, or with one that is wrong."""
    bare = log(tmp_path, line(), header="")
    assert read_swf(bare, cores=64).cores == 64
    with pytest.raises(TraceError, match=r"--trace-cores"):
        read_swf(bare)
    nodes = log(tmp_path, line(), header="; MaxNodes: 12 (batch)\n")
    assert read_swf(nodes).cores == 12


def test_files_of_other_systems_are_read(tmp_path):
    """Commas in the header, a byte order mark, old Macs' and Windows' line ends."""
    path = tmp_path / "log.swf"
    for end in ("\r", "\r\n"):
        path.write_bytes(("\ufeff; MaxProcs: 1,024\n" + line() + line()).replace("\n", end).encode())
        trace = read_swf(path)
        assert (trace.cores, len(trace.table)) == (1024, 2)


def test_tabs_and_blank_lines_are_fine(tmp_path):
    """Real logs have both."""
    assert len(read_swf(log(tmp_path, line().replace(" ", "\t"), "\n", "  \n", line(submit=1))).table) == 2


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("1 2 3\n", "3 fields"),
        (line().replace("600", "ten"), "field 9 is 'ten'"),
        ("<html>\n", "1 fields"),
        (line().replace(" 60 ", " nan "), "field 4 is 'nan'"),
        (line().replace(" 60 ", " 1e300 "), "no log can mean"),
        (line().replace(" 60 ", " inf "), "no log can mean"),
    ],
)
def test_a_broken_line_is_named(tmp_path, broken, message):
    """File, line number, what is wrong."""
    path = log(tmp_path, line(), broken, line())
    with pytest.raises(TraceError, match=message) as caught:
        read_swf(path)
    assert str(caught.value).startswith(f"{path}:4:")


@pytest.mark.parametrize("lines", [(), ("; only a header\n",)])
def test_an_empty_log_is_refused(tmp_path, lines):
    """Nothing to replay."""
    with pytest.raises(TraceError, match="no jobs"):
        read_swf(log(tmp_path, *lines))


def test_a_log_without_a_usable_job_is_refused(tmp_path):
    """All left out."""
    with pytest.raises(TraceError, match=r"no job that a machine of 100 .*1 left out: run time 0"):
        read_swf(log(tmp_path, line(run=0)))


def test_files_that_cannot_be_read_are_refused(tmp_path):
    """Missing, a folder, a torn gzip."""
    with pytest.raises(TraceError, match="cannot be read"):
        read_swf(tmp_path / "none.swf")
    with pytest.raises(TraceError, match="cannot be read"):
        read_swf(tmp_path)
    torn = tmp_path / "torn.swf.gz"
    torn.write_bytes(gzip.compress(line().encode() * 100)[:60])
    with pytest.raises(TraceError, match="cut off"):
        read_swf(torn)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "cores", "jobs"),
    [
        ("HPC2N-2002-2.2-cln", 240, 202_871),
        ("KTH-SP2-1996-2-unfiltered", 100, 28_489),
        ("CTC-SP2-1996-3.1-cln", 338, 77_222),
        ("theta_2022", 4360, 23_911),
        ("DOST-ASTI_COARE-Saliksik-2020-cln", 1728, 19_760),
        ("lublin_256", 256, 10_000),
    ],
)
def test_real_logs(data, name, cores, jobs):
    """Every job is either in the table or counted as left out."""
    trace = read_swf(data / "swf" / f"{name}.swf.gz")
    assert trace.cores == cores
    left_out = sum(count for words, count in trace.oddities.items() if words.startswith("left out"))
    assert len(trace.table) + left_out == jobs
