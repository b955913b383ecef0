"""Requests to slurmrestd: which are sent, how often, and the meaning of each kind of failure."""

import base64
import gc
import json
import logging
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from asa.backends.slurm.link import IdentifiedJob, SlurmJob
from asa.backends.slurm.rest import RestLink, TokenSource
from asa.backends.slurm.rest.memory import RecordMemory
from slurm_fake_link import cancel, own

from asa.errors import (
    AccessError,
    AsaError,
    BackendError,
    InputError,
    JobNotFoundError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
    UnavailableError,
)

SAMPLES = json.loads((Path(__file__).parents[1] / "data/slurm/rest-samples.json").read_text())
PING = {"meta": {"slurm": {"release": "24.11.5", "cluster": "testbed"}}, "pings": [{"pinged": "UP"}], "errors": []}
JOB = SlurmJob("n", "#!/bin/sh\n", "/f", cores=1, walltime_s=60, stdout="/o", stderr="/e")
NOT_FOUND = "Unable find requested URL. Please view /openapi/v3 for API reference."


class Desk(httpx.BaseTransport):
    """Answers requests from a table: of "METHOD /path" an answer, or a function of the request that gives one."""

    def __init__(self, *versions, **more):
        self.asked = []
        self.table = {f"GET /slurm/{version}/ping": (200, PING) for version in versions}
        self.table |= more.get("table", {})

    def handle_request(self, request):
        self.asked.append(request)
        answer = self.table.get(f"{request.method} {request.url.path}", (404, NOT_FOUND))
        answer = answer(request) if callable(answer) else answer
        if isinstance(answer, httpx.Response):
            return answer
        status, body = answer
        return httpx.Response(status, text=body) if isinstance(body, str) else httpx.Response(status, json=body)

    @property
    def paths(self):
        return [f"{request.method} {request.url.path}" for request in self.asked]


def link(desk, **options):
    return RestLink("https://slurm:6820", transport=desk, **({"api": "v0.0.42"} | options))


def _certificate(folder):
    """Make a certificate of this computer, with its key beside it."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate


def failing(error):
    def fail(request):
        raise error("what happened", request=request)

    return fail


def token(**claims):
    text = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"h.{text}.s"


def job_told(number, state="PENDING", **more):
    return {
        "job_id": number,
        "job_state": [state],
        "submit_time": {"set": True, "number": 100},
        "user_name": "me",
    } | more


class Queue:
    """Jobs as a controller knows them, for a desk."""

    def __init__(self, *numbers):
        self.states = dict.fromkeys(numbers, "PENDING")
        self.more = {number: {} for number in numbers}
        self.desk = Desk("v0.0.42")
        self.desk.table["GET /slurm/v0.0.42/jobs/state"] = self._states
        self.desk.table["GET /slurm/v0.0.42/jobs"] = lambda _: (200, {"jobs": self._all(), "errors": []})
        for number in numbers:
            self.desk.table[f"GET /slurm/v0.0.42/job/{number}"] = self._one
            self.desk.table[f"POST /slurm/v0.0.42/job/{number}"] = (200, {"errors": [], "results": None})

    def _all(self):
        return [job_told(number, state, **self.more[number]) for number, state in self.states.items()]

    def _one(self, request):
        number = int(request.url.path.rpartition("/")[2])
        if number not in self.states:
            return SAMPLES["24.11"]["job_unknown"]
        return 200, {"jobs": [job_told(number, self.states[number], **self.more[number])], "errors": []}

    def _states(self, request):
        asked = request.url.params.get_list("job_id")
        jobs = [{"job_id": str(number), "state": [state]} for number, state in self.states.items()]
        return 200, {"jobs": [job for job in jobs if job["job_id"] in asked or not asked], "errors": []}


# --- finding the version ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("served", "described", "found", "most"),
    [
        (["v0.0.40", "v0.0.41", "v0.0.42"], ["v0.0.42", "v0.0.41", "v0.0.40"], "v0.0.42", 2),
        (["v0.0.38"], ["v0.0.36", "v0.0.38"], "v0.0.38", 2),
        (["v0.0.41", "v0.0.40"], None, "v0.0.41", 6),  # no description
        (["v0.0.40"], ["v0.0.44"], "v0.0.40", 8),  # it lies
        (["v0.0.45", "v0.0.46"], ["v0.0.46", "v0.0.45"], "v0.0.45", 2),
    ],
)
def test_the_newest_version_that_both_know_is_taken_once(served, described, found, most):
    desk = Desk(*served)
    if described:
        text = json.dumps({"paths": {f"/slurm/{version}/ping/": {} for version in described}})
        desk.table["GET /openapi/v3"] = (200, text.replace("/", "\\/"))
    desk.table[f"GET /slurm/{found}/partitions"] = (200, {"partitions": [], "errors": []})
    asking = link(desk, api="")
    assert desk.asked == [], "not before it is needed"
    assert asking.partitions() == []
    sent = asking.calls["negotiation"]
    assert 1 < sent <= most
    asking.partitions()
    assert asking.calls == {"negotiation": sent, "partitions": 2}
    assert found in asking.about().means


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((404, NOT_FOUND), "none of the REST APIs"),
        ((200, "<html><body>Welcome</body></html>"), "a web page answers there"),
        ((502, "Bad gateway"), "HTTP status 502"),
        ((302, ""), "sends us elsewhere"),
        ((200, "hello"), "none of the REST APIs"),
    ],
)
def test_what_is_no_slurmrestd_is_told_clearly(answer, words):
    desk = Desk()
    desk.handle_request = lambda _: httpx.Response(answer[0], text=answer[1])
    with pytest.raises(UnavailableError, match=words) as error:
        link(desk, api="").partitions()
    assert error.value.where == "https://slurm:6820"


def test_partitions_are_told_though_accounting_is_away():
    """As 24.11 answers then: everything, an error, and the status of a failure."""
    away = {"error_number": 111, "error": "Connection refused", "source": "slurmdb_tres_get"}
    answer = {"partitions": [{"name": "long"}], "errors": [away]}
    desk = Desk(table={"GET /slurm/v0.0.42/partitions": lambda _: (500, answer)})
    assert [partition.name for partition in link(desk).partitions()] == ["long"]
    answer["errors"].append({"error": "something else"})
    with pytest.raises(UnavailableError, match="the partitions cannot be read"):
        link(desk).partitions()


def test_versions_from_the_future_are_named():
    desk = Desk(table={"GET /openapi/v3": (200, '{"/slurm/v0.0.99/jobs/": 1}')})
    with pytest.raises(UnavailableError, match=r"serves REST API v0\.0\.99; known here are v0\.0\.38, v0\.0\.40"):
        link(desk, api="").queue()


def test_an_update_of_slurm_under_our_feet_is_noticed():
    desk = Desk("v0.0.41")
    asking = link(desk, api="")
    desk.table["GET /slurm/v0.0.41/nodes"] = (200, {"nodes": [], "errors": []})
    assert asking.nodes() == []
    desk.table = {"GET /slurm/v0.0.45/ping": (200, PING), "GET /slurm/v0.0.45/nodes": (200, {"nodes": []})}
    with pytest.raises(UnavailableError, match=r"does not serve REST API v0\.0\.41"):
        asking.nodes()
    assert asking.nodes() == []


@pytest.mark.parametrize(
    "url",
    [
        "slurm:6820",
        "ftp://slurm",
        "http://",
        "http://u:secret@slurm",
        "http://slurm?x=1",
        "unix://host/x",
        "http://h:x",
    ],
)
def test_an_address_that_is_none_is_refused_at_once(url):
    with pytest.raises(InputError, match="no address of slurmrestd") as error:
        RestLink(url)
    assert "secret" not in str(error.value)


# --- submitting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (httpx.ConnectError, UnavailableError),
        (httpx.ConnectTimeout, UnavailableError),
        (httpx.ReadTimeout, SubmitInDoubtError),
        (httpx.WriteTimeout, SubmitInDoubtError),
        (httpx.ReadError, SubmitInDoubtError),
        (httpx.WriteError, SubmitInDoubtError),
        (httpx.RemoteProtocolError, SubmitInDoubtError),
    ],
)
def test_whether_a_lost_submission_may_have_arrived(fault, kind):
    desk = Desk(table={"POST /slurm/v0.0.42/job/submit": failing(fault)})
    asking = link(desk)
    with pytest.raises(BackendError) as error:
        asking.submit(JOB)
    assert type(error.value) is kind
    assert len(desk.asked) == 1, "a submission is never sent again"
    assert asking.calls["submit"] == (kind is SubmitInDoubtError)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((200, "not json"), SubmitInDoubtError),
        ((200, '{"job_id": 5'), SubmitInDoubtError),
        ((200, ""), SubmitInDoubtError),
        ((200, {"job_id": 0}), SubmitInDoubtError),
        ((502, "<html>"), SubmitInDoubtError),
        (SAMPLES["24.11"]["ctld_down_submit"], UnavailableError),
        ((500, {"errors": [{"error_number": 1007, "error": "Protocol authentication error"}]}), SubmitInDoubtError),
        ((500, {"errors": [{"error_number": -1}]}), SubmitInDoubtError),
        ((500, {"errors": [{"error_number": -1}], "job_submit_user_msg": "Use 4 nodes!"}), SubmitRejectedError),
        (SAMPLES["24.11"]["variant_bad_partition"], SubmitRejectedError),
        (SAMPLES["24.11"]["variant_bad_dep"], SubmitRejectedError),
        (SAMPLES["24.11"]["variant_too_many_nodes"], SubmitRejectedError),
        (
            (500, {"errors": [{"error_number": 2050, "error": "Job violates accounting/QOS policy"}]}),
            SubmitDeferredError,
        ),
        ((301, ""), UnavailableError),
        ((404, NOT_FOUND), UnavailableError),
    ],
)
def test_what_the_answer_to_a_submission_means(answer, kind):
    desk = Desk(table={"POST /slurm/v0.0.42/job/submit": tuple(answer)})
    with pytest.raises(BackendError) as error:
        link(desk).submit(JOB)
    assert type(error.value) is kind
    assert len(desk.asked) == 1


@pytest.mark.parametrize("version", list(SAMPLES))
@pytest.mark.parametrize("name", ["submit_full", "submit_hold", "variant_tl_over_limit"])
def test_a_job_with_a_number_is_accepted_whatever_else_is_said(version, name):
    api = "v0.0.38" if version == "22.05" else "v0.0.42"
    status, answer = SAMPLES[version][name]
    desk = Desk(table={f"POST /slurm/{api}/job/submit": (status, answer)})
    assert link(desk, api=api).submit(JOB) == str(answer["job_id"])


def test_an_answer_that_drips_is_given_up():
    class Drip(httpx.SyncByteStream):
        def __iter__(self):
            while True:
                yield b" "

    desk = Desk(table={"POST /slurm/v0.0.42/job/submit": lambda _: httpx.Response(200, stream=Drip())})
    with pytest.raises(SubmitInDoubtError, match="no answer within"):
        link(desk, timeout_s=0.05).submit(JOB)


@pytest.fixture
def endless(tmp_path):
    """Make a server that takes a request, says something, and then says another thing again and again."""
    stop = threading.Event()
    with ExitStack() as served:

        def serve(begin, again, pause_s=0.0, *, tls=False):
            context = None
            if tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(_certificate(tmp_path), tmp_path / "key.pem")

            def talk():
                line = listener.accept()[0]
                with suppress(OSError):
                    if context is not None:
                        line = context.wrap_socket(line, server_side=True)
                    line.recv(65536)
                    line.sendall(begin)
                    while not stop.wait(pause_s):
                        line.sendall(again)
                line.close()

            listener = served.enter_context(socket.create_server(("127.0.0.1", 0)))
            thread = threading.Thread(target=talk, daemon=True)
            thread.start()
            served.callback(thread.join, 10)
            return f"http{'s' * tls}://127.0.0.1:{listener.getsockname()[1]}"

        yield serve
        stop.set()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    ("begin", "again", "pause_s"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 0),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.05),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{", b" ", 0.05),
    ],
    ids=["interim answers", "a flood of them", "a header that drips", "a body without an end"],
)
def test_an_exchange_ends_in_time_whatever_comes(endless, begin, again, pause_s, tls):
    """Before, a server held a client for as long as it liked with what comes before an answer."""
    if tls and shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    asking = RestLink(endless(begin, again, pause_s, tls=tls), timeout_s=2, verify=False, api="v0.0.42")
    began_s = time.monotonic()
    with pytest.raises(SubmitInDoubtError, match="no answer within 2 s"):
        asking.submit(JOB)
    assert 2 <= time.monotonic() - began_s < 20


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403, 407, 511])
def test_a_refused_token_is_renewed_once_and_the_job_sent_again(status):
    tokens = iter([token(n=1), token(n=2), token(n=3)])

    def submitted(request):
        fresh = request.headers["X-SLURM-USER-TOKEN"] == token(n=2)
        return (200, {"job_id": 7, "errors": []}) if fresh else (status, "Authentication failure")

    desk = Desk(table={"POST /slurm/v0.0.42/job/submit": submitted})
    source = TokenSource(lambda: next(tokens), name="a test")
    asking = link(desk, token=source, user="me")
    assert asking.submit(JOB) == "7"
    assert asking.calls["submit"] == 2
    assert desk.asked[0].headers["X-SLURM-USER-NAME"] == "me"


def test_for_whom_a_token_is_is_said_as_well():
    """Where nobody says who asks: slurmrestd of 22.05 refuses a token without a name."""
    desk = Desk(table={"POST /slurm/v0.0.42/job/submit": (200, {"job_id": 7, "errors": []})})
    link(desk, token=TokenSource(lambda: token(sun="ada"), name="a test")).submit(JOB)
    assert desk.asked[0].headers["X-SLURM-USER-NAME"] == "ada"


def test_a_token_that_stays_refused_is_no_doubt():
    desk = Desk(table={"POST /slurm/v0.0.42/job/submit": (511, {"errors": [{"error_number": 1007, "error": "Auth"}]})})
    with pytest.raises(AccessError, match="does not let us in") as error:
        link(desk, token=TokenSource(lambda: token(secret="x"), name="a test")).submit(JOB)
    assert len(desk.asked) == 1, "the same token again would be refused again"
    assert token(secret="x") not in str(error.value)


SECRET = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJtZSIsImV4cCI6OTk5fQ.c2lnbmF0dXJlLW9mLW1pbmU/x+y="


@pytest.mark.parametrize("status", [200, 400, 401, 404, 429, 500, 502, 511])
@pytest.mark.parametrize("way", ["error", "description", "warning", "text", "page", "user_message", "signature"])
def test_a_token_that_a_server_repeats_is_in_no_message(status, way):
    said = {
        "error": {"errors": [{"error_number": 2000, "error": f"bad {SECRET}"}]},
        "description": {"errors": [{"error_number": 9001, "description": f"bad {SECRET}", "source": SECRET}]},
        "warning": {"warnings": [{"description": SECRET, "source": SECRET}], "errors": [{"error": SECRET}]},
        "text": f"Authentication failure of {SECRET}",
        "page": f"<html><title>{SECRET}</title><p>{SECRET}",
        "user_message": {"errors": [{"error_number": 0, "error": "x"}], "job_submit_user_msg": SECRET},
        "signature": {"errors": [{"error_number": 1007, "error": f"bad signature {SECRET.rpartition('.')[2]}"}]},
    }[way]  # fmt: skip
    text = said if isinstance(said, str) else json.dumps(said).replace("/", "\\/")
    desk = Desk()
    desk.table = {
        f"{method} /slurm/v0.0.42/{path}": (status, text)
        for method, path in (("POST", "job/submit"), ("GET", "jobs"), ("GET", "partitions"), ("DELETE", "jobs"))
    }
    asking = link(desk, token=TokenSource(lambda: SECRET, name="a test"), user="me")
    for ask in (lambda: asking.submit(JOB), asking.queue, asking.partitions):
        try:
            ask()
        except AsaError as error:
            chain = error
            while chain is not None:
                assert SECRET not in str(chain)
                assert SECRET.rpartition(".")[2] not in f"{chain} {chain.args}"
                chain = chain.__cause__ or chain.__context__
    assert len(desk.asked) >= 3
    assert all(request.headers["X-SLURM-USER-TOKEN"] == SECRET for request in desk.asked)


def test_a_submission_is_not_sent_again_for_an_authentication_that_may_be_slurms_own():
    tokens = iter([token(n=1), token(n=2)])
    body = {"errors": [{"error_number": 1007, "error": "Protocol authentication error"}]}
    desk = Desk(table={"POST /slurm/v0.0.42/job/submit": (500, body)})
    with pytest.raises(SubmitInDoubtError):
        link(desk, token=TokenSource(lambda: next(tokens), name="a test")).submit(JOB)
    assert len(desk.asked) == 1


def test_slurms_own_word_that_it_does_not_believe_us_counts():
    desk = Desk(table={"GET /slurm/v0.0.38/jobs": (500, {"errors": [{"error_number": 1007, "error": "no"}]})})
    with pytest.raises(AccessError):
        link(desk, api="v0.0.38").queue()


def test_a_token_is_read_again_before_it_ends_and_else_not():
    now = [1000.0]
    read = []

    def fresh():
        read.append(now[0])
        return "SLURM_JWT=" + token(exp=now[0] + 600, sun="me")

    source = TokenSource(fresh, name="a test", clock=lambda: now[0], margin_s=100)
    for moment, readings in ((1000, 1), (1400, 1), (1501, 2), (1900, 2), (5000, 3)):
        now[0] = float(moment)
        source.current()
        assert len(read) == readings
    assert (source.ends_s, source.user) == (5600.0, "me")


def test_a_token_that_ends_is_not_asked_for_at_every_call():
    read = []
    source = TokenSource(lambda: read.append(1) or token(exp=50), name="a test", clock=lambda: 1000.0)
    for _ in range(5):
        source.current()
    assert len(read) == 2


def test_an_old_token_serves_while_no_new_one_comes():
    answers = [token(exp=1050)]

    def read():
        if not answers:
            raise AccessError("none")
        return answers.pop()

    now = [900.0]
    source = TokenSource(read, name="a test", clock=lambda: now[0])
    source.current()
    now[0] = 1000.0
    assert source.current() == token(exp=1050)
    now[0] = 1051.0
    with pytest.raises(AccessError):
        source.current()


def test_where_tokens_come_from(monkeypatch, tmp_path):
    secret = token(exp=5e9)
    monkeypatch.setenv("SLURM_JWT", secret)
    file = tmp_path / "token"
    file.write_text(f"SLURM_JWT={secret}\n")
    printing = [sys.executable, "-c", f"print('note'); print('SLURM_JWT={secret}')"]
    sources = [TokenSource.from_environment(), TokenSource.from_file(file), TokenSource.from_command(printing)]
    for source in sources:
        assert source.headers("") == {"X-SLURM-USER-TOKEN": secret}
        assert source.ends_s == 5e9
        assert secret not in repr(source)
    bearer = TokenSource.from_environment(bearer=True)
    assert bearer.headers("me") == {"Authorization": f"Bearer {secret}"}


@pytest.mark.parametrize("text", ["", "\n", "no token here: sorry", "a\x00b", "SLURM_JWT=", "sch\u00f6n"])
def test_what_is_no_token_is_never_sent_nor_told(text):
    with pytest.raises(AccessError, match="gives no token") as error:
        TokenSource(lambda: text, name="test").current()
    assert not text.strip() or text not in str(error.value)


def test_a_source_that_fails_says_which(monkeypatch, tmp_path):
    monkeypatch.delenv("SLURM_JWT", raising=False)
    failing_command = [sys.executable, "-c", "print('secret'); raise SystemExit(3)"]
    for source, words in (
        (TokenSource.from_environment(), "SLURM_JWT has no token"),
        (TokenSource.from_file(tmp_path / "none"), "cannot be read"),
        (TokenSource.from_command(failing_command), "exit code 3"),
        (TokenSource.from_command([str(tmp_path / "none")]), "cannot be run"),
        (TokenSource.from_command([sys.executable, "-c", "while 1: pass"], timeout_s=0.3), "0.3 s"),
    ):
        with pytest.raises(AccessError, match=words) as error:
            source.current()
        assert "secret" not in str(error.value)


def test_what_a_command_prints_beside_the_token_may_be_anything():
    printing = r"import os; os.write(1, b'SLURM_JWT=a.b.c\n\xff')"
    source = TokenSource.from_command([sys.executable, "-c", printing])
    assert source.current() == "a.b.c"
    source = TokenSource.from_command([sys.executable, "-c", r"import os; os.write(1, b'secret\xff')"])
    with pytest.raises(AccessError, match="gives no token") as error:
        source.current()
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("user", ["j\u00f6rg", "a\nb"])
def test_a_user_that_no_header_can_name_is_refused_at_once(user):
    with pytest.raises(InputError) as error:
        link(Desk(), user=user)
    assert error.value.where == "user"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:9", "SOCKS"),
        ("HTTP_PROXY", "proxy.example:3128:x", "address"),
        ("http_proxy", "ftp://proxy", "address"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_told_by_its_variable(monkeypatch, tmp_path, name, value, words):
    for other in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(other, raising=False)
        monkeypatch.delenv(other.lower(), raising=False)
    monkeypatch.setenv(name, value)
    if words == "SOCKS":
        monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(InputError, match=words) as error:
        RestLink("http://slurm.invalid:1").about()
    assert error.value.where == f"environment variable {name}"
    assert "there is no socket" in told(f"unix://{tmp_path}/none.sock"), "a socket needs no proxy"


@pytest.mark.parametrize("url", ["http://slurm:6820", "http://10.0.0.7:6820", "http://localhost.example.org"])
def test_a_token_goes_in_clear_to_no_other_host_unless_it_may(url):
    desk = Desk(table={"GET /slurm/v0.0.42/partitions": (200, {"partitions": [], "errors": []})})
    source = TokenSource(lambda: pytest.fail("not even read"), name="a test")
    with pytest.raises(AccessError, match="in clear") as error:
        RestLink(url, transport=desk, api="v0.0.42", token=source).partitions()
    assert "allow_insecure = true" in error.value.hint
    assert desk.asked == []
    RestLink(url, transport=desk, api="v0.0.42").partitions()
    source = TokenSource(lambda: "secret", name="a test")
    RestLink(url, transport=desk, api="v0.0.42", token=source, allow_insecure=True).partitions()
    assert desk.asked[-1].headers["X-SLURM-USER-TOKEN"] == "secret"


def test_a_token_goes_neither_to_a_proxy_nor_where_an_answer_points(monkeypatch):
    """An address of this host is in clear, as what goes there passes no network: no proxy is to see it."""
    seen = {"proxy": [], "slurm": [], "elsewhere": []}
    with ExitStack() as running:
        servers = {name: running.enter_context(recording(told)) for name, told in seen.items()}
        proxy, slurm, elsewhere = (f"http://127.0.0.1:{server.server_port}" for server in servers.values())
        servers["slurm"].points_to = f"{elsewhere}/slurm"
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        source = TokenSource(lambda: "secret", name="a test")
        with pytest.raises(UnavailableError, match="sends us elsewhere"):
            RestLink(slurm, api="v0.0.42", token=source).partitions()
    assert (seen["proxy"], seen["slurm"], seen["elsewhere"]) == ([], ["secret"], [])


@contextmanager
def recording(told):
    """Serve what writes down the tokens that it gets, and sends others elsewhere."""

    class Recorder(BaseHTTPRequestHandler):
        def do_GET(self):
            told.append(self.headers["X-SLURM-USER-TOKEN"])
            self.send_response(302)
            self.send_header("Location", self.server.points_to)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words):
            pass

    with HTTPServer(("127.0.0.1", 0), Recorder) as server:
        server.points_to = "/"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_token_is_in_no_log(caplog):
    caplog.set_level(logging.DEBUG)
    secret = token(sun="me")
    desk = Desk(table={"GET /slurm/v0.0.42/partitions": (200, {"partitions": [], "errors": []})})
    link(desk, token=TokenSource(lambda: secret, name="a test")).partitions()
    assert desk.asked[0].headers["X-SLURM-USER-TOKEN"] == secret
    assert secret not in caplog.text


# --- asking for jobs -------------------------------------------------------------------------------------------------


def test_one_job_is_one_request():
    queue = Queue(5, 6)
    del queue.states[6]
    asking = link(queue.desk)
    assert asking.jobs(["5"])["5"].states == ("PENDING",)
    assert asking.jobs(["6"]) == {}
    assert queue.desk.paths == ["GET /slurm/v0.0.42/job/5", "GET /slurm/v0.0.42/job/6"]


def test_a_quiet_look_at_several_jobs_is_one_small_request():
    now = [0.0]
    queue = Queue(1, 2, 3, 4)
    asking = link(queue.desk, clock=lambda: now[0])
    wanted = ["1", "2", "3", "4", "99"]
    assert asking.jobs(wanted).keys() == {"1", "2", "3", "4"}
    for _ in range(3):
        now[0] += 5
        queue.desk.asked.clear()
        assert asking.jobs(wanted).keys() == {"1", "2", "3", "4"}
        assert queue.desk.paths == ["GET /slurm/v0.0.42/jobs/state"]
        assert queue.desk.asked[0].url.params.get_list("job_id") == wanted


def test_a_change_of_one_job_lets_those_be_read_that_depend_on_it():
    queue = Queue(1, 2, 3, 4)
    queue.states[3] = "COMPLETED"
    queue.more[2] = {"dependency": "afterok:1(unfulfilled),afterany:9(unfulfilled)"}
    queue.more[4] = {"dependency": "afterok:11(unfulfilled)"}
    asking = link(queue.desk, clock=lambda: 0.0)
    wanted = ["1", "2", "3", "4"]
    asking.jobs(wanted)
    queue.states[1] = "RUNNING"
    queue.desk.asked.clear()
    assert asking.jobs(wanted)["1"].states == ("RUNNING",)
    assert queue.desk.paths[1:] == ["GET /slurm/v0.0.42/job/1", "GET /slurm/v0.0.42/job/2"]
    del queue.states[1]
    assert asking.jobs(wanted).keys() == {"2", "3", "4"}


def test_a_look_at_thirty_jobs_is_hardly_more_than_one_request():
    """Though one of them ends, and one starts, every hundred seconds; and a pending one is never long unread."""
    now, read_s, looks, gaps = [0.0], {}, 0, []
    queue = Queue(*range(1, 31))
    asking = link(queue.desk, clock=lambda: now[0])
    wanted = [str(number) for number in range(1, 31)]
    for second in range(0, 3600, 7):
        now[0] = float(second)
        done = second // 100
        queue.states |= {n: "COMPLETED" if n < done else "RUNNING" for n in range(1, min(done, 30) + 1)}
        looks += 1
        before = len(queue.desk.asked)
        assert [record.states[0] for record in asking.jobs(wanted).values()] == list(queue.states.values())
        paths = queue.desk.paths[before:]
        read = wanted if "GET /slurm/v0.0.42/jobs" in paths else [path.rpartition("/")[2] for path in paths]
        gaps += [second - read_s.get(n, 0) for n in wanted if queue.states[int(n)] == "PENDING"]
        read_s |= dict.fromkeys(read, second)
    assert len(queue.desk.asked) / looks < 1.2
    assert max(gaps) <= 90 + 7


def test_many_stale_jobs_of_a_very_long_listing_are_read_one_by_one():
    now = [0.0]
    queue = Queue(1, 2, 3, 4, 5)
    queue.more[1] = {"comment": "x" * 2_000_000}
    asking = link(queue.desk, clock=lambda: now[0])
    for _ in range(2):
        queue.desk.asked.clear()
        assert len(asking.jobs(["1", "2", "3", "4", "5"])) == 5
        now[0] += 40
    assert len(queue.desk.asked) == 6


def test_a_number_that_comes_back_is_another_job():
    queue = Queue(1, 2)
    asking = link(queue.desk, clock=lambda: 0.0)
    asking.jobs(["1", "2"])
    del queue.states[1]
    assert asking.jobs(["1", "2"]).keys() == {"2"}
    queue.states[1] = "PENDING"
    queue.desk.asked.clear()
    asking.jobs(["1", "2"])
    assert "GET /slurm/v0.0.42/job/1" in queue.desk.paths


def test_a_look_at_some_jobs_does_not_make_the_others_unknown():
    queue = Queue(1, 2, 3, 4)
    asking = link(queue.desk, clock=lambda: 0.0)
    asking.jobs(["1", "2", "3", "4"])
    asking.jobs(["1", "2"])
    queue.desk.asked.clear()
    asking.jobs(["1", "2", "3", "4"])
    assert queue.desk.paths == ["GET /slurm/v0.0.42/jobs/state"]


def test_a_job_that_we_changed_is_read_anew():
    queue = Queue(1, 2)
    asking = link(queue.desk, clock=lambda: 0.0)
    asking.jobs(["1", "2"])
    asking.update(own("2"), held=True)
    queue.desk.asked.clear()
    asking.jobs(["1", "2"])
    assert "GET /slurm/v0.0.42/job/2" in queue.desk.paths


def test_many_jobs_are_read_from_the_listing():
    queue = Queue(*range(1, 60))
    asking = link(queue.desk)
    assert len(asking.jobs([str(number) for number in range(1, 51)])) == 50
    assert queue.desk.paths == ["GET /slurm/v0.0.42/jobs"]


def test_where_states_are_not_listed_all_are_read_from_the_whole():
    queue = Queue(1, 2, 3)
    del queue.desk.table["GET /slurm/v0.0.42/jobs/state"]
    asking = link(queue.desk)
    for _ in range(2):
        assert asking.jobs(["1", "3"]).keys() == {"1", "3"}
    assert queue.desk.paths.count("GET /slurm/v0.0.42/jobs/state") == 1


def test_a_listing_that_cannot_be_received_gives_way_to_single_jobs():
    desk = Desk(table={"GET /slurm/v0.0.38/jobs": failing(httpx.ReadTimeout)})
    for number in (1, 2):
        desk.table[f"GET /slurm/v0.0.38/job/{number}"] = (200, {"jobs": [job_told(number)], "errors": []})
    asking = link(desk, api="v0.0.38")
    with pytest.raises(UnavailableError):
        asking.jobs(["1", "2"])
    assert asking.jobs(["1", "2"]).keys() == {"1", "2"}


@pytest.mark.parametrize(
    ("state", "first_s", "latest_s"), [("PENDING", [0, 30, 60, 120], 90), ("RUNNING", [0, 600, 1200, 1800], 600)]
)
def test_records_grow_old_at_a_pace_that_slows_down(state, first_s, latest_s):
    memory = RecordMemory()
    read = []
    queue = Queue(1)
    queue.states[1] = state
    [record] = link(queue.desk).jobs(["1"]).values()
    for second in range(0, 3600, 5):
        if memory.stale({"1": (state,)}, float(second)):
            memory.keep(record, float(second))
            read.append(second)
    assert read[:4] == first_s
    assert max(after - before for before, after in pairwise(read)) == latest_s


@pytest.mark.parametrize(
    "answer",
    [
        (200, "garbage"),
        (200, '{"jobs": ['),
        (502, "<html>"),
        SAMPLES["24.11"]["ctld_down_jobs"],
        SAMPLES["22.05"]["ctld_down_jobs"],
        (200, {"jobs": [], "errors": [{"error_number": -1, "error": "Unspecified error"}]}),
    ],
)
def test_a_queue_that_cannot_be_read_is_never_an_empty_one(answer):
    desk = Desk(table=dict.fromkeys(["GET /slurm/v0.0.42/jobs", "GET /slurm/v0.0.42/jobs/state"], tuple(answer)))
    desk.table["GET /slurm/v0.0.42/job/1"] = tuple(answer)
    asking = link(desk)
    for ask in (asking.queue, lambda: asking.jobs(["1"]), lambda: asking.jobs(["1", "2"]), lambda: asking.named(["n"])):
        with pytest.raises(UnavailableError):
            ask()


def test_a_name_in_another_encoding_harms_nobody():
    raw = json.dumps({"jobs": [job_told(1, name="caf\u00e9"), job_told(2)], "errors": []}, ensure_ascii=False)
    desk = Desk(table={"GET /slurm/v0.0.42/jobs": lambda _: httpx.Response(200, content=raw.encode("latin-1"))})
    assert [record.job_id for record in link(desk).queue()] == ["1", "2"]


def test_jobs_are_found_by_name_in_queue_and_accounting():
    past = {"jobs": [{"job_id": 3, "name": "mine", "user": "me", "time": {"submission": 50}},
                     {"job_id": 1, "name": "mine", "user": "me", "time": {"submission": 100}},
                     {"job_id": 4, "name": "mine", "user": "other", "time": {"submission": 60}}]}  # fmt: skip
    here = [job_told(1, name="mine"), job_told(2, name="others"), job_told(5, name="mine", user_name="other")]
    desk = Desk(table={"GET /slurm/v0.0.42/jobs": (200, {"jobs": here, "errors": []})})
    desk.table["GET /slurmdb/v0.0.42/jobs"] = (200, past)
    found = link(desk, user="me", clock=lambda: 20 * 86400.0).named(["mine"])
    assert [(record.job_id, record.states) for record in found] == [("3", ()), ("1", ("PENDING",))]
    asked = desk.asked[1].url.params
    assert (asked["job_name"], asked["start_time"]) == ("mine", f"uts{6 * 86400}")
    recorded = link(desk, user="me", clock=lambda: 20 * 86400.0).recorded(["mine"], 86400.0)
    assert sorted(record.job_id for record in recorded) == ["1", "3"]
    assert desk.asked[-1].url.params["start_time"] == "uts86400"


def test_a_site_that_gives_only_short_spans_is_asked_for_shorter_ones():
    spans = []

    def jobs(request):
        spans.append(2e6 - int(request.url.params["start_time"].removeprefix("uts")))
        return 500, {"errors": [{"error_number": 7007, "error": "Too wide of a date range in query"}]}

    desk = Desk(table={"GET /slurm/v0.0.42/jobs": (200, {"jobs": [], "errors": []})})
    desk.table["GET /slurmdb/v0.0.42/jobs"] = jobs
    assert link(desk, clock=lambda: 2e6).named(["mine"]) == []
    assert spans == [14 * 86400, 86400, 3600]


def test_without_accounting_there_is_no_past():
    desk = Desk("v0.0.42")
    asking = link(desk)
    assert asking.past(["1"]) == {}
    about = asking.about()
    assert (about.accounting, about.controller_up, about.cluster, about.version) == (False, True, "testbed", "24.11.5")
    with pytest.raises(BackendError, match="accounting cannot be read"):
        asking.accounting(0.0, 10.0)


@pytest.mark.parametrize(
    ("answer", "is_none"),
    [
        ((502, {"errors": [{"error_number": 7000}], "meta": {"plugin": {"accounting_storage": "x/slurmdbd"}}}), False),
        ((200, {"errors": [{"error_number": 7000}], "jobs": []}), False),
        ((500, {"errors": [{"error_number": -1}], "meta": {"plugin": {"accounting_storage": ""}}}), True),
        ((500, {"errors": [{"error_number": 2002}]}), True),
        ((200, {"errors": [{"error_number": 9003}], "jobs": []}), True),
    ],
)
def test_a_database_that_is_down_is_not_one_that_is_not_there(answer, is_none):
    desk = Desk(
        table={"GET /slurmdb/v0.0.42/jobs": answer, "GET /slurm/v0.0.42/jobs": (200, {"jobs": [], "errors": []})}
    )
    asking = link(desk)
    if is_none:
        assert asking.past(["1"]) == {}
        assert asking.named(["n"]) == []
    else:
        for ask in (lambda: asking.past(["1"]), lambda: asking.named(["n"])):
            with pytest.raises(UnavailableError):
                ask()


def test_of_a_number_that_was_used_again_the_latest_job_is_told():
    past = [{"job_id": 3, "name": name, "time": {"submission": at}} for name, at in (("new", 9), ("old", 5))]
    desk = Desk(table={"GET /slurmdb/v0.0.42/jobs": (200, {"jobs": past, "errors": []})})
    assert link(desk).past(["3"])["3"].name == "new"


def test_long_spans_of_accounting_are_asked_for_by_the_day():
    desk = Desk(table={"GET /slurmdb/v0.0.42/jobs": (200, {"jobs": [{"job_id": 3}], "errors": []})})
    asking = link(desk)
    assert asking.accounting(0.0, 2.5 * 86400).count("\n") == 2, "a job that spans two days is told once"
    assert asking.calls["accounting"] == 3


# --- telling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "api", "name", "kind"),
    [
        ("22.05", "v0.0.38", "delete_unknown", JobNotFoundError),
        ("22.05", "v0.0.38", "delete_running", None),
        ("22.05", "v0.0.38", "delete_finished", None),
        ("24.11", "v0.0.42", "delete_unknown", JobNotFoundError),
        ("24.11", "v0.0.42", "delete_running", None),
        ("24.11", "v0.0.42", "delete_finished", None),
        ("22.05", "v0.0.38", "ctld_down_submit", UnavailableError),
    ],
)
def test_cancelling(version, api, name, kind):
    path = "job/5" if api == "v0.0.38" else "jobs/"
    desk = Desk(table={f"DELETE /slurm/{api}/{path}": tuple(SAMPLES[version][name])})
    if kind is None:
        cancel(link(desk, api=api), "5")
    else:
        with pytest.raises(kind):
            cancel(link(desk, api=api), "5")
    assert len(desk.asked) == 1


def test_many_jobs_are_cancelled_by_one_request_which_tells_of_each_that_was_not():
    def told(job_id, code):
        return {"error": {"string": "so", "code": code, "message": "so"}, "step_id": job_id, "job_id": {"set": False}}

    status = [told("2", 2021), told("3", 2017), told("4_[1-3]", 2002), told("5", 2172)]
    desk = Desk(table={"DELETE /slurm/v0.0.42/jobs/": (200, {"status": status, "errors": [], "warnings": []})})
    asking = link(desk)
    left = asking.cancel([own(str(number)) for number in range(1, 1001)])
    assert {job_id: type(error) for job_id, error in left.items()} == {"3": JobNotFoundError, "4": BackendError}
    assert asking.calls["cancel"] == 1
    asking.cancel([own(str(number)) for number in range(1, 2002)])
    assert asking.calls["cancel"] == 4


def test_one_job_is_cancelled_under_its_name():
    desk = Desk(table={"DELETE /slurm/v0.0.42/jobs/": (200, {"status": [], "errors": [], "warnings": []})})
    assert link(desk).cancel([IdentifiedJob("5", "x.token")]) == {}
    assert json.loads(desk.asked[-1].content) == {"jobs": ["5"], "job_name": "x.token"}


@pytest.mark.parametrize(
    ("version", "api", "name", "kind"),
    [
        ("22.05", "v0.0.38", "update_pending_hold", None),
        ("22.05", "v0.0.38", "update_pending_prio0", BackendError),
        ("22.05", "v0.0.38", "update_unknown", JobNotFoundError),
        ("22.05", "v0.0.38", "update_running_tl_raise_user", BackendError),
        ("24.11", "v0.0.42", "update_pending_hold", None),
        ("24.11", "v0.0.42", "update_pending_time_limit_wrapped", BackendError),  # 200, and ignored
        ("24.11", "v0.0.42", "update_unknown", JobNotFoundError),
        ("24.11", "v0.0.42", "update_running_tl_raise_user", BackendError),
    ],
)
def test_changing(version, api, name, kind):
    desk = Desk(table={f"POST /slurm/{api}/job/5": tuple(SAMPLES[version][name])})
    if kind is None:
        link(desk, api=api).update(own("5"), held=True)
    else:
        with pytest.raises(BackendError) as error:
            link(desk, api=api).update(own("5"), walltime_s=60)
        assert type(error.value) is kind


@pytest.mark.parametrize("name", ["", "x", "5/../6", "-1", "1_2", "\u0665"])
def test_what_is_no_job_id_is_not_sent(name):
    desk = Desk()
    with pytest.raises(JobNotFoundError):
        link(desk).update(own(name), held=True)
    assert [words for words in desk.paths if "job" in words] == []


@pytest.mark.parametrize("status", [SAMPLES["22.05"]["ctld_down_ping"], SAMPLES["24.11"]["ctld_down_ping"]])
def test_a_controller_that_is_down_is_no_error_to_ask_about(status):
    api = "v0.0.38" if status[0] == 500 else "v0.0.42"
    asking = link(Desk(table={f"GET /slurm/{api}/ping": tuple(status)}), api=api)
    about = asking.about()
    assert not about.controller_up
    assert about.version


def test_a_refused_token_is_not_taken_for_a_controller_that_is_down():
    desk = Desk(table={"GET /slurm/v0.0.42/ping": tuple(SAMPLES["24.11"]["ctld_down_ping"])})
    desk.table["GET /slurm/v0.0.42/diag"] = (511, {"errors": [{"error_number": 1007, "error": "no"}]})
    with pytest.raises(AccessError):
        link(desk, token=TokenSource(token, name="a test")).about()


# --- real connections ------------------------------------------------------------------------------------------------


@pytest.fixture
def plain_server():
    """Serve a web page at some port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>Welcome</title>")

        def log_message(self, *words):
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def told(url, **options):
    with pytest.raises(UnavailableError) as error:
        RestLink(url, timeout_s=10, **options).partitions()
    return str(error.value)


def test_why_nobody_can_be_reached_is_told(plain_server, tmp_path):
    port = plain_server.server_port
    assert "a web page answers there" in told(f"http://127.0.0.1:{port}")
    assert "does not speak TLS" in told(f"https://127.0.0.1:{port}")
    assert "no host of that name" in told("http://nowhere.invalid:6820")
    plain_server.shutdown()
    plain_server.server_close()
    assert "nobody listens there" in told(f"http://127.0.0.1:{port}")
    assert "there is no socket" in told(f"unix://{tmp_path}/none.sock")


# httpcore does not close the socket of a call that nobody answers; it is closed when it is collected
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_socket_that_was_left_behind_is_told(tmp_path):
    (tmp_path / "file").touch()
    assert "nobody listens at the socket" in told(f"unix://{tmp_path}/file")
    gc.collect()


def test_certificates_are_checked(plain_server, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    certificate = _certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, tmp_path / "key.pem")
    plain_server.socket = context.wrap_socket(plain_server.socket, server_side=True)
    url = f"https://127.0.0.1:{plain_server.server_port}"
    assert "certificate is not to be trusted: self" in told(url)
    assert "a web page answers there" in told(url, verify=str(certificate))
    with pytest.raises(InputError, match="no file of certificates"):
        RestLink(url, verify=str(tmp_path / "none")).partitions()
