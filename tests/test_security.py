"""Tests hold the statements of SECURITY.md: each sentence of its lists names an existing test."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "SECURITY.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def sentences():
    """Yield the points of the page's lists, each as one line."""
    for part in re.split(r"\n(?=- |\n|#)", PAGE):
        if part.lstrip().startswith("- "):
            yield " ".join(part.split())


def test_each_sentence_names_its_test():
    assert [point for point in sentences() if not NAMED.search(point)] == []


def test_each_test_that_is_named_is_there():
    named = set(NAMED.findall(PAGE))
    assert {(file, test) for file, test in named if f"\ndef {test}(" not in (ROOT / file).read_text()} == set()
