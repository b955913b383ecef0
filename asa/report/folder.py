"""Pages in a folder. Each can be read alone; a first page summarizes them and links to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from asa.core.files import read_text
from asa.core.reading import DOCUMENT_BYTES
from asa.core.safe import writing_text
from asa.errors import InputError
from asa.report.page import Around, Link, Links, Page, Section, Text, render, rendered_metadata

INDEX = "index.html"
_TITLE = "Results"


def write_folder(
    folder: Path, name: str, page: Page, parts: Mapping[str, Page] | None = None, *, of: str = ""
) -> list[Path]:
    """Write a page and its parts into a folder, and rewrite the folder's first page.

    The first page summarizes every page in the folder, whichever command wrote it.

    `of`: the run or command that the page is about. A page with this name about another one is kept; see `free_name`.
    Raises `InputError`: a file with one of the names is no page of asa. Nothing is written then.
    """
    name = free_name(folder, name, of)
    whole = page_file(name)
    above = Link(INDEX, _TITLE)
    pages = {page_file(f"{name}-{key}"): part for key, part in (parts or {}).items()}
    links = [Link(file, part.title, _about(part, page)) for file, part in pages.items()]
    texts = {whole: render(page, Around([above], links, of))}
    for file, part in pages.items():
        texts[file] = render(part, Around([above, Link(whole, page.title)]))
    for file in (INDEX, *texts):
        check_ours(folder / file)
    folder.mkdir(exist_ok=True)
    # parts of the page that is replaced: no link leads to them any more
    for file in set(_parts_of(folder / whole)) - set(texts):
        (folder / file).unlink(missing_ok=True)
    for file, text in texts.items():
        _write(folder / file, text)
    _write(folder / INDEX, render(_index(folder)))
    return [folder / file for file in (INDEX, *texts)]


def _write(file: Path, text: str) -> None:
    with writing_text(file) as page:
        page.write(text)


def check_ours(file: Path) -> None:
    """Raise `InputError` if a file exists that is no page of asa."""
    if (file.exists() or file.is_symlink()) and _metadata(file) is None:
        raise InputError(
            "exists already, and is not a page of asa",
            where=str(file),
            hint="Name another folder, or move that file out of the way.",
        )


def free_name(folder: Path, name: str, of: str) -> str:
    """Return the name for a page in a folder. A number is appended if a page about another run or command has the name.

    `of`: the run or command that the page is about. An earlier page about the same one is overwritten.
    """
    for number in count(1):
        mine = name if number == 1 else f"{name}-{number}"
        metadata = _metadata(folder / page_file(mine))
        if metadata is None or (metadata["of"] == of and not metadata["is_part"]):
            break
    return mine


def page_file(name: str) -> str:
    """Return the file name of a page; it is valid in URLs.

    `name`: the name of the page. Each character other than ASCII letters, digits, points and underscores becomes a
    hyphen.
    """
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '-', name)}.html"


def _about(part: Page, whole: Page) -> str:
    """Return the first sentence of a part's summary, unless the whole page has it too."""
    return next((words for words in part.summary[:1] if words not in whole.summary), "")


def _metadata(file: Path) -> dict[str, Any] | None:
    try:
        page = read_text(file, errors="replace", max_bytes=DOCUMENT_BYTES) if file.is_file() else None
        return None if page is None else rendered_metadata(page)
    except OSError:  # unreadable: treated as no page of asa
        return None


def _parts_of(file: Path) -> list[str]:
    """Return the files of the parts of an existing page."""
    metadata = _metadata(file)
    names = [Path(address).name for address, _, _ in metadata["parts"]] if metadata else []
    return [name for name in names if (part := _metadata(file.with_name(name))) and part["is_part"]]


def _index(folder: Path) -> Page:
    sections = []
    titles: list[str] = []
    for file in sorted(folder.glob("*.html"), key=lambda file: file.stem):
        metadata = _metadata(file)
        if file.name == INDEX or metadata is None or metadata["is_part"]:
            continue
        links = [Link(file.name, "All of it, with figures and tables"), *(Link(*link) for link in metadata["parts"])]
        of = [Text((f"`{metadata['of']}`",), is_small=True)] if metadata["of"] else []
        titles.append(metadata["title"])
        again = titles.count(metadata["title"])
        title = metadata["title"] if again == 1 else f"{metadata['title']} ({again})"
        sections.append(Section(file.stem, title, [*of, Text(tuple(metadata["summary"])), Links(links)]))
    return Page(_TITLE, (), sections)
