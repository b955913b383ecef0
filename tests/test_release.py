"""A release states the same facts everywhere."""

import re
import subprocess
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
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())
    run = recipe["requirements"]["run"]
    wanted = [one.partition(";")[0] for one in PROJECT["dependencies"]]  # where there are wheels is pip's matter
    assert sorted(one.replace(" ", "") for one in run[1:]) == sorted(wanted)
    built_with = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert set(built_with) <= {one.replace(" ", "") for one in recipe["requirements"]["host"]}
    scripts = [f"{name} = {where}" for name, where in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts


def test_the_publisher_s_command_makes_every_link_of_the_readme_absolute(tmp_path):
    """The one that CONTRIBUTING.md has; on the page of a package index relative links lead nowhere."""
    [script] = re.findall(r"`sed -i -E '([^`]+)' README.md`", (ROOT / "CONTRIBUTING.md").read_text())
    readme = tmp_path / "README.md"
    readme.write_text((ROOT / "README.md").read_text())
    subprocess.run(["sed", "-i", "-E", script.replace("ADDRESS", "https://example.org/v1"), readme], check=True)
    links = re.findall(r"\]\(([^)]+)\)", readme.read_text())
    assert len(links) > 10
    assert not [link for link in links if not link.startswith("https://")]


def test_a_pool_brings_what_makes_its_certificate():
    """In versions that the project is tested with."""
    assert any(one.startswith("cryptography>=") for one in PROJECT["optional-dependencies"]["pool"])
    assert re.search(r"^cryptography==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
