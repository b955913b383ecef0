"""Which variables of a user's shell hold secrets: these go on to nobody who has not asked for them by name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from asa.errors import InputError

# words of a name, at its end also in one with what is before it, as in PGPASSWORD
_SECRET = frozenset({"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "CREDENTIAL", "JWT"})
_SECRET_ALONE = frozenset({"TOKENS", "SECRETS", "PASSWORDS", "PASS", "PWD", "PW", "CREDENTIALS", "COOKIE", "PAT"})
_KEY, _AUTH = frozenset({"KEY", "KEYS"}), "AUTH"
_NO_SECRET_KEY = frozenset({"PUBLIC", "LICENSE", "LICENCE", "SORT", "PARTITION", "PRIMARY", "GROUP", "CACHE", "HOST"})
_PLACE = frozenset({"FILE", "PATH", "DIR", "FOLDER", "HOME", "SOCK", "SOCKET", "URL", "URI", "CONFIG"})
_OF_NO_SECRET = re.compile(r"|[-+]?[0-9.]{1,7}|true|false|yes|no|on|off|none", re.IGNORECASE)
_VALUE = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,15}://[^/\s:@]*:[^/\s@]+@"  # a password in an address
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|^eyJ[\w-]+\.eyJ[\w-]+\."  # a JWT
    r"|^(gh[opsu]_|github_pat_|glpat-|hf_|xox[abps]-|sk-|pypi-|npm_)[\w-]{16,}$"
    r'|"auths?"\s*:',  # of registries of containers
    re.IGNORECASE,
)


def is_secret(name: str, value: str) -> bool:
    """Say whether a variable holds a secret, by the words of its name, or by what is unmistakable in its value.

    The place of a file is none, nor is a small number or a yes or no.

    Examples
    --------
    >>> [is_secret(*one) for one in (("HF_TOKEN", "hf_x"), ("PGPASSWORD", "x"), ("AWS_SECRET_ACCESS_KEY", "x"))]
    [True, True, True]
    >>> [is_secret(*one) for one in (("TOKENIZERS_PARALLELISM", "false"), ("MAX_TOKENS", "4096"), ("PATH", "/bin"))]
    [False, False, False]
    """
    if name.startswith("BASH_FUNC_"):
        return False
    return bool(_VALUE.search(value)) or (_sounds_secret(name) and not _is_harmless(name, value))


def secrets_of(variables: Mapping[str, str]) -> list[str]:
    """Name those that hold secrets."""
    return sorted(name for name, value in variables.items() if is_secret(name, value))


def asked(names: Iterable[str]) -> dict[str, str]:
    """Give the variables of this process that a job asks for by name, since secrets do not go on by themselves.

    Raises `InputError`: one is not set here, and the job would begin without it.
    """
    wanted = {name: os.environ.get(name) for name in names}
    if absent := [name for name, value in wanted.items() if value is None]:
        raise InputError(
            f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not set here, and a stage asks for it",
            where="secrets",
            hint=f"Set it, as by: export {absent[0]}=...; and go on. A client that cron, a timer or another computer "
            "begins has only what is set there.",
        )
    return {name: value for name, value in wanted.items() if value is not None}


def _sounds_secret(name: str) -> bool:
    words = [word for word in re.split(r"[^A-Z]+", name.upper()) if word]
    if any(word in _SECRET_ALONE or word.endswith(tuple(_SECRET)) for word in words):
        return True
    has_key = any(word in _KEY and before not in _NO_SECRET_KEY for before, word in pairwise(words))
    return has_key or words[-1:] == [_AUTH]


def _is_harmless(name: str, value: str) -> bool:
    if _OF_NO_SECRET.fullmatch(value):
        return True
    is_place = value.startswith(("/", "~", "./", "file:"))
    return is_place and (name.upper().rpartition("_")[2] in _PLACE or _is_there(value))


def _is_there(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False
