"""Sites: a user's settings for a batch system, kept in a small file and opened by name.

A site file is TOML, with the backend and its settings at the top:

.. code-block:: toml

    backend = "slurm-rest"
    url = "https://slurm.example.org:6820"
    partition = "batch"
    strategy = "asa-plan"       # of `asa run` there, unless --strategy is given
    notify = "ann@example.org"  # who is notified of its runs, unless --notify is given
    price = "1 h = 200 core-hours"  # what an hour sooner is worth, unless --price or a strategy says it

    # Findings of `asa doctor`, which rewrites this part; settings above take precedence.
    [observed]
    version = "24.11.5"

    [observed.settings]
    age_accrues = false

Files are in a folder (`sites_folder`), where a site's name is the file's stem, or are given by path.
"""

from __future__ import annotations

import inspect
import math
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from asa.backend import Facility, Setting, Site
from asa.core import plugins, safe
from asa.core.documents import open_file, read_text, read_toml
from asa.core.files import in_words, replacing, without_tilde
from asa.core.late import dataclass
from asa.errors import InputError, UnknownNameError, near
from asa.units import parse_duration, parse_price
from asa.workflow import MAX_INPUT_PATIENCE_S

__all__ = [
    "OpenedSite",
    "SiteFile",
    "facilities",
    "open_facility",
    "read_site",
    "save_site",
    "site_names",
    "sites_folder",
]

_GROUP = "asa.backends"
_FINDS = "found_here"  # a method of backends that see by themselves whether they are of use on this computer
_OBSERVED = "observed"
_STRATEGY = "strategy"
_NOTIFY = "notify"
_PRICE = "price"
_SHARE = "share"
_INPUT_PATIENCE = "input_patience"
_CLUSTERS, _CLUSTER, _MOVES = "clusters", "cluster", "moves"
_OF_CLUSTERS = frozenset({_CLUSTERS, _CLUSTER, _MOVES})
_DEFAULT = "default"
_LOCAL = "local"
_OBSERVED_HEADING = re.compile(r"\s*\[\s*observed\s*(\.|\])")
_HEADING = re.compile(r"\s*\[")
_A_CLUSTER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PREFACE = "# What `asa doctor` found. It writes this part anew; what is set above wins."


@dataclass(frozen=True, slots=True)
class SiteFile:
    """The content of a site file.

    Parameters
    ----------
    path
        The file.
    backend
        Name of the backend; empty if not set.
    settings
        Settings of the backend by the user.
    observed
        Findings of `asa doctor`; their ``settings`` are defaults for settings that the user has not set.
    strategy
        Name of the strategy of runs there; empty if not set.
    notify
        Who is notified of runs there: a command or an address; empty for nobody.
    input_patience_s
        How many seconds stages there look for their inputs if they do not say so themselves; None if not set.
    share
        Who else may look at runs there: ``group``, or empty for nobody.
    price
        What time is worth there in core-hours, as `asa.units.parse_price` reads it; empty if not set.
    """

    path: Path
    backend: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    observed: Mapping[str, Any] = field(default_factory=dict)
    strategy: str = ""
    notify: str = ""
    input_patience_s: float | None = None
    share: str = ""
    price: str = ""

    @property
    def found(self) -> dict[str, Any]:
        """Settings that `asa doctor` found and the user has not set."""
        observed_settings = self.observed.get("settings", {})
        return {key: value for key, value in observed_settings.items() if key not in self.settings}


@dataclass(frozen=True, slots=True)
class OpenedSite:
    """A facility, and all that is needed to open it again.

    Parameters
    ----------
    backend
        Name of its backend.
    facility
        The opened facility.
    settings
        The settings that it was opened with: `open_facility` with this backend and these settings opens it again. They
        contain no secret, unless the user has put one into `environment`, the variables of jobs.
    file
        The site file, if there is one.
    why
        Why this site was chosen, if the user named none; else empty.
    strategy
        Name of the strategy of runs there; empty if not set.
    notify
        Who is notified of runs there: a command or an address; empty for nobody.
    input_patience_s
        How many seconds stages there look for their inputs if they do not say so themselves; None if not set.
    share
        Who else may look at runs there: ``group``, or empty for nobody.
    price
        What time is worth there in core-hours, as `asa.units.parse_price` reads it; empty if not set.
    """

    backend: str
    facility: Facility
    settings: Mapping[str, Any]
    file: Path | None = None
    why: str = ""
    strategy: str = ""
    notify: str = ""
    input_patience_s: float | None = None
    share: str = ""
    price: str = ""

    @property
    def is_found(self) -> bool:
        """Whether this is a batch system that was taken since the user named none."""
        return bool(self.why) and self.backend != _LOCAL


def sites_folder() -> Path:
    """Return the site files' folder: ``$ASA_SITES``, else ``asa/sites`` in ``$XDG_CONFIG_HOME`` or ``~/.config``."""
    if own := os.environ.get("ASA_SITES"):
        return Path(own)
    configuration = os.environ.get("XDG_CONFIG_HOME")
    return (Path(configuration) if configuration else Path.home() / ".config") / "asa" / "sites"


def site_names() -> list[str]:
    """Return the names of the sites in the folder."""
    return sorted(file.stem for file in sites_folder().glob("*.toml"))


def site_path(site: str) -> Path:
    """Return the path of a site's file, which need not exist: a name is looked up in the folder, a path stays as it is.

    Examples
    --------
    >>> str(site_path("./here.toml"))
    'here.toml'
    """
    is_path = os.sep in site or site.endswith(".toml")
    return without_tilde(site, "site") if is_path else sites_folder() / f"{site}.toml"


def read_site(site: str) -> SiteFile:
    """Read a site file.

    Parameters
    ----------
    site
        Name or path of the site file.

    Raises
    ------
    UnknownNameError
        There is no site of that name.
    InputError
        The file cannot be read.
    OwnerError
        Others own the file or can change it; it names commands that asa would run.
    """
    path = site_path(site)
    try:
        document = read_toml(safe.read(path, open_file).decode("utf-8-sig"))
    except FileNotFoundError:
        if path.parent == sites_folder():
            raise _no_such_site(site) from None
        raise InputError("there is no such file", where=str(path), hint="Check the path.") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint="Check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text", where=str(path), hint="Save it as UTF-8.") from error
    except ValueError as error:
        raise InputError(f"is not valid TOML: {error}", where=str(path), hint="Correct the syntax there.") from error
    return _site_of(path, document)


def _site_of(path: Path, document: dict[str, Any]) -> SiteFile:
    """Check a site file's settings for runs; the remaining settings are for its backend."""
    observed = document.pop(_OBSERVED, {})
    patience_s = _patience_s(path, document.pop(_INPUT_PATIENCE, None))
    price = _price_of(path, document.pop(_PRICE, ""))
    backend, strategy, notify, share = (document.pop(key, "") for key in ("backend", _STRATEGY, _NOTIFY, _SHARE))
    if not isinstance(backend, str):
        raise InputError("is no name", where=location(path, "backend"), hint=_known_backends())
    if not isinstance(strategy, str):
        raise InputError("is no name", where=location(path, _STRATEGY), hint="`asa list` shows the strategies.")
    if not isinstance(observed, dict) or not isinstance(observed.get("settings", {}), dict):
        raise InputError(
            "is not as `asa doctor` writes it",
            where=location(path, _OBSERVED),
            hint="Delete this part, and save again.",
        )
    if not isinstance(notify, str):
        raise InputError(
            "is neither a command nor an address", where=location(path, _NOTIFY), hint="Write it in quotes."
        )
    _check_share(share, location(path, _SHARE) if share else "")
    return SiteFile(path, backend, document, observed, strategy, notify, patience_s, share, price)


def _check_share(value: object, where: str) -> None:
    if value not in ("", "group"):
        raise InputError(
            f"{value!r} is nobody with whom runs can be shared", where=where, hint='Write "group", or leave it out.'
        )


def _price_of(path: Path, value: object) -> str:
    """Check a price of time, which may be a number of seconds for a core-hour."""
    if value == "":
        return ""
    price = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else "no price"
    try:
        parse_price(price)
    except InputError as error:
        message = error.message if isinstance(value, str) else f"{value!r} is no price of time"
        raise InputError(message, where=location(path, _PRICE), hint=error.hint) from None
    return price


def _patience_s(path: Path, value: object) -> float | None:
    if value is None:
        return None
    try:
        patience_s = parse_duration(value) if isinstance(value, str) else math.nan
    except InputError:
        patience_s = math.nan
    if not 0 <= patience_s <= MAX_INPUT_PATIENCE_S:
        where = location(path, _INPUT_PATIENCE)
        raise InputError("is not a time of up to an hour", where=where, hint='Write it as in "1min" or "10s".')
    return patience_s


def facilities() -> list[str]:
    """Names of the backends that are batch systems to which a client can connect."""
    return [name for name in plugins.names(_GROUP) if _is_facility(_loaded(name))]


def open_facility(
    backend: str | None = None, site: str | None = None, settings: Mapping[str, Any] | None = None
) -> OpenedSite:
    """Open a batch system by the user's settings; of settings given twice, the later wins.

    Settings come from the findings of `asa doctor`, then the site file, then `settings`; later ones win. If neither a
    backend nor a site is named, this takes the only site, the one called ``default``, or a backend that finds its
    commands on this computer; failing these, this computer itself.

    Parameters
    ----------
    backend
        Its name in ``asa.backends``, or how the names of several begin, as ``slurm``: then the one that takes the
        settings; the site file's if not given.
    site
        Name or path of a site file.
    settings
        Of the backend; all may be text.

    Returns
    -------
    OpenedSite
        It has not been contacted yet.

    Raises
    ------
    InputError
        There is no such backend or site, one cannot connect to it, or a setting is invalid. The message names the
        setting, and where it is set.
    """
    given, why = dict(settings or {}), ""
    share = given.pop(_SHARE, "")
    _check_share(share, f"--option {_SHARE}")
    if backend is None and site is None and _CLUSTERS not in given:
        backend, site, why = _found_here()
    file = read_site(site) if site is not None else None
    name = backend or (file.backend if file else "")
    if _CLUSTERS in {**(file.settings if file else {}), **given}:
        return _of_clusters(name, file, given, _sources(file, given), share)
    if file and not name:
        raise InputError("does not say which backend it is for", where=str(file.path), hint=_known_backends())
    if members := _family(name):
        name, why = _member(members, file, {**(file.settings if file else {}), **given})
    if file and file.backend and name not in (file.backend, *_family(file.backend)):
        raise InputError(
            f"is for backend {file.backend!r}, not {name!r}", where=str(file.path), hint="Name one of the two alone."
        )
    made = _loaded(name)
    if not _is_facility(made):
        raise _not_a_facility(name)
    sources = _sources(file, given)
    merged = {**(file.found if file else {}), **(file.settings if file else {}), **given}
    try:
        _check_names(made, merged)
        facility = made(**merged)
    except InputError as error:
        raise type(error)(error.message, where=sources.get(error.where or "", error.where), hint=error.hint) from error
    if not isinstance(facility, Facility):
        raise _not_a_facility(name)
    if isinstance(facility, Site):
        from asa.estimators import readiness  # noqa: PLC0415 - it loads numpy, which others do not need

        readiness.prefer_on_simulator()
    return OpenedSite(
        name,
        facility,
        merged,
        file.path if file else None,
        why,
        *((file.strategy, file.notify, file.input_patience_s) if file else ("", "", None)),
        share=share or (file.share if file else ""),
        price=file.price if file else "",
    )


def _of_clusters(
    backend: str, file: SiteFile | None, given: Mapping[str, Any], sources: Mapping[str, str], share: str
) -> OpenedSite:
    """Open a site of several clusters: each is a site file of that name, or a table of settings, or both.

    A table that names its backend is complete by itself. A name with neither is a cluster of the same accounting, with
    the settings of this site. What is `given` for one command goes before all of it.
    """
    from asa.clusters import SeveralClusters  # noqa: PLC0415 - few sites have several

    backend = backend or "slurm"
    if not any(hasattr(_loaded(one), "connect_among_others") for one in _family(backend) or [backend]):
        hint = "Only Slurm has them, by its commands or its REST API."
        raise InputError(f"backend {backend!r} has no clusters to choose from", where=sources.get(_CLUSTERS), hint=hint)
    own, for_all = (
        {k: v for k, v in of.items() if k not in _OF_CLUSTERS} for of in (file.settings if file else {}, given)
    )
    settings = {**(file.settings if file else {}), **given}
    tables, where = settings.get(_CLUSTER, {}), sources.get(_CLUSTERS, "")
    names = _names_of_clusters(settings[_CLUSTERS], tables, where)
    try:
        moves_s = parse_duration(str(settings.get(_MOVES, "0s")))
    except InputError as error:
        raise InputError(error.message, where=sources.get(_MOVES, _MOVES), hint=error.hint) from error
    members: dict[str, OpenedSite] = {}
    for name in names:
        table = dict(tables.get(name, {}))
        of_table = str(table.pop("backend", ""))
        is_site = not of_table and site_path(name).exists() and (file is None or site_path(name) != file.path)
        of_member = {**({} if is_site or of_table else {**own, _CLUSTER: name}), **table, **for_all}
        try:
            members[name] = open_facility(
                None if is_site else of_table or backend, name if is_site else None, of_member
            )
        except InputError as error:
            setting = (error.where or "").removeprefix("--option ")  # it may be in a table
            place = f"{where}: cluster {name!r}" + (f", {setting}" if setting else "")
            raise InputError(error.message, where=place, hint=error.hint) from error
    kept = {name: {"backend": member.backend, **member.settings} for name, member in members.items()}
    return OpenedSite(
        next(iter(members.values())).backend,
        SeveralClusters({name: member.facility for name, member in members.items()}, moves_s=moves_s),
        {_CLUSTERS: names, _CLUSTER: kept, _MOVES: f"{moves_s:g}s"},
        file.path if file else None,
        "",
        *((file.strategy, file.notify, file.input_patience_s) if file else ("", "", None)),
        share=share or (file.share if file else ""),
        price=file.price if file else "",
    )


def _names_of_clusters(given: object, tables: object, where: str) -> list[str]:
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) and _A_CLUSTER.fullmatch(name) for name in names):
        raise InputError("is no list of clusters", where=where, hint='As in clusters = ["big", "small"].')
    if len(set(names)) < max(len(names), 2):
        raise InputError(
            "are not several", where=where, hint="Name two or more, each once; of one, the setting is `cluster`."
        )
    if isinstance(tables, str):
        hint = f"For a run on that one alone, take another site: --backend slurm --option {_CLUSTER}={tables}."
        raise InputError(f"are several, and `{_CLUSTER}` names one of them", where=where, hint=hint)
    if not isinstance(tables, Mapping) or not all(isinstance(table, Mapping) for table in tables.values()):
        hint = "Beside `clusters`, each has a table of its settings, as in [cluster.big]."
        raise InputError(f"`{_CLUSTER}` has no settings by cluster", where=where, hint=hint)
    if strangers := [name for name in tables if name not in names]:
        raise UnknownNameError(f"there is no cluster {strangers[0]!r}", where=where, hint=f"Known: {', '.join(names)}.")
    return names


def save_site(
    site: str,
    *,
    backend: str,
    settings: Mapping[str, Any],
    observed: Mapping[str, Setting],
    found: Mapping[str, Setting],
) -> Path:
    """Write or update a site file; its user's lines and comments stay as they are.

    Parameters
    ----------
    site
        Name or path.
    backend
        The backend's name.
    settings
        What the user sets: replaces values of the same keys in the file; all others stay.
    observed
        What was found, for people.
    found
        Settings that were found. Earlier ones that were not found now stay.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        The file cannot be written, or its form is one that only its user can edit.
    """
    path = site_path(site)
    before = read_site(site) if path.exists() else SiteFile(path)
    if before.backend not in ("", backend):
        raise InputError(
            f"is for backend {before.backend!r}, not {backend!r}", where=str(path), hint="Save under another name."
        )
    wanted = {**before.settings, **settings}
    new = {"backend": backend, **settings} if not before.backend else dict(settings)
    top, tables = _own_lines(path)
    for key, value in new.items():
        if {**before.settings, "backend": before.backend}.get(key) != value:
            top = _with_key(top, key, value)
    remembered = {**before.observed.get("settings", {}), **found}
    own = "\n".join([*_trimmed(top), *([""] * bool(tables)), *_trimmed(tables)])
    text = f"{own}\n\n{_observed_text(observed, remembered)}"
    _check_text(path, text, SiteFile(path, backend, wanted, {**observed, "settings": remembered}))
    _write(path, text)
    return path


# ---------------------------------------------------------------------- finding and making facilities


def saved_site() -> str:
    """Name the site that is used where none is named: the only site, or the site called ``default``; empty for none."""
    sites = site_names()
    return sites[0] if len(sites) == 1 else _DEFAULT if _DEFAULT in sites else ""


def _found_here() -> tuple[str | None, str | None, str]:
    """Find a site where the user has named none: the backend or the site, and why."""
    sites = site_names()
    if len(sites) == 1:
        return None, sites[0], f"it is the only site file in {sites_folder()}"
    if _DEFAULT in sites:
        return None, _DEFAULT, f"it is the site file of that name in {sites_folder()}"
    if sites:
        raise InputError(
            f"there are {len(sites)} sites: {', '.join(sites)}",
            where="--site",
            hint=f"Name one of them with --site. One called {_DEFAULT!r} is used by default.",
        )
    for name in plugins.names(_GROUP):
        if not plugins.mentions(_GROUP, name, _FINDS):
            continue  # importing all backends takes seconds, and most find nothing
        made = _loaded(name)
        look = getattr(made, _FINDS, None) if _is_facility(made) else None
        if look is not None and (why := look()):
            return name, None, str(why)
    return _LOCAL, None, "there is no site file, and no batch system's commands are on this computer"


def _family(name: str) -> list[str]:
    """Name the backends of a batch system that a user may name as a whole: `slurm` for `slurm-cli`."""
    every = plugins.names(_GROUP) if name else []
    return (
        []
        if name in every
        else [other for other in every if other.startswith(f"{name}-") and _is_facility(_loaded(other))]
    )


def _member(members: list[str], file: SiteFile | None, settings: Mapping[str, Any]) -> tuple[str, str]:
    """Choose among the backends of one batch system, with the reason: the site file, or else the given settings."""
    if file and file.backend in members:
        return file.backend, f"{file.path} is for it"
    fits = {name: _fit(_loaded(name), settings) for name in members}
    fitting = [name for name in members if fits[name] == max(fits.values())]
    for name in fitting:
        if why := getattr(_loaded(name), "found_here", str)():
            return name, str(why)
    return fitting[0], f"{', '.join(name for name in members if name != fitting[0])} would take other options"


def _fit(made: Any, settings: Mapping[str, Any]) -> int:
    """Rate how well settings fit a backend: 2 if they suffice, 1 if it takes others or more, 0 if one is missing.

    2 if they suffice, 1 if it takes others or more, 0 if a required one is missing.
    """
    try:
        _check_names(made, settings)
        made(**settings)
    except UnknownNameError:
        return 0
    except (InputError, TypeError):  # a setting has an unsuitable value, or a required one is missing
        return 1
    return 2


def _loaded(name: str) -> Any:
    return plugins.load(_GROUP, name)


def _is_facility(made: Any) -> bool:
    """Whether calling an object may return a facility: known for a class; for a function only the call shows it."""
    return not isinstance(made, type) or (hasattr(made, "connect") and hasattr(made, "notes"))


def _known_backends() -> str:
    return f"Backends that can be connected to: {', '.join(facilities())}."


def _not_a_facility(name: str) -> InputError:
    return InputError("is not a batch system to connect to", where=f"backend {name!r}", hint=_known_backends())


def _no_such_site(site: str) -> UnknownNameError:
    names, folder = site_names(), sites_folder()
    if not names:
        return UnknownNameError(
            f"there is no site {site!r}", where=str(folder), hint="Make one: asa doctor --save NAME"
        )
    error = plugins.unknown_name("site", site, names)
    return UnknownNameError(error.message, where=str(folder), hint=error.hint)


def _check_names(made: Any, settings: Mapping[str, Any]) -> None:
    """Refuse settings that a backend does not take, if its signature lists those that it takes."""
    try:
        parameters = inspect.signature(made).parameters
    except ValueError:  # of a builtin
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for key in settings:
        if key not in parameters:
            guess = near(key, parameters)
            hint = f"{guess}Known: {', '.join(parameters)}."
            raise UnknownNameError(f"there is no setting {key!r}", where=key, hint=hint)


def _sources(file: SiteFile | None, given: Mapping[str, Any]) -> dict[str, str]:
    """Return for each setting the file, line or option that sets it."""
    sources = {}
    if file is not None:
        sources = {key: f"{location(file.path, key)}: {key}" for key in (*file.found, *file.settings)}
    return sources | {key: f"--option {key}" for key in given}


def location(path: Path, key: str) -> str:
    """Name the line of a file on which a key is set, or else the file."""
    pattern = re.compile(rf"\s*\[*\s*[\"']?{re.escape(key)}[\"']?\s*[=\].]")
    for number, line in enumerate(read_text(path, "utf-8-sig").splitlines(), start=1):
        if pattern.match(line):
            return f"{path}:{number}"
    return str(path)


# ---------------------------------------------------------------------- writing site files


def _own_lines(path: Path) -> tuple[list[str], list[str]]:
    """Split a user's lines into those before the first table and those of tables; `observed` is left out."""
    top: list[str] = []
    tables: list[str] = []
    in_observed = False
    for line in read_text(path, "utf-8-sig").splitlines() if path.exists() else []:
        is_heading = bool(_HEADING.match(line)) and "=" not in line
        if is_heading:
            in_observed = bool(_OBSERVED_HEADING.match(line))
        if in_observed or line.strip() == _PREFACE:
            continue
        (tables if is_heading or tables else top).append(line)
    return top, tables


def _with_key(lines: list[str], key: str, value: Any) -> list[str]:
    """Set a key among lines: where it is set now, else after the last."""
    new = f"{key if _PLAIN_KEY.fullmatch(key) else _toml(key)} = {_toml(value)}"
    pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
    for at, line in enumerate(lines):
        if pattern.match(line):
            return [*lines[:at], new, *lines[at + 1 :]]
    return [new, *lines] if key == "backend" else [*_trimmed(lines), new]


def _trimmed(lines: list[str]) -> list[str]:
    return "\n".join(lines).strip("\n").splitlines()


def _observed_text(observed: Mapping[str, Setting], found: Mapping[str, Setting]) -> str:
    lines = [_PREFACE, f"[{_OBSERVED}]", *(f"{key} = {_toml(value)}" for key, value in observed.items())]
    if found:
        lines += ["", f"[{_OBSERVED}.settings]", *(f"{key} = {_toml(value)}" for key, value in found.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    r"""Write a value as TOML does.

    Examples
    --------
    >>> print(_toml({"a": [True, 1.5, 'say "hi"']}))
    {"a" = [true, 1.5, "say \"hi\""]}
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(str(key))} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    escaped = "".join(_escaped(character) for character in str(value))
    return f'"{escaped}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _check_text(path: Path, text: str, wanted: SiteFile) -> None:
    """Check that the new text has the intended settings, and loses none of the user's own."""
    try:
        document = read_toml(text)
        document.pop(_STRATEGY, None)
        document.pop(_NOTIFY, None)
        document.pop(_INPUT_PATIENCE, None)
        document.pop(_SHARE, None)
        document.pop(_PRICE, None)
        observed = document.pop(_OBSERVED)
        written = (document.pop("backend"), document, {**observed, "settings": observed.get("settings", {})})
    except (ValueError, KeyError):
        written = None
    if written != (wanted.backend, wanted.settings, wanted.observed):
        raise InputError(
            "cannot be changed automatically without loss",
            where=str(path),
            hint="Put each setting on its own line above all tables, or save under another name.",
        )


def _write(path: Path, text: str) -> None:
    """Replace a file as a whole, so that nobody ever reads half of it."""
    with in_words("cannot be written", path, "Save elsewhere."):
        place = safe.followed(path)  # a link of the user's own stays a link
        safe.provide_folder(place.parent)
        with replacing(place) as file:
            file.write(text.encode())
            if place.exists():
                shutil.copymode(place, file.name)
            else:  # others may be allowed to read it, and not to change it
                os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & 0o755)
