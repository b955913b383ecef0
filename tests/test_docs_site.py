"""The documentation as a site: its generated pages, and that each page can be reached."""

import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import docs_site
import pytest
import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import asa
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


def test_the_first_page_says_the_version_and_leads_to_the_changes(pages):
    """And to the addresses of the project, once it has some."""
    about = (
        f"\n\nVersion {asa.__version__} · [Changes](project/changelog.md) · [Source and tests](project/contributing.md)"
    )
    assert pages.text["index.md"].startswith(f"# asa{about}")
    project = {"version": "9.1", "urls": {"Issues": "https://example.org/issues"}}
    assert "Version 9.1 · " in docs_site.versioned("# asa\n\nWords.\n", project)
    assert "[Issues](https://example.org/issues)" in docs_site.versioned("# asa\n\nWords.\n", project)


REFUSING = """
import importlib.abc, sys
class Refusing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refusing())
import docs_site
docs_site.Pages()
"""


def test_the_pages_are_made_with_what_the_extra_installs():
    """Nothing that only another extra brings is loaded: `make site` works in an empty environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    of_ours = {"": project["dependencies"], **project["optional-dependencies"]}
    brought, left = set(), [("asa-client", ""), ("asa-client", "docs")]
    while left:
        name, extra = left.pop()
        try:  # ours is read as it is now, not as it was when it was installed
            needed = of_ours[extra] if name == "asa-client" else importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # what makes the site of the pages may be absent
            continue
        for one in map(Requirement, needed):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                for key in [(canonicalize_name(one.name), each) for each in ("", *one.extras)]:
                    if key not in brought:
                        brought.add(key)
                        left.append(key)
    names = {name for name, _ in brought}
    providers = importlib.metadata.packages_distributions()
    absent = {
        module for module, by in providers.items() if not names & set(map(canonicalize_name, by)) and module != "asa"
    } - {"snakemake_executor_plugin_asa"}
    assert "lightgbm" in absent
    assert "distributed" not in absent
    code = REFUSING.replace("ABSENT", repr(absent))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tools", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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


def test_parameters_that_share_a_description_are_shown_with_their_own_types():
    """The pages' maker takes the type and the default of the first for all of them."""
    source = (ROOT / "asa" / "attended.py").read_text()
    assert "    check, on_record, progress\n        As for" in source
    made = docs_site.apart(source)
    for name in ("check", "on_record", "progress"):
        assert f"    {name}\n        As for `asa.Flow.run`.\n" in made
    assert [node for node in made.splitlines() if node.startswith("def ")] == [
        node for node in source.splitlines() if node.startswith("def ")
    ]


def test_nothing_is_fetched_from_elsewhere(tmp_path):
    """Scripts of others' hosts give way to one of the site, or are named."""
    page = tmp_path / "page.html"
    page.write_text('<link rel="canonical" href="https://a.example"><script src="https://unpkg.com/shim"></script><p>')
    assert docs_site._without_network(tmp_path) == []
    assert page.read_text() == '<script src="offline-search.js"></script><p>'
    page.write_text('<img src="https://elsewhere.example/x.png">')
    assert docs_site._without_network(tmp_path) == ["page.html: fetches https://elsewhere.example/x.png"]
