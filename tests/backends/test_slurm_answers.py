"""Slurm's answers to submissions: one table for both links, checked row by row, and against Slurm's own lists."""

import csv
from itertools import pairwise
from pathlib import Path

import pytest
from asa.backends.slurm.answers import Meaning, row_of, rows
from asa.backends.slurm.commands import Done
from asa.backends.slurm.commands.refusals import has_no_accounting, is_unknown_job, refused, submission
from asa.backends.slurm.refusals import meaning_of
from asa.backends.slurm.rest.exchange import RestAnswer
from asa.backends.slurm.rest.refusals import complaints, in_plain_text, submit_refusal

from asa.errors import (
    JobNotFoundError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
    UnavailableError,
)

NUMBERED = [row for row in rows() if row.number is not None]
IN_WORDS = [row for row in rows() if row.number is None]
FAILED = "sbatch: error: Batch job submission failed: "
ERRORS = {
    Meaning.NEVER: SubmitRejectedError,
    Meaning.LIMIT: SubmitDeferredError,  # where Slurm does not name the limit
    Meaning.LATER: SubmitDeferredError,
    Meaning.AWAY: UnavailableError,
    Meaning.DOUBT: SubmitInDoubtError,
    Meaning.UNKNOWN: SubmitInDoubtError,
}


def published():
    """Return what `slurm_errno.h` has: number, name, first and last release, and of what it is."""
    path = Path(__file__).parents[1] / "data" / "slurm_errno.csv"
    with path.open() as file:
        return [(int(row.pop("number")), *row.values()) for row in csv.DictReader(file)]


def said(text, returncode=1):
    return submission("job", Done(returncode, "", text))


@pytest.mark.parametrize("row", NUMBERED, ids=lambda row: f"{row.number}-{row.source}")
def test_each_number_means_the_same_by_both_links(row):
    assert type(said(f"{FAILED}{row.words}\n")) is ERRORS[row.meaning]
    by_rest = submit_refusal(500, complaints({"errors": [{"error_number": row.number, "error": row.words}]}))
    assert type(by_rest) is ERRORS[row.meaning]


@pytest.mark.parametrize("row", NUMBERED, ids=lambda row: f"{row.number}-{row.source}")
def test_a_number_is_found_by_itself_too(row):
    assert row_of(row.number, "").number == row.number
    assert row_of(row.number, row.words) == row == row_of(None, f"sbatch: error: {row.words}")


@pytest.mark.parametrize("row", IN_WORDS, ids=lambda row: row.words)
def test_each_of_the_words(row):
    text = row.words.replace("*", "x")
    line = (
        text
        if row.source.startswith(("glibc", "OpenSSH", "dash", "bash", "timeout", "pam", "errno", "libc", "asa"))
        else (f"sbatch: error: {text}")
    )
    error = said(f"{line}\n", 255)
    assert isinstance(error, ERRORS[row.meaning]), error
    assert not error.is_unexplained


def test_no_row_says_what_another_says():
    keys = [(row.number, row.words) for row in rows()]
    assert len(set(keys)) == len(keys)
    assert len({row.words for row in rows()}) == len(keys)
    assert all(row.source and len(row.words) > 8 for row in rows())


def test_rows_of_a_number_tell_their_releases():
    by_number = {}
    for row in NUMBERED:
        by_number.setdefault(row.number, []).append(tuple(row.source.split("-")))
    for number, spans in by_number.items():
        for (_, until), (since, _) in pairwise(spans):
            assert until < since, number


def test_every_published_number_that_concerns_submissions_has_a_row():
    known = {row.number for row in NUMBERED}
    lacking = [one for one in published() if one[4] == "submission" and one[0] not in known]
    assert not lacking
    assert {row.number for row in NUMBERED} <= {one[0] for one in published()}
    others = {one[0] for one in published() if one[4] != "submission"}
    assert not others & known - {number for number, _, _, _, of in published() if of == "submission"}


# what real commands of 22.05 and 26.05 said, made to fail; each stands by itself between empty lines
PASSING = f"""
sbatch: s_p_parse_file: file "/etc/slurm/slurm.conf" is empty
sbatch: error: ClusterName needs to be specified
sbatch: fatal: Unable to process configuration file

sbatch: error: s_p_parse_file: unable to read "/etc/slurm/slurm.conf": Permission denied

sbatch: error: _parse_next_key: Parsing error at unrecognized key: Nonsense
sbatch: fatal: Unable to process configuration file

sbatch: error: PluginDir: /nowhere: No such file or directory
sbatch: fatal: Unable to process configuration file

sbatch: fatal: Can't find plugin for select/cons_tres

sbatch: error: cannot create auth context for auth/munge
sbatch: fatal: failed to initialize auth plugin

sbatch: error: cannot create cli_filter context for cli_filter/lua
sbatch: error: cli_filter plugin terminated with error

sbatch: error while loading shared libraries: libslurmfull.so: cannot open shared object file: Error 24

sbatch: error: slurm_buffers_pack_msg: auth_g_create: REQUEST_SUBMIT_BATCH_JOB has authentication error
{FAILED}Protocol authentication error

sbatch: error: fetch_config: DNS SRV lookup failed
sbatch: error: _establish_config_source: failed to fetch config
sbatch: fatal: Could not establish a configuration source

sbatch: error: _xgetaddrinfo: getaddrinfo() failed: Name or service not known
{FAILED}Unable to contact slurm controller (connect failure)

sh: 1: Cannot fork
sbatch: error: Batch script is empty!

kex_exchange_identification: Connection closed by remote host

{FAILED}Rate limit exceeded, please retry later
""".strip().split("\n\n")


@pytest.mark.parametrize("text", PASSING, ids=lambda text: text.splitlines()[-1])
def test_what_passes_is_no_refusal(text):
    error = said(f"{text}\n")
    assert isinstance(error, UnavailableError)
    assert not error.is_unexplained


def test_words_that_nobody_knows_are_not_taken_for_a_refusal():
    error = said("sbatch: error: the moon is in the wrong quarter\n")
    assert isinstance(error, UnavailableError)
    assert error.is_unexplained
    assert "the moon" in error.message


def test_an_answer_that_nobody_knows_is_in_doubt():
    error = said(f"{FAILED}The moon is in the wrong quarter\n")
    assert isinstance(error, SubmitInDoubtError)
    assert error.is_unexplained
    by_rest = submit_refusal(500, complaints({"errors": [{"error_number": 2999, "error": "The moon"}]}))
    assert isinstance(by_rest, SubmitInDoubtError)
    assert by_rest.is_unexplained


def test_the_answer_of_a_gateway_is_in_doubt_and_no_answer_of_slurm():
    for status in (500, 502, 503, 504):
        error = submit_refusal(status, [])
        assert isinstance(error, SubmitInDoubtError)
        assert not error.is_unexplained


@pytest.mark.parametrize(
    ("status", "kind", "body", "error"),
    [
        (400, "text/plain", "Failure during parsing", SubmitRejectedError),
        (415, "text/plain", "MIME type is unknown to any loaded plugins", SubmitRejectedError),
        (400, "text/html", "<html>Failure during parsing</html>", UnavailableError),
        (413, "text/html", "<html>Too large</html>", UnavailableError),
        (404, "text/plain", "Unable to find requested URL endpoint. Please query", UnavailableError),
        (502, "text/plain", "Bad gateway", SubmitInDoubtError),
        (504, "text/html", "<html>Timeout</html>", SubmitInDoubtError),
        (200, "text/plain", "hello", SubmitInDoubtError),
    ],
)
def test_slurmrestd_says_some_things_in_plain_text(status, kind, body, error):
    answer = RestAnswer(status, body.encode(), kind)
    made = submit_refusal(answer.status, complaints(answer.document()) or in_plain_text(answer))
    assert type(made) is error
    assert status < 500 or not made.is_unexplained


def test_what_a_number_meant_before_goes_by_its_words():
    assert meaning_of(2040, "Current SwitchType does not permit arbitrary task distribution") is Meaning.NEVER
    assert meaning_of(2040, "Licenses currently unavailable") is Meaning.LATER
    assert meaning_of(2040, "") is Meaning.LATER


@pytest.mark.parametrize("program", ["squeue", "scancel", "scontrol", "sacct"])
@pytest.mark.parametrize(
    "text",
    [
        '{0}: s_p_parse_file: file "slurm.conf" is empty\n{0}: fatal: Unable to process configuration file\n',
        "{0}: error while loading shared libraries: libslurmfull.so: file too short\n",
        "{0}: error: Munge encode failed: Failed to access\nslurm_load_jobs error: Protocol authentication error\n",
        "{0}: fatal: Can't find plugin for select/cons_tres\n",
    ],
)
def test_an_error_of_a_question_says_nothing_of_the_job(program, text):
    done = Done(1, "", text.format(program))
    assert not is_unknown_job(done)
    assert not has_no_accounting(done)
    error = refused(program, "7", done)
    assert isinstance(error, UnavailableError)
    assert not isinstance(error, JobNotFoundError)


@pytest.mark.parametrize(
    ("number", "words", "meaning"),
    [
        (2074, "Requested account has breached requested QOS usage threshold", Meaning.LATER),
        (2056, "Requested reservation not usable now", Meaning.LATER),
        (2003, "User's group not permitted to use this partition", Meaning.UNKNOWN),
        (2010, "Invalid user id", Meaning.UNKNOWN),
        (2113, "Invalid group id", Meaning.UNKNOWN),
        (2163, "Invalid group ID", Meaning.UNKNOWN),
        (2165, "Invalid user ID", Meaning.UNKNOWN),
    ],
)
def test_what_passes_as_usage_decays_or_ldap_comes_back_refuses_no_request(number, words, meaning):
    assert meaning_of(number, words) is meaning
    assert meaning_of(None, f"sbatch: error: Batch job submission failed: {words}") is meaning
    done = Done(1, "", f"sbatch: error: Batch job submission failed: {words}\n")
    assert not isinstance(submission("job 'a'", done), SubmitRejectedError)
