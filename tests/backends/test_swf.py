"""Reading workload logs: odd lines are counted or refused."""

import gzip
import os
import threading
import tracemalloc

import numpy as np
import pytest
from asa.backends.simulated import swf
from asa.backends.simulated.swf import read_history, read_swf, write_swf
from asa.backends.simulated.table import JobTable
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError, TraceError

HEADER = "; Version: 2.2\n; MaxProcs: 100\n"


def line(job=1, submit=0, run=60, used=4, asked=4, request=600, wait=-1, status=1, user=1, queue=1, part=1):
    return f"{job} {submit} {wait} {run} {used} -1 -1 {asked} {request} -1 {status} {user} 1 1 {queue} {part} -1 -1\n"


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
        (line(run=3 * 10**9, request=4 * 10**9), "run or request of more than 68 years: counts as so long", 2),
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


@pytest.mark.parametrize(
    ("exceed", "words", "run", "asked"),
    [
        ("raise", "request raised: ran for longer than requested", 700, 700),
        ("kill", "run cut to the request: ran for longer than requested", 600, 600),
        ("keep", "kept as they are: ran for longer than requested", 700, 600),
    ],
)
def test_a_job_that_ran_for_longer_than_requested(tmp_path, exceed, words, run, asked):
    """Three ways; jobs without a request and well-behaved ones are untouched by each."""
    trace = read_swf(log(tmp_path, line(run=700), line(run=5), line(request=-1)), exceed=exceed)
    assert trace.table.run.tolist() == [run, 5, 60]
    assert trace.table.request.tolist() == [asked, 600, 60]
    assert trace.oddities == {words: 1, "no requested time: run time taken": 1}


def test_ids_are_handed_on_as_they_are(tmp_path):
    """Not unique, not from 0, not even positive."""
    trace = read_swf(log(tmp_path, line(job=7, submit=2), line(job=7, submit=1), line(job=-1, submit=3), line(job=0)))
    assert trace.job_ids.tolist() == [0, 7, 7, -1]
    assert trace.oddities == {"not in order of submission: sorted": 2}


def told(trace):
    return [getattr(trace, name).tolist() for name in ("memory_kb", "users", "groups", "queues", "partitions")]


def test_users_and_their_like_are_told_in_the_order_of_the_table(tmp_path):
    """Jobs left out are left out there too."""
    rows = [f"{i} {submit} -1 {run} 4 -1 -1 4 600 {1024 * i} 1 {10 + i} {20 + i} 1 {30 + i} {40 + i} -1 -1\n"
            for i, (submit, run) in enumerate([(5, 60), (3, 0), (1, 60)])]  # fmt: skip
    trace = read_swf(log(tmp_path, *rows))
    assert told(trace) == [[2048, 0], [12, 10], [22, 20], [32, 30], [42, 40]]
    assert trace.users.dtype == np.int32
    assert trace.memory_kb.dtype == np.int64


def test_short_lines_tell_less(tmp_path):
    """Nine fields are enough for a job; missing ones are unknown."""
    short = "1 0 -1 60 4 -1 -1 4 600\n"
    assert told(read_swf(log(tmp_path, short, short))) == [[-1, -1]] * 5
    assert told(read_swf(log(tmp_path, short, line(submit=1)))) == [[-1, -1], [-1, 1], [-1, 1], [-1, 1], [-1, 1]]
    assert told(read_swf(log(tmp_path, "1 0 -1 60 4 -1 -1 4 600 -1 1 8\n"))) == [[-1], [8], [-1], [-1], [-1]]


def test_what_no_number_can_be_read_from_is_unknown_where_it_need_not_be_known(tmp_path):
    """Names of users, numbers beyond 32 bits: counted, not refused."""
    odd = "1 0 -1 60 4 -1 -1 4 600 nan 1 ada 99999999999 1 -7 3\n"
    trace = read_swf(log(tmp_path, odd, line(submit=1)))
    assert told(trace) == [[-1, -1], [-1, 1], [-1, 1], [-1, 1], [3, 1]]
    assert trace.oddities == {"wait, user, group, queue, partition or memory no number or too large: unknown": 3}


def test_the_clock_of_the_header(tmp_path):
    """Local time at second 0."""
    assert read_swf(log(tmp_path, line())).clock_s == 0
    header = HEADER + "; UnixStartTime: 835823160\n; TimeZone: -18000\n; TimeZoneString: US/Eastern\n"
    assert read_swf(log(tmp_path, line(), header=header)).clock_s == 835823160 - 18000


@pytest.mark.parametrize(
    ("written", "meant"),
    [("60.00", 60), ("60.99", 60), ("+60", 60), ("6e1", 60), ("0000000000000000060", 60), ("123456789", 123456789)],
)
def test_numbers_may_be_written_in_other_ways(tmp_path, written, meant):
    """Rounded down."""
    trace = read_swf(log(tmp_path, line(), line(run=written, request=200000000)))
    assert trace.table.run.tolist() == [60, meant]


def test_large_submissions_are_exact(tmp_path):
    """Beyond 32 bits."""
    moments = [10**9 + 7, 123_456_789_012]
    assert read_swf(log(tmp_path, *(line(submit=t) for t in moments))).table.submit.tolist() == moments


NUMBERS = st.integers(1, 10**9)
BLANKS = st.sampled_from([" ", "  ", "\t", " \t ", "\x0c"])
ENDS = st.sampled_from(["\n", "\r\n", " \n", "\n\n", " ; a remark; 1 2\n", "\n; a line of its own\n", "\r"])


@given(
    st.lists(st.tuples(st.lists(NUMBERS, min_size=9, max_size=20), BLANKS, ENDS), min_size=1, max_size=12),
    st.sampled_from([16, 40, 100, 1 << 18]),
    st.booleans(),
)
def test_any_layout_is_read_as_if_line_by_line(tmp_path, rows, block_bytes, packed):
    """Blanks, line ends, remarks, lengths of lines, sizes of blocks: none changes what is read."""
    text = "".join(blank + blank.join(map(str, numbers)) + end for numbers, blank, end in rows)
    path = tmp_path / "any.swf"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swf, "_BLOCK_BYTES", block_bytes)
        trace = read_swf(path, cores=10**9)
    expected = sorted((numbers for numbers, _, _ in rows), key=lambda numbers: numbers[1])
    assert trace.job_ids.tolist() == [numbers[0] for numbers in expected]
    assert trace.table.submit.tolist() == [numbers[1] for numbers in expected]
    assert trace.table.run.tolist() == [numbers[3] for numbers in expected]
    assert trace.table.cores.tolist() == [numbers[7] for numbers in expected]
    assert trace.table.request.tolist() == [max(numbers[3], numbers[8]) for numbers in expected]
    assert trace.users.tolist() == [numbers[11] if len(numbers) > 11 else -1 for numbers in expected]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_broken_line_far_into_a_log_is_named(tmp_path, monkeypatch, packed, end):
    """In whatever block it stands."""
    monkeypatch.setattr(swf, "_BLOCK_BYTES", 300)
    lines = [line(submit=i).strip() for i in range(200)]
    lines[150] = lines[150].replace("600", "6-0")
    path = tmp_path / "log.swf"
    raw = ("; MaxProcs: 100\n\n" + "\n".join(lines)).replace("\n", end).encode()
    path.write_bytes(gzip.compress(raw) if packed else raw)
    with pytest.raises(TraceError, match="field 9 is '6-0'") as caught:
        read_swf(path)
    assert str(caught.value).startswith(f"{path}:153:")


def test_a_file_without_lines_is_refused_before_it_is_read_whole(tmp_path):
    """Some other file of many gigabytes should not fill the memory."""
    path = tmp_path / "image.swf"
    path.write_bytes(b"\0" * (4 << 20))
    with pytest.raises(TraceError, match="no log in the Standard Workload Format"):
        read_swf(path)


def test_reading_takes_little_memory(tmp_path):
    """About 160 bytes a job and one block, far less than copies of the text."""
    jobs = 60_000
    path = log(tmp_path, *(line(job=i, submit=i) for i in range(jobs)))
    read_swf(path)
    tracemalloc.start()
    trace = read_swf(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(trace.table) == jobs
    assert peak < 200 * jobs + 8 * swf._BLOCK_BYTES + 4_000_000


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
        (line().replace(" 60 ", " 1e300 "), "no valid number"),
        (line().replace(" 60 ", " inf "), "no valid number"),
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


JOBS = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(1, 10**7), st.integers(1, 10**7), st.integers(1, 512)),
    min_size=1,
    max_size=40,
)


@given(JOBS, st.sampled_from(["log.swf", "log.swf.gz"]), st.booleans(), st.randoms())
def test_what_is_written_is_read(tmp_path, jobs, name, keep, luck):
    """For any jobs."""
    table = JobTable(*(np.array(column) for column in zip(*jobs, strict=True)), keep_overruns=keep)
    columns = {
        key: [luck.randrange(-1, 10**6) for _ in jobs]
        for key in ("job_ids", "users", "groups", "queues", "partitions", "memory_kb")
    }
    write_swf(tmp_path / name, table, cores=512, notes=["Of chance."], unix_start_s=345600, **columns)
    trace = read_swf(tmp_path / name, exceed="keep" if keep else "raise")
    for key in ("submit", "run", "request", "cores"):
        assert getattr(trace.table, key).tolist() == getattr(table, key).tolist(), key
    for key, column in columns.items():
        assert getattr(trace, key).tolist() == column, key
    assert (trace.cores, trace.clock_s) == (512, 345600)


def jobs_of(count=3):
    return JobTable(np.arange(count), np.full(count, 60), np.full(count, 600), np.full(count, 4))


def test_a_written_log_is_valid(tmp_path):
    """18 fields a line, the header that the format asks for, notes on one line each."""
    path = tmp_path / "log.swf"
    write_swf(path, jobs_of(), cores=16, notes=["one", "two\nlines"])
    text = path.read_text().splitlines()
    assert text[:7] == [
        "; Version: 2.2",
        "; UnixStartTime: 0",
        "; MaxJobs: 3",
        "; MaxRecords: 3",
        "; MaxProcs: 16",
        "; Note: one",
        "; Note: two lines",
    ]
    assert text[7] == "1 0 -1 60 4 -1 -1 4 600 -1 1 -1 -1 -1 -1 -1 -1 -1"
    assert [len(row.split()) for row in text[7:]] == [18, 18, 18]


def test_the_same_jobs_give_the_same_bytes(tmp_path):
    """Compressed under any name, at any time."""
    for name in ("one.swf.gz", "other.swf.gz"):
        write_swf(tmp_path / name, jobs_of(), cores=16)
    assert (tmp_path / "one.swf.gz").read_bytes() == (tmp_path / "other.swf.gz").read_bytes()


@pytest.mark.parametrize(
    ("table", "changes", "message"),
    [
        (jobs_of(0), {}, "no job to write"),
        (jobs_of(), {"cores": 3}, "wider than the machine of 3"),
        (JobTable(*(np.array([n]) for n in (-1, 1, 1, 1))), {}, "before second 0"),
        (jobs_of(), {"users": [1, 2]}, r"users has the shape \(2,\) where there are 3 jobs"),
    ],
)
def test_what_would_not_be_read_back_is_not_written(tmp_path, table, changes, message):
    """Nothing is left behind."""
    with pytest.raises(InputError, match=message):
        write_swf(tmp_path / "log.swf", table, **{"cores": 16, **changes})
    assert list(tmp_path.iterdir()) == []


def test_a_log_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """What was there stays when the disk is full."""
    path = tmp_path / "log.swf"
    write_swf(path, jobs_of(), cores=16)
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(swf, "_write", full)
    with pytest.raises(InputError, match="No space left"):
        write_swf(path, jobs_of(5), cores=16)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before
    with pytest.raises(InputError, match="cannot be written"):
        write_swf(tmp_path / "none" / "log.swf", jobs_of(), cores=16)


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


def test_times_beyond_all_calendars_are_left_out_or_refused(tmp_path):
    """Milliseconds that were written as seconds, and so many long runs that the end is beyond the calendar."""
    ms = log(tmp_path, line(), line(submit=1_700_000_000_000))
    assert len(read_swf(ms).table) == 1
    assert "in milliseconds" in " ".join(read_swf(ms).oddities)
    with pytest.raises(TraceError, match="in milliseconds"):
        read_swf(log(tmp_path, line(submit=1_700_000_000_000)))
    with pytest.raises(TraceError, match="beyond second 274877906944\nAre its times in seconds"):
        read_swf(log(tmp_path, *[line(run=3 * 10**9, request=3 * 10**9)] * 200))


def test_links_and_pipes_stay_what_they_are(tmp_path):
    """Only a plain file is put in another's place."""
    table = JobTable(*(np.array([value]) for value in (0, 5, 5, 1)))
    real, link, pipe = (tmp_path / name for name in ("real.swf", "link.swf", "pipe"))
    real.write_text("old")
    link.symlink_to(real)
    write_swf(link, table, cores=4)
    assert link.is_symlink()
    assert len(read_swf(real).table) == 1
    os.mkfifo(pipe)
    reader = threading.Thread(target=pipe.read_bytes)
    reader.start()
    write_swf(pipe, table, cores=4)
    reader.join(timeout=10)
    assert pipe.is_fifo()


def test_a_machine_that_cannot_be_is_refused(tmp_path):
    """It is larger than any machine."""
    with pytest.raises(TraceError, match="machine of 99999999999999999999 processors"):
        read_swf(log(tmp_path, line(), header="; MaxProcs: 99999999999999999999\n"))


def test_waits_are_told_in_the_order_of_the_table(tmp_path):
    """Unknown below 0, and where no number can be read."""
    rows = [line(submit=9, wait=70), line(submit=2, wait=0), line(submit=3, wait=5, run=0), line(submit=4, wait=-7)]
    trace = read_swf(log(tmp_path, *rows, line(submit=5, wait="nan"), line(submit=6, wait=3 * 10**9)))
    assert trace.wait_s.tolist() == [0, -1, -1, -1, 70]
    assert trace.oddities["wait, user, group, queue, partition or memory no number or too large: unknown"] == 2


def slowly(path):
    """Read a log line by line: its machine, when it began, and fields 1 to 18 as numbers."""
    rows, cores, begins = [], 0, 0
    with gzip.open(path, "rt") as stream:
        for text in stream:
            if text.startswith(("; MaxProcs:", ";MaxProcs:")) or (not cores and text.startswith("; MaxNodes:")):
                cores = int(text.split(":")[1].split()[0])
            if text.replace(" ", "").startswith(";UnixStartTime:"):
                begins = int(text.split(":")[1].split()[0])
            fields = text.split(";")[0].split()
            if fields:
                rows.append([int(float(number) // 1) for number in fields] + [-1] * (18 - len(fields)))
    return rows, cores, begins if min(row[1] for row in rows) < 1e8 else 0


def width(row):
    return row[7] if row[7] > 0 else row[4]


REAL = [
    "HPC2N-2002-2.2-cln",
    "KTH-SP2-1996-2-unfiltered",
    "CTC-SP2-1996-3.1-cln",
    "theta_2022",
    "DOST-ASTI_COARE-Saliksik-2020-cln",
]


@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_waits_of_real_logs_are_those_of_a_plain_reader(data, name):
    """For replay and for learning, whose rules differ."""
    path = data / "swf" / f"{name}.swf.gz"
    rows, cores, begins = slowly(path)
    rows.sort(key=lambda row: row[1])
    trace = read_swf(path)
    assert trace.wait_s.tolist() == [row[2] for row in rows if row[3] > 0 and 0 < width(row) <= cores]
    history = read_history(path)
    kept = [row for row in rows if row[2] >= 0 and width(row) > 0]
    assert history.submit_s.tolist() == [row[1] + begins for row in kept]
    assert 8e8 < history.submit_s[0] < 2e9, "in this age"
    assert history.wait_s.tolist() == [row[2] for row in kept]
    assert history.cores.tolist() == [width(row) for row in kept]
    assert history.walltime_s.tolist() == [row[8] if row[8] > 0 else 86_400 for row in kept]
    assert history.started.all()
    assert history.machine_cores == cores
    users = [f"u{row[11]}" if row[11] >= 0 else None for row in kept]
    assert [history.users[place] if place >= 0 else None for place in history.user.tolist()] == users


@pytest.mark.data
def test_a_real_log_without_waits_is_no_history(data):
    """It was made for schedulers."""
    with pytest.raises(TraceError, match=r"no job whose wait is known \(10000 left out: wait unknown\)"):
        read_history(data / "swf" / "lublin_256.swf.gz")


UNKNOWN = "wait, status, user, queue or partition no number or too large: unknown"


@pytest.mark.parametrize(
    ("odd", "words", "left"),
    [
        ({"wait": -1}, "left out: wait unknown", 1),
        ({"status": 2}, "left out: part of a job that another line tells whole", 1),
        ({"status": 4}, "left out: part of a job that another line tells whole", 1),
        ({"used": -1, "asked": 0}, "left out: width 0 or unknown", 1),
        ({"request": -1, "run": -1}, "no requested time: a day taken", 2),
        ({"submit": -3}, "left out: submitted before second 0", 1),
        ({"request": -1}, "no requested time: a day taken", 2),
        ({"status": 5, "run": 0}, "cancelled before it started: waited at least so long", 2),
        ({"status": 5, "run": -1}, "cancelled before it started: waited at least so long", 2),
        ({"asked": 101}, "wider than the machine: kept", 2),
        ({"user": "ada"}, UNKNOWN, 2),
        ({"run": 700}, None, 2),
        ({"run": 0, "status": 0}, None, 2),
        ({"run": -1}, None, 2),
        ({"status": 5}, None, 2),
        ({"asked": -1}, None, 2),
    ],
)
def test_each_oddity_has_its_rule_for_learning(tmp_path, odd, words, left):
    """Beside a good job, which stays; what is no oddity for waits is not counted."""
    history = read_history(log(tmp_path, line(**{"wait": 5} | odd), line(submit=9, wait=7)))
    assert history.oddities == ({words: 1} if words else {})
    assert history.wait_s.tolist() == [5, 7][2 - left :]


def test_the_rules_for_learning_change_what_they_say(tmp_path):
    """What started, what it asked for, how long it ran."""
    rows = [
        line(wait=1, status=0, run=0),
        line(wait=2, status=5, run=0),
        line(wait=3, status=5, run=30),
        line(wait=4, run=-1),
        line(wait=5, asked=-1, request=-1, used=6),
        line(wait=6, run=700),
    ]
    history = read_history(log(tmp_path, *rows))
    assert history.wait_s.tolist() == [1, 2, 3, 4, 5, 6]
    assert history.started.tolist() == [True, False, True, True, True, True]
    assert history.run_s.tolist() == [0, -1, 30, -1, 60, 700]
    assert history.walltime_s.tolist() == [600, 600, 600, 600, 86_400, 600]
    assert history.cores.tolist() == [4, 4, 4, 4, 6, 4]
    assert history.machine_cores == 100


def test_users_and_partitions_get_names(tmp_path):
    """A queue stands for a partition that is not noted; what is unknown has no name."""
    rows = [(7, 1, 3), (0, 3, -1), (-1, -1, -1), (7, 3, 0)]
    history = read_history(log(tmp_path, *(line(wait=0, user=u, queue=q, part=p) for u, q, p in rows)))
    assert [history.users[place] if place >= 0 else "" for place in history.user] == ["u7", "u0", "", "u7"]
    assert [history.partitions[place] if place >= 0 else "" for place in history.partition] == ["p3", "q3", "", "p0"]
    short = read_history(log(tmp_path, "1 0 30 60 4 -1 -1 4 600\n", header=""))
    assert (short.user.tolist(), short.users, short.partitions, short.machine_cores) == ([-1], [], [], 0)


SMALL = st.integers(-1, 6)


@given(
    st.lists(st.tuples(SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, SMALL), min_size=1, max_size=30)
)
def test_any_log_is_learned_from_as_a_plain_reader_would(tmp_path, rows):
    """Sorted by submission, ties as in the file; every line is kept or counted once as left out."""
    names = ("submit", "wait", "run", "used", "asked", "request", "status", "user", "queue", "part")
    jobs = [dict(zip(names, row, strict=True)) for row in rows]
    expected = []
    for job in sorted(jobs, key=lambda job: job["submit"]):
        cores = job["asked"] if job["asked"] > 0 else job["used"]
        limit = job["request"] if job["request"] > 0 else 86_400
        if min(job["submit"], job["wait"]) >= 0 and cores > 0 and job["status"] not in {2, 3, 4}:
            started = job["run"] > 0 or job["status"] != 5
            part = f"p{job['part']}" if job["part"] >= 0 else f"q{job['queue']}" if job["queue"] >= 0 else ""
            user = f"u{job['user']}" if job["user"] >= 0 else ""
            expected.append(
                (job["submit"], job["wait"], cores, limit, started, job["run"] if started else -1, user, part)
            )
    path = log(tmp_path, *(line(**job) for job in jobs))
    if not expected:
        with pytest.raises(TraceError, match="no job whose wait is known"):
            read_history(path)
        return
    history = read_history(path)
    columns = (history.submit_s, history.wait_s, history.cores, history.walltime_s, history.started, history.run_s)
    users = [history.users[place] if place >= 0 else "" for place in history.user]
    parts = [history.partitions[place] if place >= 0 else "" for place in history.partition]
    assert list(zip(*(column.tolist() for column in columns), users, parts, strict=True)) == expected
    left_out = sum(count for words, count in history.oddities.items() if words.startswith("left out"))
    assert left_out + len(expected) == len(jobs)


@pytest.mark.parametrize("packed", [False, True])
def test_a_history_is_read_from_blocks_of_any_size(tmp_path, monkeypatch, packed):
    """Also if the header alone fills the first."""
    monkeypatch.setattr(swf, "_BLOCK_BYTES", 64)
    text = HEADER + ";" * 300 + "\n" + "".join(line(submit=i, wait=i * i) for i in range(50))
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert read_history(path).wait_s.tolist() == [i * i for i in range(50)]


@pytest.mark.parametrize(
    "other",
    [
        "",
        "\n",
        "; a remark\n",
        "1 2 3\n4 5 6\n",
        "JobID|State\n1|COMPLETED\n",
        "a b c d e f g h i j\n",
        "1 b c d e f g h i j\n",
        "1 2 3 4 5 6 7 8 nan\n",
        "\0" * 300_000,
    ],
)
def test_files_of_other_kinds_are_left_to_other_readers(tmp_path, other):
    """Whatever they are called."""
    assert read_history(log(tmp_path, other, header="")) is None


def test_a_log_that_is_broken_is_refused_for_learning_too(tmp_path):
    """A line, named; a log of remarks only; a torn one. An id that is no number is no matter: none is learned."""
    path = log(tmp_path, line(wait=1), line(wait=2).replace("600", "ten"))
    with pytest.raises(TraceError, match="field 9 is 'ten'") as caught:
        read_history(path)
    assert caught.value.where == f"{path}:4"
    with pytest.raises(TraceError, match="field 9 is 'ten'"):
        read_history(log(tmp_path, line().replace("600", "ten")))
    with pytest.raises(TraceError, match="no jobs"):
        read_history(log(tmp_path))
    torn = tmp_path / "torn.swf.gz"
    torn.write_bytes(gzip.compress("".join(line(job=i, wait=i) for i in range(20_000)).encode())[:9000])
    with pytest.raises(TraceError, match="cut off"):
        read_history(torn)
    assert len(read_history(log(tmp_path, line(job="a-7", wait=1)))) == 1


def test_a_log_begins_when_its_header_says(tmp_path):
    """So the ages of its waits, and local hours of the day, are known."""
    header = "; MaxProcs: 100\n; UnixStartTime: 1000000000\n"
    assert read_history(log(tmp_path, line(submit=7, wait=1), header=header)).submit_s.tolist() == [1_000_000_007]
    late = log(tmp_path, line(submit=1_600_000_000, wait=1), header=header)
    assert read_history(late).submit_s.tolist() == [1_600_000_000], "its clock is that of 1970 already"
    assert read_history(late).system == late.name.removesuffix(".swf")


def test_what_came_later_in_a_log_does_not_change_what_was_asked_before(tmp_path):
    """The request of a job without one depends neither on its run time nor on later requests."""
    one = read_history(log(tmp_path, line(wait=1, request=-1, run=50), line(submit=9, wait=1, request=60)))
    other = read_history(log(tmp_path, line(wait=1, request=-1, run=5000), line(submit=9, wait=1, request=6000)))
    assert one.walltime_s[0] == other.walltime_s[0]
