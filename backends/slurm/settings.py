"""A user's settings for a Slurm site, checked.

Any mistake becomes an `asa.errors.InputError` whose `where` is the setting's name; the caller adds the file or option
from which it came.
"""

from __future__ import annotations

import difflib
import pwd
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, ValidationError, model_validator

from asa.core import words
from asa.errors import InputError, UnknownNameError
from asa.units import parse_duration

from .link import MEMBERS
from .resizing import ResizingSettings

DEFAULT_POLL_S = 2.0
_USUAL_ARRAY_SIZE = 1001

_YES_OR_NO = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_CLUSTER = re.compile(r"\w[\w.-]*")
_SECRETIVE = re.compile(r"token|jwt|password|secret|bearer", re.IGNORECASE)


def _duration(value: object) -> float:
    hint = "write it in quotes with its unit, such as 30s or 2m"
    if not isinstance(value, str) or value.strip().isdecimal():
        raise ValueError(hint)
    try:
        seconds = parse_duration(value)
    except InputError as error:
        raise ValueError(f"{error.message}; {hint}") from error
    if seconds <= 0:
        raise ValueError("give more than no time at all")
    return seconds


def _whole_path(value: object) -> Path:
    try:
        path = Path(str(value)).expanduser()
    except RuntimeError as error:
        raise ValueError("is in no home folder that is known here: write the whole path") from error
    if not path.is_absolute():
        raise ValueError("write the whole path, or begin it with ~")
    return path


def _version(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"(v0\.0\.\d+)?", value):
        raise ValueError("write it as v0.0.42")
    return value


def _words(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return words.split(value)
    except ValueError as error:
        raise ValueError(f"{error}, so the shell could not read it either") from error


def _verification(value: object) -> object:
    """Parse yes or no, or the path of a file with certificate authorities."""
    if not isinstance(value, str):
        return value
    if (word := value.strip().lower()) in _YES_OR_NO:
        return _YES_OR_NO[word]
    file = _whole_path(value)
    if not file.is_file():
        raise ValueError(f"there is no file {file}")
    return str(file)


def _cluster(value: object) -> object:
    if isinstance(value, str) and value and not _CLUSTER.fullmatch(value):
        raise ValueError(f"{value!r} is no name of one cluster: give one, as `sacctmgr show cluster` shows it")
    return value


def _account(value: object) -> object:
    """Parse the name of an account, or its number."""
    if value:
        uid_of(str(value))
    return str(value)


def uid_of(account: str) -> int:
    """Return an account's uid.

    Examples
    --------
    >>> uid_of("root"), uid_of("977")
    (0, 977)
    """
    try:
        return int(account) if account.isdecimal() else pwd.getpwnam(account).pw_uid
    except KeyError:
        raise ValueError(f"there is no account {account!r} here") from None


def _variables(value: object) -> object:
    """Parse ``A=1,B=2``, as `sbatch --export` takes it, or a table."""
    if not isinstance(value, str):
        return {str(k): str(v) for k, v in value.items()} if isinstance(value, Mapping) else value
    pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
    if any(not sign for _, sign, _ in pairs):
        raise ValueError("write variables as NAME=value,NAME=value")
    return {name.strip(): content for name, _, content in pairs}


Duration = Annotated[float, BeforeValidator(_duration)]
WholePath = Annotated[Path, BeforeValidator(_whole_path)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]


_RENAMED = {"most_poll": "max_poll", "most_queued": "max_queued"}


class SlurmSettings(ResizingSettings):
    """Settings for both links to Slurm; None or empty values are read from the site.

    `system`: name of the machine, under which waits are learned; by default the cluster's.
    `inherit`: whether jobs get the client's variables (without tokens), limits and umask, as with sbatch. Best false if
    the client is not on a computer of the cluster.
    `cores_per_node`, `max_cores`: for sites whose users get others than the site reports.
    `age_accrues`: whether a job gains priority while a dependency holds it.
    `kill_invalid_depend`: whether the site cancels jobs whose dependency can no longer be met.
    `shrink`: whether a running job may give nodes back, by `scontrol` on its first node.
    `max_queued`: upper bound of a user's jobs in the queue at a time; each element of a job array counts.
    `max_array_size`: Slurm's ``MaxArraySize``; 0 for no job arrays.
    `whole_nodes`: whether no two jobs share a node, so that small stages of a job run side by side on all of its cores.
    `charges`: what a user pays for: all ``allocated`` cores, or only ``used`` ones.
    `races`: whether several requests for the same work may be in the queue at a time.
    `max_together`: how many jobs that ask for the same are submitted with one command, as a job array; 1: each with its
    own. By REST, each is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    system: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    environment: Annotated[dict[str, str], BeforeValidator(_variables)] = Field(default_factory=dict)
    inherit: bool = True
    poll: Duration = DEFAULT_POLL_S
    max_poll: Duration = 60.0
    cores_per_node: int | None = Field(default=None, ge=1)
    max_cores: int | None = Field(default=None, ge=1)
    age_accrues: bool | None = None
    accounting: bool | None = None
    min_job_age: Duration | None = None
    kill_invalid_depend: bool | None = None
    max_queued: int | None = Field(default=None, ge=1)
    max_array_size: int | None = Field(default=None, ge=0)
    whole_nodes: bool | None = None
    charges: Literal["allocated", "used"] = "allocated"
    races: bool = True
    max_together: int = Field(default=100, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, values: Any) -> Any:
        """Convert settings in site files of earlier versions."""
        if not isinstance(values, dict):
            return values
        return {_RENAMED.get(name, name): value for name, value in values.items()}

    @property
    def says_all(self) -> bool:
        """Whether the settings have all values that would be read from Slurm's configuration."""
        return None not in (self.age_accrues, self.max_array_size) and self.says_how_resized

    def kinds_of_jobs(self, config: Mapping[str, str], changeable: Collection[str]) -> dict[str, Any]:
        """Return fields of `asa.backend.Capabilities`: job arrays, whether jobs may race, or be submitted together.

        An unknown upper bound of the size is taken as Slurm's default.
        """
        configured = config.get("MaxArraySize", "")
        own = int(configured) if configured.isdecimal() else _USUAL_ARRAY_SIZE
        size = own if self.max_array_size is None else self.max_array_size
        together = min(self.max_together, size, self.max_queued or size) if MEMBERS in changeable else 1
        return {"arrays": size > 0, "max_array_size": size, "races": self.races, "max_together": max(together, 1)}

    @property
    def longest_poll_s(self) -> float:
        """Upper bound of the seconds between two looks: the controller must still remember jobs that ended."""
        longest_s = max(self.max_poll, self.poll)
        if self.min_job_age is not None:
            longest_s = min(longest_s, self.min_job_age / 2)
        return max(longest_s, self.poll)


class RestSettings(SlurmSettings):
    """Settings for Slurm's REST daemon, besides those for any Slurm.

    `token_env`, `token_file`, `token_command`: source of the token, at most one of them; by default the variable
    ``SLURM_JWT``, if set.
    `bearer`: whether the token is sent as ``Authorization: Bearer``, which some proxies need.
    `verify`: whether the server's certificate is checked, or a file of the authorities that may sign it.
    `api`: a version of the interface such as ``v0.0.42``; by default the newest that both sides know.
    `allow_insecure`: whether the token may be sent to another host without TLS, where others on the network can read
    and use it.
    `served_by`: the account of a slurmrestd on this computer, if it is neither this user's nor root's.
    """

    url: str
    user: str = ""
    token_env: str = ""
    token_file: WholePath | None = None
    token_command: Words = ()
    bearer: bool = False
    verify: Annotated[StrictBool | str, BeforeValidator(_verification)] = True
    api: Annotated[str, BeforeValidator(_version)] = ""
    timeout: Duration = 30.0
    allow_insecure: bool = False
    served_by: Annotated[str, BeforeValidator(_account)] = ""

    @model_validator(mode="after")
    def _one_token_and_no_secret(self) -> Self:
        sources = [name for name in ("token_env", "token_file", "token_command") if getattr(self, name)]
        if len(sources) > 1:
            raise ValueError(f"{' and '.join(sources)} are given: a token comes from one of them")
        parts = urlsplit(self.url)
        if parts.username or parts.password:
            raise ValueError("url: holds a user or a password, which would be kept in the site file and the journal")
        if parts.scheme not in ("http", "https", "unix"):
            raise ValueError("url: begin it with https://, http:// or unix:///")
        return self


class CommandSettings(SlurmSettings):
    """Settings for Slurm's commands, besides those for any Slurm.

    `cluster`: another cluster of the site's accounting, whose jobs these are, as with ``sbatch --clusters``.
    `scrontab_options`: options of sbatch for jobs in the user's scrontab, such as ``--qos=cron``, which take precedence
    over the other settings.
    `offline`: whether no command is run, to show without Slurm what would be submitted.
    """

    prefix: Words = ()
    cluster: Annotated[str, BeforeValidator(_cluster)] = ""
    scrontab_options: Words = ()
    offline: bool = False
    timeout: Duration = 60.0


_Model = TypeVar("_Model", bound=SlurmSettings)


def check(model: type[_Model], settings: Mapping[str, Any]) -> _Model:
    """Parse settings from a site file or the command line.

    Raises `InputError`: there is no such setting, one is missing, or one is invalid; `where` is its name.

    Examples
    --------
    >>> check(CommandSettings, {"poll": "30s", "prefix": "ssh login"}).prefix
    ('ssh', 'login')
    """
    try:
        return model.model_validate(dict(settings))
    except ValidationError as error:
        raise _explained(model, error) from None  # without the cause, which would show values, perhaps a secret


def _explained(model: type[SlurmSettings], error: ValidationError) -> InputError:
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    key, known = str(first["loc"][0]) if first["loc"] else "", list(model.model_fields)
    if first["type"] == "extra_forbidden":
        return _unknown(key, known)
    if first["type"] == "missing":
        return InputError("is missing", where=key, hint=f"Give it: --option {key}=..., or a line in a site file.")
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] in {"bool_type", "bool_parsing"}:
        message = 'is neither "yes" nor "no"'
    if not key and (named := re.match(r"(\w+): (.*)", message)):
        key, message = named[1], named[2]
    return InputError(message, where=key or None, hint="Correct this setting.")


def _unknown(key: str, known: list[str]) -> InputError:
    if _SECRETIVE.search(key):
        hint = "Secrets are not settings: put the token into SLURM_JWT, or name token_file or token_command."
    else:
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        hint += f"Known: {', '.join(known)}."
    return UnknownNameError(f"there is no setting {key!r}", where=key, hint=hint)
