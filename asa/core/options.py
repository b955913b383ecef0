"""Options that several packages' commands share, each with one spelling."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Annotated

import typer

from asa.errors import InputError, UnknownNameError, near


class Output(StrEnum):
    """The output format."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", help="Print tables, or JSON for programs.")]


def check_known(name: str, known: Collection[str], where: str) -> None:
    """Refuse an unknown name; `where`: the option that has it."""
    if name not in known:
        raise UnknownNameError(
            f"{name!r} is unknown", where=where, hint=f"{near(name, known)}Known: {', '.join(known)}."
        )


def known_names(text: str, known: Collection[str], option: str) -> list[str]:
    """Read comma-separated names, all of which must be known."""
    names = list(dict.fromkeys(word.strip() for word in text.split(",")))
    for name in names:
        check_known(name, known, f"{option} {text}")
    return names


def sizes_in(text: str, most: int, option: str, what: str, example: str) -> list[int]:
    """Read comma-separated whole numbers from 1 on, and sort them; `what`: what they count, in words."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not (word.isascii() and word.isdecimal()) or not 1 <= int(word) <= most:
            hint = f"Write numbers with commas between them, as in {example}."
            raise InputError(f"{word!r} is no {what} from 1 to {most:,}", where=f"{option} {text}", hint=hint)
    return sorted({int(word) for word in words})
