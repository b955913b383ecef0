"""The documentation as a site: its generated pages, and that each page can be reached."""

import importlib
import json
import re
from pathlib import Path

import docs_site
import pytest
import typer

from asa.backend import JobSpec
from asa.keys import keys_of
from asa.workflow import Stage

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def pages():
    return docs_site.Pages()


def test_every_page_is_in_the_navigation(pages):
    """And each place in the navigation has a page; no link of a page leads to what is not there."""
    assert not docs_site.unreachable(pages.text)
    assert not pages.broken


def test_links_lead_to_pages_of_the_site(pages):
    """Also those to files of the project, which become pages."""
    for place, text in pages.text.items():
        if place.startswith("files/") or place in docs_site.MADE:
            continue
        prose = re.sub(r"^```.*?^```|`[^`]*`", "", text, flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"[^!]\[[^\]]*\]\(([^)\s#]+\.md)", prose):
            there = (ROOT / "docs" / place).parent / link
            assert there.resolve().relative_to(ROOT / "docs").as_posix() in pages.text, (place, link)


def test_a_linked_file_is_a_page_with_that_file(pages):
    assert (ROOT / "examples" / "own_strategy.py").read_text().strip() in pages.text[
        "files/examples/own_strategy.py.md"
    ]


def test_the_reference_has_every_command_and_option():
    """What `--help` knows, the page knows."""
    page = docs_site.cli_page()

    def check(command, words):
        if words:
            assert f"### {' '.join(('asa', *words))}\n" in page
        for option in command.params:
            if not getattr(option, "hidden", False) and option.name != "help" and words:
                assert all(f"`{name}`" in page for name in option.opts if name.startswith("-"))
        for name, child in getattr(command, "commands", {}).items():
            if not child.hidden:
                check(child, (*words, name))

    check(typer.main.get_command(importlib.import_module("asa.cli.app").app), ())


def test_the_reference_has_every_key_of_a_workflow_file():
    page = docs_site.toml_page()
    kinds = json.loads((ROOT / "asa" / "workflow.schema.json").read_text())["$defs"]
    for key, schema in (kinds["StageSpec"]["properties"] | kinds["StageSettings"]["properties"]).items():
        assert f"| `{key}` |" in page
        assert schema["description"][:20] in page


def test_the_reference_has_every_public_name():
    page = docs_site.python_page()
    asa = importlib.import_module("asa")
    for name in asa.__all__:
        assert f"::: {getattr(asa, name).__module__}.{name}\n" in page
    for kind in (Stage, JobSpec):
        assert all(f"| `{key.field}` | `{key.name}` | {key.description[:20]}" in page for key in keys_of(kind))


def test_nothing_is_fetched_from_elsewhere(tmp_path):
    """Scripts of others' hosts give way to one of the site, or are named."""
    page = tmp_path / "page.html"
    page.write_text('<link rel="canonical" href="https://a.example"><script src="https://unpkg.com/shim"></script><p>')
    assert docs_site._without_network(tmp_path) == []
    assert page.read_text() == '<script src="offline-search.js"></script><p>'
    page.write_text('<img src="https://elsewhere.example/x.png">')
    assert docs_site._without_network(tmp_path) == ["page.html: fetches https://elsewhere.example/x.png"]
