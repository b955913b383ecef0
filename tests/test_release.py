"""What a release says of itself is the same everywhere."""

import re
import tomllib
from pathlib import Path

import yaml

import asa

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]


def test_versions_agree():
    """In the package, its metadata, the citation, the recipe, and the newest release of the changelog."""
    assert asa.__version__ == VERSION
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == VERSION
    assert yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())["context"]["version"] == VERSION
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1].startswith(f"{VERSION} - ")


def test_the_citation_has_what_its_format_requires():
    """Of version 1.2.0; with the day on which the changelog says that it was released."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "type", "license", "references"} <= cited.keys()
    assert cited["cff-version"] == "1.2.0"
    assert cited["license"] == PROJECT["license"]
    for one in (cited, *cited["references"]):
        assert one["title"]
        assert all("name" in author or "family-names" in author for author in one["authors"])
    assert f"## {VERSION} - {cited['date-released']}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_recipe_asks_for_what_the_package_asks_for():
    """Each requirement, with its lower bound; conda's names are those of these packages."""
    run = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())["requirements"]["run"]
    wanted = [one.partition(";")[0] for one in PROJECT["dependencies"]]  # where there are wheels is pip's matter
    assert sorted(one.replace(" ", "") for one in run[1:]) == sorted(wanted)
