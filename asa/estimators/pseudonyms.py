"""Pseudonyms in an exported bank: even with a list of users nobody can tell whose jobs are whose.

A bank itself has users as short hashes, which a list of names reverses; and ids of learned records are digests of their
content, including users. An export has new ones of both, made with a secret that stays in the bank's folder.
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
_LEARNED = re.compile(r"job-[0-9a-f]{24}")  # a digest of a job; other ids are drawn
_PSEUDONYM = re.compile(r"~[0-9a-f]{16}")  # longer than the hashes in a bank, which thereby stay apart


class Pseudonyms:
    """New names for a bank's users and ids: the same in each export of this bank, different in all others.

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
        """Give those of a bank, from its first export on; where its secret cannot be kept, such as no export had."""
        secret = secrets.token_bytes(_SECRET_BYTES)
        if (before := cls.before(folder)) is not None:
            return before
        with suppress(OSError):
            if not (folder / _FILE).exists():  # another user's, of a bank that is shared, stays
                put(folder / _FILE, secret, is_private=True, is_durable=True)
        return cls(secret)

    @classmethod
    def before(cls, folder: Path) -> Pseudonyms | None:
        """Give those that a bank was exported with; None if it was not."""
        with suppress(OSError):
            if len(kept := read_file(folder / _FILE)) == _SECRET_BYTES:
                return cls(kept)
        return None

    def user(self, user: str) -> str:
        """Give another name for a user, which names itself."""
        return user if not user or _PSEUDONYM.fullmatch(user) else f"~{self._digest('user', user, 8)}"

    def id(self, name: str) -> str:
        """Give another id for one that is a digest of a job."""
        return f"given-{self._digest('id', name, 12)}" if _LEARNED.fullmatch(name) else name

    def _digest(self, kind: str, text: str, size: int) -> str:
        data = f"{kind}\0{text}".encode(errors="surrogatepass")
        return blake2s(data, key=self._secret, digest_size=size).hexdigest()
