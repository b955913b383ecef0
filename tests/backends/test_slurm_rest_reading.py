"""Answers of every version are read into one vocabulary, and nothing in them makes a reader fall."""

import json
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from asa.backends.slurm.accounting import read_history
from asa.backends.slurm.rest import reading, scan
from asa.backends.slurm.rest.history import as_sacct
from asa.backends.slurm.rest.refusals import complaints, refusal, submit_refusal
from asa.backends.slurm.rest.scan import decoded, find
from hypothesis import given
from hypothesis import strategies as st

SAMPLES = json.loads((Path(__file__).parents[1] / "data/slurm/rest-samples.json").read_text())
VERSIONS = tuple(SAMPLES)
KEYS = sorted({
    key
    for version in VERSIONS
    for name, entries in (("job_running", "jobs"), ("slurmdb_jobs_since_uts", "jobs"), ("partitions", "partitions"))
    for key in SAMPLES[version][name][1][entries][0]
} | {"errors", "state"})  # fmt: skip


def body(version, name):
    return SAMPLES[version][name][1]


def job(version, name):
    return reading.record(body(version, name)["jobs"][0])


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("2-4"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["set", "infinite", "number"]), inner),
    max_leaves=5,
)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_running_job(version):
    for name in SAMPLES[version]:
        if name.startswith("job_running"):
            record = job(version, name)
            assert record.states[0] == "RUNNING"
            assert record.start_s >= record.eligible_s >= record.submit_s > 1.7e9
            assert (record.end_s, record.exit_code, record.expected_start_s, record.reason) == (None, None, None, "")
            assert record.limit_s % 60 == 0 < record.limit_s


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_that_waits_for_another(version):
    record = job(version, "job_pending_dep")
    assert (record.states, record.reason, record.dependency) == (("PENDING",), "Dependency", "afterok:1(unfulfilled)")
    assert (record.eligible_s, record.start_s, record.end_s, record.expected_start_s) == (None, None, None, None)
    assert (record.user, record.partition, record.limit_s, record.cores) == ("user", "normal", 300, 1)


def test_how_a_job_ended():
    assert job("22.05", "job_fail_fail").exit_code == 3
    cancelled = job("22.05", "job_cancelled")
    assert (cancelled.exit_code, cancelled.signal, cancelled.states) == (None, 15, ("CANCELLED",))
    newer = job("24.11", "job_cancelled")
    assert (newer.exit_code, newer.states) == (None, ("CANCELLED", "COMPLETING"))
    assert newer.end_s - newer.start_s == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_and_nodes(version):
    normal, debug = (reading.partition(told) for told in body(version, "partitions")["partitions"])
    assert (normal.name, normal.is_up, normal.nodes, normal.cores) == ("normal", True, 4, 112)
    assert (normal.max_walltime_s, normal.max_nodes) == (7 * 86400, None)
    assert (debug.max_walltime_s, debug.is_default) == (1800, False)
    assert normal.is_default == (version == "22.05")
    node = reading.node(body(version, "nodes")["nodes"][0])
    assert (node.cores, node.memory_bytes, node.states) == (28, 64000 * 1024**2, ("IDLE",))
    assert node.partitions == ("normal", "debug")


@pytest.mark.parametrize(
    ("word", "jobs", "is_exclusive"),
    [(None, 0, True), (None, 1, False), ("NODE", 0, True), ("NO", 0, False), ("USER", 0, False)],
)
def test_whether_jobs_share_nodes(word, jobs, is_exclusive):
    """v0.0.45 says of every partition that no jobs may share a node, and has a word beside it."""
    told = {"name": "p", "maximums": {"oversubscribe": {"jobs": jobs, "flags": []}}}
    told |= {"partition": {"state": ["UP"]} | ({"exclusive": word} if word else {})}
    assert reading.partition(told).is_exclusive is is_exclusive


@pytest.mark.parametrize("version", VERSIONS)
def test_accounting_becomes_a_history(version, tmp_path):
    jobs = body(version, "slurmdb_jobs_since_uts")["jobs"]
    file = tmp_path / "jobs.txt"
    file.write_text(as_sacct([*jobs, jobs[0]]))
    history = read_history(file)
    assert (len(history), history.system) == (3, "testbed")
    assert "left out: in a reservation" not in history.oddities
    records = {record.name: record for record in map(reading.accounted, jobs)}
    dependent, failed = records["B_afterok"], records["h2"]
    assert dependent.start_s - dependent.eligible_s in history.wait_s.tolist()
    assert (dependent.exit_code, dependent.reason, failed.states) == (0, "", ("FAILED",))
    assert failed.exit_code == (7 if version == "24.11" else None)


def test_times_and_widths_that_are_not_known_are_no_numbers_in_a_history(tmp_path):
    never = {"job_id": 4, "state": {"current": "CANCELLED"}, "time": {"submission": 100, "end": 200}, "nodes": None}
    endless = {"job_id": 5, "state": {"current": ["RUNNING"]}, "time": {"submission": 5, "limit": {"infinite": True}}}
    element = {"job_id": 6, "array": {"job_id": 5, "task_id": {"set": True, "number": 3}}, "user": "a|b"}
    lines = as_sacct([never, endless, element, {"job_id": None}]).splitlines()[1:]
    assert lines[0] == "|4|||100|Unknown|Unknown|200|CANCELLED|Partition_Limit|1||"
    assert lines[1].split("|")[9] == "UNLIMITED"
    assert lines[2].startswith("|5_3|a?b|")
    assert len(lines) == 3


@given(st.dictionaries(st.sampled_from(KEYS), anything))
def test_no_job_makes_the_reader_fall(told):
    record = reading.record(told | {"job_id": 5})
    assert record.job_id == "5"
    assert all(state == state.upper() for state in record.states)
    assert record.cores >= 1
    reading.accounted(told | {"job_id": 5})
    reading.partition(told)
    reading.node(told)
    as_sacct([told | {"job_id": 5}])
    complaints(told)


def test_what_accounting_does_not_fully_know_yet_is_not_told():
    half = {"job_id": 9, "name": "allocation", "partition": None, "state": {"current": "COMPLETED"}}
    assert reading.accounted(half) is None
    assert reading.accounted(half | {"partition": "normal"}).name == "allocation"
    assert reading.accounted(half | {"name": "mine"}).name == "mine"
    assert as_sacct([half]).count("\n") == 1


def test_an_unknown_state_is_passed_on():
    record = reading.record({"job_id": 1, "job_state": ["frobbed", "RUNNING"], "nodes": "n1", "start_time": 5})
    assert (record.states, record.start_s) == (("RUNNING", "FROBBED"), 5)
    alone = reading.record({"job_id": 1, "job_state": "frobbed", "start_time": 5, "end_time": 9})
    assert (alone.states, alone.start_s, alone.end_s) == (("PENDING", "FROBBED"), None, None)


def listing(version, jobs, **kinds):
    document = {"jobs": jobs, "errors": []} if version == "24.11" else {"errors": [], "jobs": jobs}
    return json.dumps(document, **kinds).encode()


names = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['"job_id": 3,', "{", '{"job_id": 2}', "}"]
)
jobs_of_a_listing = st.lists(
    st.fixed_dictionaries(
        {
            "comment": names,
            "accrue_time": st.fixed_dictionaries({"set": st.booleans(), "number": st.integers(0, 9)}),
            "job_id": st.integers(1, 12),
            "job_resources": st.fixed_dictionaries(
                {"nodes": st.lists(st.fixed_dictionaries({"name": names}), max_size=3)}
            ),
            "job_state": st.just(["RUNNING"]),
            "name": names | st.sampled_from(["own", "ow"]),
        }
    ),
    max_size=8,
).map(lambda jobs: [{"account": "a"} | job for job in jobs])  # jobs begin alike, and nothing in them does so


def taken(raw, key, values, piece=1 << 16):
    """Return the jobs with one of some values from a listing that arrives in pieces, and the rest of the answer."""

    def read(entries):
        found = find(entries, key, values)
        return [job for job in decoded(entries) if job[key] in values] if found is None else found

    taking = scan.Listing("jobs", read)
    for at in range(0, len(raw), piece):
        taking.feed(raw[at : at + piece])
    return taking.found, taking.rest()


@given(
    jobs_of_a_listing,
    st.sets(st.integers(1, 12), min_size=1, max_size=4),
    st.sampled_from([None, 2]),
    st.booleans(),
    st.integers(1, 500),
    st.sampled_from([20, 300, 1 << 20]),
)
def test_jobs_are_found_in_the_bytes_as_by_decoding_all(jobs, wanted, indent, is_ascii, piece, part):
    raw = listing("24.11", jobs, indent=indent, ensure_ascii=is_ascii)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "_PART_BYTES", part)
        by_number, rest = taken(raw, "job_id", wanted, piece)
        assert by_number == [told for told in jobs if told["job_id"] in wanted]
        assert json.loads(rest) == {"jobs": [], "errors": []}
        assert taken(raw, "name", {"own"}, piece)[0] == [told for told in jobs if told["name"] == "own"]


def test_what_is_not_as_expected_is_left_to_a_decoder_of_all():
    told = {"job_id": 7, "job_state": "RUNNING"}
    entry = json.dumps(told).encode()
    assert find(entry, "job_id", [7]) == [told]
    assert find(entry, "job_id", [8]) == []
    assert find(json.dumps({"job_id": {"number": 7}, "job_state": ""}).encode(), "job_id", [7]) is None, "another shape"
    assert find(json.dumps({"job_id": 7}).encode(), "job_id", [7]) is None, "no job"
    assert find(entry, "name", ["a/b"]) is None, "written in more than one way"


def test_a_listing_that_is_none_or_not_whole_is_given_as_it_is():
    whole = listing("24.11", [{"job_id": number, "job_state": "RUNNING"} for number in range(9)])
    for raw in (b"", b"no JSON", b'{"errors": ["no"]}', b"[]", whole[:-1], whole[:-25], whole[:40], whole[:9]):
        rest = taken(raw, "job_id", {1})[1]
        assert rest == raw or raw.startswith(rest[:9])
        with pytest.raises(ValueError) if raw != b'{"errors": ["no"]}' else nullcontext():
            scan.parse(rest)
    assert json.loads(taken(whole.replace(b"[]", b'["no"]'), "job_id", {1})[1]) == {"jobs": [], "errors": ["no"]}


def test_a_cut_within_a_job_is_noticed(monkeypatch):
    """A job that holds objects which begin as jobs do."""
    monkeypatch.setattr(scan, "_PART_BYTES", 40)
    jobs = [{"job_id": n, "in": [{"job_id": 5}, {"job_id": 6}] * 9, "job_state": "RUNNING"} for n in range(20)]
    for indent in (None, 1):
        raw = listing("24.11", jobs, indent=indent)
        assert taken(raw, "job_id", {5, 7}, 33)[0] == [jobs[5], jobs[7]]
        taking = scan.Listing("jobs", decoded)
        for at in range(0, len(raw), 33):
            taking.feed(raw[at : at + 33])
        assert json.loads(taking.rest()) == {"jobs": [], "errors": []}
        assert taking.found == jobs


@pytest.mark.parametrize("version", VERSIONS)
def test_a_handful_of_two_thousand_jobs_costs_a_fraction_of_decoding_all(version):
    told = body(version, "job_running")["jobs"][0] | {"job_resources": [{"core": "n"}] * 100 * (version == "24.11")}
    raw = listing(version, [told | {"job_id": number} for number in range(1, 2001)], indent=1)
    wanted = [5, 700, 1400, 2000]

    def min_s(work):
        times = []
        for _ in range(5):
            begin = time.process_time()
            work()
            times.append(time.process_time() - begin)
        return min(times)

    assert [found["job_id"] for found in taken(raw, "job_id", wanted)[0]] == wanted
    assert min_s(lambda: taken(raw, "job_id", wanted)) < 0.5 * min_s(lambda: json.loads(raw))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("variant_bad_partition", "SubmitRejectedError", "Invalid partition name"),
        ("ctld_down_submit", "UnavailableError", "Unable to contact slurm controller"),
    ],
)
def test_refusals_are_told_in_slurms_words(version, name, kind, words):
    status, answer = SAMPLES[version][name]
    error = submit_refusal(status, complaints(answer))
    assert type(error).__name__ == kind
    assert words in error.message


@pytest.mark.parametrize("number", [2007, 2019, 2050, 2101, 2105])
def test_limits_that_pass_defer_a_submission(number):
    assert type(submit_refusal(500, complaints({"errors": [{"error_number": number}]}))).__name__ == (
        "SubmitDeferredError"
    )


@pytest.mark.parametrize(
    ("status", "numbers", "kind"),
    [
        (500, [2017], "JobNotFoundError"),
        (404, [2017], "JobNotFoundError"),
        (500, [2002], "BackendError"),
        (200, [-1, -1, 9001], "BackendError"),
        (500, [1007], "AccessError"),
        (500, [-1], "UnavailableError"),
        (502, [1800], "UnavailableError"),
        (503, [], "UnavailableError"),
        (500, [None], "UnavailableError"),
        (422, [], "BackendError"),
    ],
)
def test_what_other_answers_mean(status, numbers, kind):
    found = complaints({"errors": [{"error_number": number, "error": "words"} for number in numbers]})
    assert type(refusal(status, found, "it failed")).__name__ == kind


@pytest.mark.parametrize(
    ("status", "numbers", "kind"),
    [
        (500, [5004], "SubmitInDoubtError"),
        (500, [-1], "SubmitInDoubtError"),
        (500, [2090], "SubmitInDoubtError"),
        (500, [], "SubmitInDoubtError"),
        (502, [], "SubmitInDoubtError"),
        (503, [], "SubmitInDoubtError"),
        (504, [], "SubmitInDoubtError"),
        (200, [], "SubmitInDoubtError"),
        (500, [1801], "SubmitInDoubtError"),
        (400, [], "UnavailableError"),  # who says so is not known
        (413, [], "UnavailableError"),
        (422, [9000], "SubmitRejectedError"),
        (500, [2999], "SubmitInDoubtError"),
        (500, [9004], "UnavailableError"),  # Slurm cannot look the user up now
        (500, [9202], "SubmitRejectedError"),
        (429, [], "SubmitDeferredError"),
        (500, [1007], "SubmitInDoubtError"),
        (500, [1800], "UnavailableError"),
        (500, [2027], "UnavailableError"),
    ],
)
def test_what_the_answer_to_a_submission_means(status, numbers, kind):
    found = complaints({"errors": [{"error_code": number} for number in numbers]})
    assert type(submit_refusal(status, found)).__name__ == kind


def test_a_sites_own_words_to_the_user_are_passed_on():
    error = submit_refusal(500, complaints({"errors": [{"error_number": 2002}]}), "Use the account of your project.")
    assert "Use the account of your project." in error.message
