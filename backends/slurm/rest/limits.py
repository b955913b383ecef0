"""The limits of a user, their accounts and qualities of service (QOS), from slurmdbd of all versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from asa.units import format_walltime

from ..link import SlurmLimits
from . import reading

_JsonPath = tuple[str, ...]
_ASSOCIATION: Final[Mapping[str, _JsonPath]] = {
    "MaxJobs": ("jobs", "active"),
    "MaxSubmitJobs": ("jobs", "total"),
    "MaxTRES": ("tres", "per", "job"),
    "MaxWall": ("jobs", "per", "wall_clock"),
    "GrpJobs": ("jobs", "per", "count"),
    "GrpSubmitJobs": ("jobs", "per", "submitted"),
    "GrpTRES": ("tres", "total"),
    "GrpTRESMins": ("tres", "group", "minutes"),
    "GrpWall": ("per", "account", "wall_clock"),
}
_QUALITY: Final[Mapping[str, _JsonPath]] = {
    "MaxJobsPerUser": ("jobs", "active_jobs", "per", "user"),
    "MaxSubmitJobsPerUser": ("jobs", "per", "user"),
    "MaxTRESPerUser": ("tres", "per", "user"),
    "MaxTRES": ("tres", "per", "job"),
    "MaxWall": ("wall_clock", "per", "job"),
    "GrpJobs": ("active_jobs", "count"),
    "GrpSubmitJobs": ("jobs", "count"),
    "GrpTRES": ("tres", "total"),
}


def may_count(association: Mapping[str, Any], user: str) -> Mapping[str, Any] | None:
    """Return an association if it is the user's or a whole account's; else None: other users' are private and many."""
    return association if reading.text(association.get("user")) in {user, ""} else None


def of_associations(associations: Iterable[Mapping[str, Any]], user: str, cluster: str) -> list[SlurmLimits]:
    """Return the limits of a user's associations, and those of their accounts as a whole."""
    here = [association for association in associations if cluster in ("", reading.text(association.get("cluster")))]
    own = [entry for entry in here if reading.text(entry.get("user")) == user]
    accounts = {reading.text(entry.get("account")) for entry in own}
    theirs = [
        entry
        for entry in here
        if not reading.text(entry.get("user")) and reading.text(entry.get("account")) in accounts
    ]
    return [
        SlurmLimits(
            account=reading.text(entry.get("account")),
            user=reading.text(entry.get("user")),
            partition=reading.text(entry.get("partition")),
            qualities=tuple(map(reading.text, reading.listed(entry.get("qos")))),
            limits=_read(entry.get("max"), _ASSOCIATION),
        )
        for entry in (*own, *theirs)
    ]


def of_qualities(qualities: Iterable[Mapping[str, Any]], names: Iterable[str]) -> list[SlurmLimits]:
    """Return the limits of the given qualities of service."""
    wanted = set(names)
    return [
        SlurmLimits(quality=name, limits=_read(reading.nested(quality, "limits", "max"), _QUALITY))
        for quality in qualities
        if (name := reading.text(quality.get("name"))) in wanted
    ]


def _read(record: Any, paths: Mapping[str, _JsonPath]) -> dict[str, str]:
    found = {}
    for name, path in paths.items():
        value = reading.nested(record, *path)
        if "TRES" in name:
            text = ",".join(_resource(entry) for entry in reading.listed(value) if isinstance(entry, Mapping))
        else:
            number = reading.whole(value)
            text = "" if number is None else str(number)
            if text and "Wall" in name:
                text = format_walltime(60.0 * int(text)).removeprefix("0-")
        if text:
            found[name] = text
    return found


def _resource(resource: Mapping[str, Any]) -> str:
    kind, name = reading.text(resource.get("type")), reading.text(resource.get("name"))
    return f"{kind}{f'/{name}' if name else ''}={reading.text(resource.get('count'))}"
