"""Pseudonyms in an exported bank: even a list of all users does not show whose jobs are whose.

A bank itself has short hashes in place of users, which a list of names reverses; and the ids of learned records are
digests of their content, including users. An export has new values of both, made with a secret that stays in the bank's
folder.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from hashlib import blake2s
from pathlib import Path

from asa.core.files import put, read_file

_FILE = ".export-secret"
_SECRET_BYTES = 32
_LEARNED = re.compile(r"job-[0-9a-f]{24}")  # a digest of a job; other ids are random
_PSEUDONYM = re.compile(r"~[0-9a-f]{16}")  # longer than the hashes in a bank, so that the two cannot be confused


class Pseudonyms:
    """Pseudonyms of a bank's users and ids: the same in each export of this bank, different in exports of other banks.

    `secret`: the key from which they are made.

    Examples
    --------
    >>> one, other = Pseudonyms(b"1"), Pseudonyms(b"2")
    >>> one.user("~2469988c"), one.user("~2469988c") == other.user("~2469988c"), one.user("")
    ('~7aca9ea8286a9fda', False, '')
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def of(cls, folder: Path) -> Pseudonyms:
        """Return a bank's pseudonyms; their secret is made at the first export, and temporary if it cannot be kept."""
        secret = secrets.token_bytes(_SECRET_BYTES)
        if (before := cls.before(folder)) is not None:
            return before
        with suppress(OSError):
            if not (folder / _FILE).exists():  # in a shared bank another user's secret is kept
                put(folder / _FILE, secret, is_private=True, is_durable=True)
        return cls(secret)

    @classmethod
    def before(cls, folder: Path) -> Pseudonyms | None:
        """Return the pseudonyms with which a bank was exported; None if it was not."""
        with suppress(OSError):
            if len(kept := read_file(folder / _FILE)) == _SECRET_BYTES:
                return cls(kept)
        return None

    def user(self, user: str) -> str:
        """Return the pseudonym of a user; an empty name stays empty."""
        return user if not user or _PSEUDONYM.fullmatch(user) else f"~{self._digest('user', user, 8)}"

    def id(self, name: str) -> str:
        """Return the pseudonym of an id; only ids that are digests of jobs are replaced."""
        return f"given-{self._digest('id', name, 12)}" if _LEARNED.fullmatch(name) else name

    def _digest(self, kind: str, text: str, size: int) -> str:
        data = f"{kind}\0{text}".encode(errors="surrogatepass")
        return blake2s(data, key=self._secret, digest_size=size).hexdigest()
