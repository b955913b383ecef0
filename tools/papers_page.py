"""The page of the five papers: makes docs/research/papers.md of papers.toml, which lists what each paper has.

python tools/papers_page.py            # after a change of papers.toml; tests/test_papers.py compares both
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).parents[1]
SOURCE = Path(__file__).with_name("papers.toml")
PAGE = ROOT / "docs" / "research" / "papers.md"
KINDS: Final = {"mechanism": "Mechanisms", "table": "Tables", "figure": "Figures", "claim": "Claims"}
STATES: Final = ("there", "differs", "not there")

_HEAD = """# Five papers, part by part

asa has what five papers describe: ASA, BBSched, OpenCCS, DRAS and the DMR API. This page goes through each of them, and
says of every mechanism, table, figure and claim whether it is here:

- **there**: as in the paper; a test holds it, and is named;
- **differs**: something of it is otherwise, which is said;
- **not there**: it is not in asa, or nothing of it was measured. Where there is something in its place, that is said.

A figure is there if asa draws it, with its own numbers; whether these are the paper's is said of tables and claims, and
on the page that each section links to. `LOG` is a workload log in the Standard Workload Format, `flow.toml` a workflow,
`jobs.txt` a file of requests. [Every figure's command](evaluations.md) says how long the larger commands take.
"""
_FOOT = """
The page is made of [`tools/papers.toml`](../../tools/papers.toml) by `python tools/papers_page.py`.
`tests/test_papers.py` checks that each command can be given with these arguments, and that each test exists.
Those of agents that learn need PyTorch, and are skipped without it; those in `tests/slurm` need Slurm.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a paper, and what of it is here."""

    at: str
    what: str
    state: str
    why: str = ""
    command: str = ""
    test: str = ""

    @classmethod
    def of(cls, fields: dict[str, str]) -> Part:
        """Make a part of a row of the file."""
        return cls(state=fields["is"], **{name: text for name, text in fields.items() if name != "is"})

    @property
    def row(self) -> str:
        """The part's row in a table."""
        here = f"**{self.state}**" + (f": {self.why}" if self.why else "")
        cells = (self.at, self.what, here, _code(self.command), _code(self.test))
        return f"| {' | '.join(cells)} |"


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper: its short name, title, the page with its results and what that page has, and its parts by kind."""

    name: str
    title: str
    page: str
    page_says: str
    parts: dict[str, tuple[Part, ...]]

    @property
    def counts(self) -> Counter[str]:
        """How many parts are in each state."""
        return Counter(part.state for parts in self.parts.values() for part in parts)


def papers(text: str | None = None) -> list[Paper]:
    """Read the file of the papers."""
    given: dict[str, Any] = tomllib.loads(SOURCE.read_text(encoding="utf-8") if text is None else text)
    return [
        Paper(
            paper["name"],
            paper["title"],
            paper["page"],
            paper["page_says"],
            {kind: tuple(Part.of(row) for row in paper[kind]) for kind in KINDS},
        )
        for paper in given["paper"]
    ]


def page(of: list[Paper]) -> str:
    """Make the page."""
    return "".join(f"{line}\n" for line in _lines(of))


def _lines(of: list[Paper]) -> Iterator[str]:
    yield _HEAD
    yield from _head_of_table(["paper", *STATES])
    for paper in of:
        link = f"[{paper.name}](#{paper.name.lower()})"
        yield f"| {link} | {' | '.join(str(paper.counts[state]) for state in STATES)} |"
    for paper in of:
        yield f"\n## {paper.name}\n"
        yield f"*{paper.title}.* [Here]({paper.page}): {paper.page_says}."
        for kind, heading in KINDS.items():
            yield f"\n### {heading} of {paper.name}\n"
            yield from _head_of_table(["where", "what", "here", "command", "test"])
            yield from (part.row for part in paper.parts[kind])
    yield _FOOT.rstrip("\n")


def _head_of_table(headings: list[str]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'|'.join('---' for _ in headings)}|"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    PAGE.write_text(page(papers()), encoding="utf-8")
