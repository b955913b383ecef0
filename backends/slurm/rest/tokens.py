"""Reads the token for slurmrestd, and renews it.

A token is a secret: it never appears in a message, a log or a `repr`.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from asa.core.documents import read_json, read_text
from asa.core.reading import SMALL_BYTES, run_command
from asa.errors import AccessError

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
_AGAIN_S = 15.0
_MIN_HIDDEN = 8  # minimum length in characters: a shorter token may be a part of any word


class TokenSource:
    """A token that is read again before it expires, and after it was refused.

    `bearer`: send it as ``Authorization: Bearer``, which some proxies need, instead of in Slurm's own header; 22.05
    does not support it.

    Examples
    --------
    >>> source = TokenSource(lambda: "SLURM_JWT=abc", name="a test")
    >>> source.headers("me")
    {'X-SLURM-USER-TOKEN': 'abc', 'X-SLURM-USER-NAME': 'me'}
    >>> source
    TokenSource(a test)
    """

    def __init__(
        self,
        read: Callable[[], str],
        *,
        name: str,
        bearer: bool = False,
        margin_s: float = 120.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._read, self._name, self._bearer, self._margin_s, self._clock = read, name, bearer, margin_s, clock
        self._token = ""
        self._claims: dict[str, Any] = {}
        self._again_s = 0.0

    @classmethod
    def from_environment(cls, variable: str = "SLURM_JWT", *, bearer: bool = False) -> TokenSource:
        """Read the token from an environment variable of this process."""

        def read() -> str:
            if not (text := os.environ.get(variable, "")):
                raise AccessError(
                    f"the environment variable {variable} has no token",
                    hint=f"Make one: export $(scontrol token) sets SLURM_JWT; {variable} is read.",
                )
            return text

        return cls(read, name=f"environment variable {variable}", bearer=bearer)

    @classmethod
    def from_file(cls, path: str | Path, *, bearer: bool = False) -> TokenSource:
        """Read the token from a file, which may be rewritten meanwhile."""

        def read() -> str:
            try:
                return read_text(path, errors="replace", max_bytes=SMALL_BYTES)
            except OSError as error:
                raise AccessError(
                    f"the token cannot be read: {error.strerror or type(error).__name__}",
                    where=str(path),
                    hint="Write one into it: scontrol token > FILE; only you should be able to read it.",
                ) from error

        return cls(read, name=f"file {path}", bearer=bearer)

    @classmethod
    def from_command(cls, command: Sequence[str], *, bearer: bool = False, timeout_s: float = 30.0) -> TokenSource:
        """Read the token from the output of a command, such as ``scontrol token lifespan=3600``."""
        words = list(command)

        def read() -> str:
            try:
                done = run_command(words, timeout_s=timeout_s, max_bytes=SMALL_BYTES)
            except subprocess.TimeoutExpired:
                why = f"did not end within {timeout_s:g} s"
            except OSError as error:
                why = f"cannot be run: {error.strerror or type(error).__name__}"
            else:
                if done.returncode == 0:
                    return done.stdout
                why = f"ended with exit code {done.returncode}"
            # neither message nor cause contains the output, which may hold a token
            raise AccessError(f"the command that gives the token {why}", where=words[0], hint="Run it by hand.")

        return cls(read, name=f"command {words[0]}", bearer=bearer)

    @property
    def ends_s(self) -> float | None:
        """Time at which the present token expires, in seconds since 1970; None if the token has none."""
        ends = self._claims.get("exp")
        return float(ends) if isinstance(ends, int | float) else None

    @property
    def has_ended(self) -> bool:
        """Whether the present token has expired, by this machine's clock."""
        return self.ends_s is not None and self._clock() >= self.ends_s

    @property
    def is_bearer(self) -> bool:
        """Whether the token is sent as ``Authorization: Bearer``."""
        return self._bearer

    @property
    def user(self) -> str:
        """The user of the present token; empty if it does not say."""
        user = self._claims.get("sun")
        return user if isinstance(user, str) else ""

    def current(self) -> str:
        """Return the token; a new one if it expires soon."""
        if not self._token:
            self._take()
        elif self.ends_s is not None and self._clock() > max(self.ends_s - self._margin_s, self._again_s):
            self._again_s = self._clock() + _AGAIN_S
            try:
                self._take()
            except AccessError:
                if self._clock() >= self.ends_s:
                    raise
        return self._token

    def renew(self) -> bool:
        """Read the token again after a refusal; return whether it has changed."""
        before = self._token
        self._take()
        return self._token != before

    def headers(self, user: str) -> dict[str, str]:
        """Return the HTTP headers with the token, for a user or, if empty, for the token's user."""
        token = self.current()
        if self._bearer:
            return {"Authorization": f"Bearer {token}"}
        user = user or self.user  # 22.05 does not read the user from the token
        return {"X-SLURM-USER-TOKEN": token} | ({"X-SLURM-USER-NAME": user} if user else {})

    def hidden(self, body: bytes) -> bytes:
        """Remove the present token and its signature from a server's answer, which may repeat the request.

        Examples
        --------
        >>> source = TokenSource(lambda: "header.claims-of-a-user.signature-0123456789", name="a test")
        >>> _ = source.headers("me")
        >>> source.hidden(b"no such token: header.claims-of-a-user.signature-0123456789; bad signature-0123456789")
        b'no such token: (the token); bad (the token)'
        """
        for part in (self._token, self._token.rpartition(".")[2]):
            if len(part) >= _MIN_HIDDEN:
                for spelt in (part, part.replace("/", "\\/")):  # some JSON writers escape slashes
                    body = body.replace(spelt.encode(), b"(the token)")
        return body

    def __repr__(self) -> str:
        return f"TokenSource({self._name})"

    def _take(self) -> None:
        lines = [line.strip() for line in self._read().splitlines() if line.strip()]
        named = [line.partition("SLURM_JWT=")[2] for line in lines if "SLURM_JWT=" in line]
        token = (named or lines or [""])[-1].strip("'\" ")
        if not _TOKEN.fullmatch(token):
            raise AccessError(
                f"the {self._name} gives no token" + (", but something else" if token else ""),
                hint="What is wanted is the output of: scontrol token",
            )
        self._token, self._claims = token, _claims(token)


def _claims(token: str) -> dict[str, Any]:
    """Return the claims of a JWT, without verification; none if it is no JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = read_json(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}
