"""Finds the API version for an address: the newest that both sides know."""

from __future__ import annotations

import re
from collections.abc import Iterable

from asa.errors import AccessError, UnavailableError

from .dialects import KNOWN, Dialect, dialect, number_of
from .exchange import Exchange, LostAnswerError, RestAnswer, StrangerError

_CALLER = "negotiation"
_SERVED = re.compile(rb'"\\?/slurm\\?/v0\.0\.(\d+)\\?/')


class Versions:
    """The API version in use, found at the first call.

    `forced`: a version such as ``v0.0.42`` that is used without a request; empty to find one.
    """

    def __init__(self, exchange: Exchange, forced: str) -> None:
        self._exchange = exchange
        self._forced = number_of(forced) if forced else None
        self._dialect = dialect(self._forced) if self._forced else None

    def get(self) -> Dialect:
        """Return the dialect of the version.

        Raises `UnavailableError`: the server has no version that is known here, or is no slurmrestd.
        """
        if self._dialect is None:
            self._dialect = self._found()
        return self._dialect

    def forget(self) -> None:
        """Find the version again at the next use, as after an update of Slurm."""
        if self._forced is None:
            self._dialect = None

    def _found(self) -> Dialect:
        described, listed = self._listed()
        likely = [number for number in KNOWN if number in listed]
        answers = [described]
        # the server's description may be missing or wrong; its answers count
        for number in (*likely, *(number for number in KNOWN if number not in listed)):
            answer = self._exchange.ask(_CALLER, "GET", f"/slurm/v0.0.{number}/ping")
            if _is_served(answer):
                return dialect(number)
            answers.append(answer)
        raise self._nothing(answers, listed)

    def _listed(self) -> tuple[RestAnswer, set[int]]:
        try:
            answer = self._exchange.ask(_CALLER, "GET", "/openapi/v3")
        except StrangerError:
            raise
        except (AccessError, LostAnswerError):  # some sites hide this page; a request to the API shows the version
            return RestAnswer(404, b""), set()
        versions = _SERVED.findall(answer.body) if answer.status == 200 else []
        return answer, {int(number) for number in versions}

    def _nothing(self, answers: Iterable[RestAnswer], listed: set[int]) -> UnavailableError:
        answers = list(answers)
        url = self._exchange.url
        if any(answer.is_page for answer in answers):
            return UnavailableError(
                "a web page answers there, not slurmrestd", where=url, hint="Check host and port of the address."
            )
        if broken := [answer.status for answer in answers if answer.status >= 500]:
            return UnavailableError(f"answers with HTTP status {broken[0]}, as a proxy does", where=url)
        ours = ", ".join(f"v0.0.{number}" for number in reversed(KNOWN))
        if listed:
            theirs = ", ".join(f"v0.0.{number}" for number in sorted(listed))
            return UnavailableError(f"serves REST API {theirs}; known here are {ours}", where=url)
        return UnavailableError(
            f"serves none of the REST APIs that are known here: {ours}",
            where=url,
            hint="Is it slurmrestd that listens there? Its plug-ins are chosen by slurmrestd -s.",
        )


def _is_served(answer: RestAnswer) -> bool:
    """Whether slurmrestd itself answered, even if its controller does not."""
    document = answer.document()
    return answer.status not in {404, 405} and bool(document.keys() & {"meta", "pings", "errors"})
