"""Exchanges of a request and its answer: HTTP over TCP or a unix socket, with a token; errors say how far they came."""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from asa.core.peers import UNKNOWN, is_within, stranger_at_port, stranger_at_socket
from asa.core.reading import ANSWER_BYTES, TooLargeError, inflated, joined
from asa.errors import AccessError, InputError, UnavailableError

from .deadline import Watch
from .refusals import complaints, has_unauthorised
from .scan import Listing, parse
from .tokens import TokenSource

_CONNECT_S = 10.0
_OK = 200
_IS_IT_RUNNING = "Is slurmrestd running, and is this its address?"
_TUNNEL = "ssh -N -o StreamLocalBindUnlink=yes -L $HOME/slurm.sock:HOST:6820 LOGIN"
# names of httpcore's events
_CONNECTED = frozenset({"connection.connect_tcp.complete", "connection.connect_unix_socket.complete"})
_SENDS = "http11.send_request_headers.started"
_LARGEST_COMPLAINT_BYTES = 1 << 16
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.ProxyError)


class InClearError(AccessError):
    """A token was not sent, since it would go to another host without TLS."""


class StrangerError(AccessError):
    """Another user of this computer listens at the address; nothing was sent."""


class LostAnswerError(UnavailableError):
    """The request was sent, at least partly, and no complete answer came back."""


@dataclass(frozen=True, slots=True)
class RestAnswer:
    """An answer."""

    status: int
    body: bytes
    content_type: str = ""  # as in its header; empty without one

    def document(self) -> dict[str, Any]:
        """Decode the answer; return an empty object if it is not JSON."""
        try:
            return parse(self.body)
        except ValueError:
            return {}

    @property
    def is_page(self) -> bool:
        """Whether the answer is a page for browsers, and so not from slurmrestd."""
        return "html" in self.content_type or self.body[:64].lstrip()[:1] == b"<"


class Exchange:
    """A connection to slurmrestd, kept open between requests."""

    def __init__(
        self,
        url: str,
        *,
        token: TokenSource | None,
        user: str,
        verify: bool | str,
        timeout_s: float,
        transport: httpx.BaseTransport | None,
        allow_insecure: bool = False,
        served_by: Collection[int] = (),
    ) -> None:
        if not (user.isascii() and user.isprintable()):
            raise InputError(
                "is no name that can be sent in HTTP", where="user", hint="Names of users are plain ASCII."
            )
        self.url, self.token, self.user = url, token, user
        self.calls: Counter[str] = Counter()
        self._socket, self._base = _understood(url)
        self._would_leak = token is not None and not allow_insecure and is_in_clear(url)
        self._allow_insecure, self._served_by, self._is_known = allow_insecure, served_by, False
        self._verify, self._timeout_s, self._transport = verify, timeout_s, transport
        self._client: httpx.Client | None = None
        self._watch = Watch()

    def ask(
        self,
        caller: str,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Any = None,
        once: bool = False,
        listing: Listing[Any] | None = None,
    ) -> RestAnswer:
        """Send a request and wait for the answer; repeat it with a new token if the first was refused.

        `listing`: reads the entries of a list from a successful answer while it arrives. `once`: the request must not
        be carried out twice. In that case only the answer's HTTP status can prove that the request was not carried out.
        An authentication error in the answer's text may concern the controller's reply to a request that was carried
        out. Raises `AccessError`: Slurm denies access; the request was not carried out.
        """
        is_shut_out = _has_no_access if once else self._is_unauthorised
        tail = "&".join(f"{name}={quote(value, safe='')}" for name, value in query)
        path = f"{path}{'?' if tail else ''}{tail}"
        answer = self._send(caller, method, path, body, listing)
        if is_shut_out(answer) and self.token is not None and self.token.renew():
            answer = self._send(caller, method, path, body, listing)
        if is_shut_out(answer):
            raise self._shut_out(answer)
        if 300 <= answer.status < 400 and answer.status != 304:
            raise UnavailableError(
                "the address sends us elsewhere, which is not followed",
                where=self.url,
                hint="Give the address of slurmrestd itself.",
            )
        return answer

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send(self, caller: str, method: str, path: str, body: Any, listing: Listing[Any] | None) -> RestAnswer:
        if self._would_leak:
            raise self._in_clear()
        headers = self.token.headers(self.user) if self.token is not None else {}
        address = f"{self._base}{path}"
        content = None if body is None else json.dumps(body).encode()
        headers |= {} if body is None else {"Content-Type": "application/json"}
        client = self._opened()
        if self._transport is None and self._socket is not None and _is_absent(self._socket):
            raise UnavailableError("there is no socket", where=self.url, hint=_IS_IT_RUNNING)
        deadline_s = time.monotonic() + self._timeout_s
        sent = True
        try:
            with (
                self._watch.limited(self._timeout_s) if self._transport is None else nullcontext(),
                client.stream(method, address, headers=headers, content=content, extensions=self._hooks()) as response,
            ):
                answer = self._received(response, deadline_s, listing)
                return answer if self.token is None else replace(answer, body=self.token.hidden(answer.body))
        except AccessError:
            sent = False
            raise
        except _NOT_SENT as error:
            sent = False
            raise self._unreachable(error) from error
        except httpx.LocalProtocolError:
            sent = False
            # without the cause, which cites the header and so perhaps a token
            raise UnavailableError("the request cannot be put into HTTP", where=self.url) from None
        except httpx.TimeoutException as error:
            raise self._late() from error
        except TooLargeError as error:
            raise LostAnswerError(str(error.strerror), where=self.url, hint="Is this slurmrestd's address?") from error
        except (httpx.TransportError, httpx.StreamError, zlib.error) as error:
            if self._watch.is_up:
                raise self._late() from error
            raise LostAnswerError(
                f"the connection broke before the answer was whole ({type(error).__name__})", where=self.url
            ) from error
        finally:
            self.calls[caller] += sent

    def _received(self, response: httpx.Response, deadline_s: float, listing: Listing[Any] | None) -> RestAnswer:
        """Receive a complete answer. `httpx` limits only the time of each piece, and not the size."""
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        is_here = response.is_stream_consumed  # a transport without a network delivers everything at once
        pieces = _in_time(response.iter_bytes() if is_here else response.iter_raw(), deadline_s)
        if encoding != "identity" and not is_here:  # not requested, but a proxy may do it
            pieces = inflated(pieces, encoding)
        if listing is not None and response.status_code == _OK:
            listing.start()
            for piece in pieces:
                listing.feed(piece)
            body = listing.rest()
        else:
            body = joined(pieces, "the answer", ANSWER_BYTES)
        return RestAnswer(response.status_code, body, response.headers.get("content-type", ""))

    def _opened(self) -> httpx.Client:
        if self._client is None:
            transport = self._transport
            if transport is None and self._socket is not None:
                # without certificates, which take a while to load and are not used here
                transport = httpx.HTTPTransport(uds=self._socket, verify=False)
            verify = self._tls() if self._base.startswith("https") and transport is None else True
            try:
                self._client = httpx.Client(
                    transport=transport,
                    verify=verify,
                    timeout=httpx.Timeout(self._timeout_s, connect=min(self._timeout_s, _CONNECT_S)),
                    headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "asa"},
                    follow_redirects=False,
                    trust_env=self._socket is None and not _is_plain_loopback(self._base),  # no proxy is between
                )
            except (ImportError, ValueError, httpx.InvalidURL) as error:  # only settings of proxies come from outside
                raise _no_proxy(error) from error
        return self._client

    def _hooks(self) -> dict[str, Any]:
        """Return hooks that check the other end once connected, before anything is sent."""
        return {"trace": self._look} if self._transport is None else {}

    def _look(self, event: str, details: Mapping[str, Any]) -> None:
        """Raise before anything is sent to another user of this computer; see `asa.core.peers`."""
        self._watch.see(event, details.get("return_value"))
        if event in _CONNECTED:
            self._is_known = False
            connection = details["return_value"].get_extra_info("socket")
            try:
                self._check_peer(connection)
            except AccessError:
                connection.close()
                raise
            self._is_known = True
        elif event == _SENDS and not self._is_known:
            raise self._answered_by(UNKNOWN)

    def _check_peer(self, connection: socket.socket) -> None:
        if self._socket is not None:
            who = stranger_at_socket(connection, self._socket, self._served_by)
        elif not is_within(connection):
            if self.token is not None and not self._allow_insecure and urlsplit(self.url).scheme == "http":
                raise self._in_clear()  # a name such as localhost that resolves to another host
            return
        elif urlsplit(self.url).scheme == "https" and self._verify is not False:
            return  # its certificate identifies it
        else:
            who = stranger_at_port(connection, self._served_by)
        if who and not (who == UNKNOWN and self._allow_insecure):
            raise self._answered_by(who)

    def _answered_by(self, who: str) -> StrangerError:
        """Return the error for a wrong user at the other end, with a hint on how to reach the right one."""
        if self._socket is not None:
            hint = "Is the path right, and your tunnel up?"
        else:
            hint = (
                "If it was to be a tunnel, ssh did not get the port. A tunnel to a socket in a folder of yours is "
                f"nobody else's: {_TUNNEL}, and url=unix://$HOME/slurm.sock."
            )
        hint += " If it is the account that slurmrestd runs as here, name it: served_by=NAME."
        if who == UNKNOWN:
            hint = f"{hint} Where that cannot be found out, allow_insecure = true sends all the same."
        return StrangerError(f"{who} answers there, and nothing was sent", where=self.url, hint=hint)

    def _in_clear(self) -> InClearError:
        return InClearError(
            "the token would go to another host in clear, for whoever listens on the way to use; nothing was sent",
            where=self.url,
            hint=f"Give an address that begins with https://, or a tunnel's end here ({_TUNNEL}, and "
            "url=unix://$HOME/slurm.sock); or, where the network between is trusted, set allow_insecure = true.",
        )

    def _tls(self) -> bool | ssl.SSLContext:
        if isinstance(self._verify, bool):
            return self._verify
        try:
            return ssl.create_default_context(cafile=self._verify)
        except (OSError, ssl.SSLError) as error:
            raise InputError(
                "is no file of certificates", where=self._verify, hint="It must hold authorities in PEM form."
            ) from error

    def _is_unauthorised(self, answer: RestAnswer) -> bool:
        if _has_no_access(answer):
            return True
        if answer.status < 500 or len(answer.body) >= _LARGEST_COMPLAINT_BYTES:
            return False
        has_ended = self.token is not None and self.token.has_ended  # 22.05 reports an expired token only as a failure
        return has_ended or has_unauthorised(complaints(answer.document()))

    def _shut_out(self, answer: RestAnswer) -> AccessError:
        if self.token is None and self._socket is not None:
            hint = "This socket takes requests of its own user only, or wants a token."
        elif self.token is None:
            hint = "It wants a token: set SLURM_JWT, as by: export $(scontrol token)"
        elif self.token.has_ended:
            hint = "The token has ended: make a new one with scontrol token."
        else:
            hint = "The token may have ended or belong to another user: make a new one with scontrol token."
            hint += " Slurm 22.05 does not know bearer tokens." * self.token.is_bearer
        text = "; ".join(complaint.text for complaint in complaints(answer.document()))
        return AccessError(
            f"Slurm does not let us in (HTTP status {answer.status}{': ' * bool(text)}{text})",
            where=self.url,
            hint=hint,
        )

    def _late(self) -> LostAnswerError:
        return LostAnswerError(
            f"no answer within {self._timeout_s:g} s",
            where=self.url,
            hint="The controller may be busy or down, or a listing too long for the time-out.",
        )

    def _unreachable(self, error: httpx.TransportError) -> UnavailableError:
        """Return the error for an unreachable server; the request was certainly not sent."""
        why, words, hint = "cannot be reached", str(error), _IS_IT_RUNNING
        if self._socket is not None:
            if "Permission" in words:
                why, hint = "the socket must not be opened by this user", "Ask for access, or use another address."
            else:
                why = "nobody listens at the socket"
        elif "CERTIFICATE_VERIFY_FAILED" in words:
            why = "its certificate is not to be trusted: " + words.partition("failed: ")[2].partition(" (_ssl")[0]
            hint = "Name the file of the authority that signed it (verify = FILE)."
        elif isinstance(error.__cause__, ssl.SSLError) or "SSL" in words:
            why, hint = "it does not speak TLS as we do", "Perhaps the address begins with http, not https."
        elif "Name or service" in words or "resolve" in words or "No address" in words:
            why, hint = "there is no host of that name", "Check the address."
        elif isinstance(error, httpx.TimeoutException):
            why = "it does not answer the call"
        elif "refused" in words.lower():
            why = "nobody listens there"
        return UnavailableError(why, where=self.url, hint=hint)


def _in_time(pieces: Iterable[bytes], deadline_s: float) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        if time.monotonic() > deadline_s:
            raise httpx.ReadTimeout("it drips")
    if time.monotonic() > deadline_s:  # the error may come from shutting down the connection
        raise httpx.ReadTimeout("it came late")


def is_in_clear(url: str) -> bool:
    """Whether data sent to an address leaves this host without TLS.

    Examples
    --------
    >>> [is_in_clear(url) for url in ("http://slurm:6820", "https://slurm:6820", "http://[::1]:6820", "unix:///s.sock")]
    [True, False, False, False]
    """
    return urlsplit(url).scheme == "http" and not _is_plain_loopback(url)


def _is_plain_loopback(url: str) -> bool:
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost" or host.endswith(".localhost")
    return parts.scheme == "http" and is_loopback


def _has_no_access(answer: RestAnswer) -> bool:
    return answer.status in {401, 403, 407, 511}


def _no_proxy(error: Exception) -> InputError:
    """Return the error for a variable whose proxy cannot be used."""
    proxies = {name: value for name, value in os.environ.items() if name.upper() in _PROXIES and value}
    needs_more = isinstance(error, ImportError)
    suspects = [name for name, value in proxies.items() if value.startswith("socks") == needs_more]
    why = "a SOCKS proxy, for which a package is missing" if needs_more else "no proxy's address"
    return InputError(
        f"is {why}",
        where=f"environment variable {' or '.join(suspects or proxies)}",
        hint="Mend or unset it, or name the host of slurmrestd in NO_PROXY.",
    )


def _is_absent(path: str) -> bool:
    try:
        return not Path(path).exists()
    except OSError:  # a folder without permission; the call will report it
        return False


def _understood(url: str) -> tuple[str | None, str]:
    """Split an address into the path of a socket, if it has one, and the prefix of the API's paths."""
    parts = urlsplit(url)
    if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
        return parts.path, "http://localhost"
    try:
        known = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known or parts.query or parts.fragment or parts.username is not None:
        raise InputError(
            "is no address of slurmrestd",
            where=f"{parts.scheme}://..." if parts.username is not None else url,
            hint="Write http://host:6820, https://host:6820 or unix:///path/to/slurmrestd.sock.",
        )
    return None, url.rstrip("/")
