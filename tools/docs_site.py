"""Build the documentation as a site that needs no network: `make site`.

    python tools/docs_site.py [--out build/site]     build it; exit code 1 after a broken link or an unreachable page

The pages are those of `docs/`, a page for each file of the project that they link to, and the reference. The reference
is made here, from the commands, the schema of workflow files, and the docstrings of the public interface.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from asa.flow import Resources
from asa.keys import keys_of
from asa.spec.keys import ASKED
from asa.spec.stages import in_order

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONFIG = ROOT / "zensical.toml"
_UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
"""Before pages whose many names would hide what the search finds on others."""
ALSO = {"CHANGELOG.md": "project/changelog.md", "CONTRIBUTING.md": "project/contributing.md"}
"""Pages of the project that lie elsewhere, and where they are in the site."""
_KINDS = {".py": "python", ".toml": "toml", ".sh": "sh", ".sbatch": "sh", ".svg": "xml"}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_WHITE = re.compile(r"\s+")


# ---------------------------------------------------------------------- reference: commands


def _line(text: str) -> str:
    """Make text fit into a cell of a table."""
    parts = _WHITE.sub(" ", text).strip().split("`")  # every second part is code, which stays as it is
    parts[::2] = [part.replace("|", "\\|").replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name in getattr(command, "commands", {}):
        child = command.commands[name]
        if not child.hidden:
            yield from _commands(child, (*words, name))


def _value(parameter: Any) -> str:
    """Describe the value that an option takes: the name of the value, or its choices."""
    if getattr(parameter, "is_flag", False):
        return ""
    kind = getattr(parameter, "type", None)  # typer has removed it in 0.29
    choices = getattr(kind, "choices", None)
    if choices:
        return "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    return str(parameter.metavar or (kind.name.upper() if kind else "VALUE"))


def _default(parameter: Any) -> str:
    """Return the default as the help shows it, or an empty text."""
    shown = getattr(parameter, "show_default", False)
    if isinstance(shown, str):
        return f" Default: {shown}."
    value = parameter.default
    if not shown or value is None or callable(value) or value in ((), [], "", False):
        return ""
    return f" Default: {value}."


def _row(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    value = _value(parameter)
    takes = f" `{value}`" if value and parameter.param_type_name == "option" else ""
    words = _line((getattr(parameter, "help", None) or "") + _default(parameter))
    return f"| {names}{takes} | {words} |"


def _command_page(words: tuple[str, ...], command: Any) -> Iterator[str]:
    name = " ".join(("asa", *words))
    yield f"### {name}\n"
    yield (command.help or command.short_help or "").replace("\f", "").strip() + "\n"
    shown = [one for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option"]
    usage = [name]
    if options:
        usage.append("[OPTIONS]")
    for one in arguments:
        word = one.human_readable_name if one.metavar is None else one.metavar
        usage.append(f"{word}{'...' if one.nargs == -1 and not word.endswith('...') else ''}")
    if getattr(command, "commands", None):
        usage.append("COMMAND")
    yield f"```text\n{' '.join(usage)}\n```\n"
    if arguments:
        yield "| argument | |\n|---|---|"
        for one in arguments:
            yield f"| `{one.metavar or one.human_readable_name}` | {_line((one.help or '') + _default(one))} |"
        yield ""
    if options:
        yield "| option | |\n|---|---|"
        yield from map(_row, options)
        yield ""


def cli_page() -> str:
    """Make the reference of the commands from the program itself."""
    import typer  # checking links does not need it

    tree = typer.main.get_command(importlib.import_module("asa.cli.app").app)
    panels: dict[str, list[str]] = {}  # groups of commands, as in `asa --help`
    for name in tree.commands:
        command = tree.commands[name]
        panel = getattr(command, "rich_help_panel", None)
        lines = panels.setdefault(panel if isinstance(panel, str) else "Commands", [])
        if not command.hidden:
            for words, one in _commands(command, (name,)):
                lines += _command_page(words, one)
    head = """# Commands

Made of the commands themselves, for this version; `asa COMMAND --help` says the same.
[Exit codes](exit-codes.md) have a page of their own.
"""
    return "\n".join([head, *(line for panel, lines in panels.items() for line in (f"## {panel}\n", *lines))])


# ---------------------------------------------------------------------- reference: workflow files

_PATTERNS = {"\\{\\{[ \\t]*[A-Za-z_][A-Za-z0-9_-]*[ \\t]*\\}\\}": None}


def _types(schema: Mapping[str, Any]) -> list[str]:
    """Name the types of a value, without the one that stands for a parameter."""
    if "const" in schema:
        return [f'`"{schema["const"]}"`']
    if "enum" in schema:
        return [f'`"{value}"`' for value in schema["enum"]]
    below = schema.get("anyOf") or schema.get("oneOf")
    if below and "type" not in schema:
        found: list[str] = []
        for one in below:
            if one.get("pattern") not in _PATTERNS:
                found += [name for name in _types(one) if name not in found]
        return found
    kind = schema.get("type")
    if kind == "array":
        return ["a list"]
    names = {"string": "text", "integer": "a number", "number": "a number", "boolean": "true or false"}
    return [names.get(str(kind), "a table")]


def _toml(value: object) -> str:
    """Write a value as in a TOML file."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def _keys(properties: Mapping[str, Any]) -> Iterator[str]:
    yield "| key | value | |\n|---|---|---|"
    for key, schema in properties.items():
        examples = ", ".join(f"`{_toml(one)}`" for one in schema.get("examples", ()))
        words = _line(schema.get("description", ""))
        words += f" Example: {examples}" if examples else ""
        yield f"| `{key}` | {' or '.join(_types(schema))} | {words} |"
    yield ""


def toml_page() -> str:
    """Make the reference of workflow files from their schema."""
    document = json.loads((ROOT / "asa" / "workflow.schema.json").read_text(encoding="utf-8"))
    stage, settings = (document["$defs"][name]["properties"] for name in ("StageSpec", "StageSettings"))
    own = {key: value for key, value in stage.items() if key not in settings}
    whole = {key: value for key, value in document["properties"].items() if key not in {"stage", "defaults"}}
    head = """# Workflow files

Made of the schema by which `asa check` and editors read them; `asa schema --out workflow.schema.json` writes it.
A key that is not listed here is refused. `{{name}}` stands for a parameter wherever text or a number may stand.
"""
    return "\n".join([
        head,
        "## The file\n", *_keys(whole),
        "## Only in a stage: `[[stage]]`\n", *_keys(own),
        "## In a stage, or under `[defaults]` for all stages\n", *_keys(settings),
    ])  # fmt: skip


# ---------------------------------------------------------------------- reference: Python


def python_page() -> str:
    """Make the reference of the public interface from its docstrings."""
    asa = importlib.import_module("asa")
    listed = (DOCS / "reference" / "python.md").read_text(encoding="utf-8").split("|---|---|")[2]
    modules = re.findall(r"`(asa[\w.]+)`", "".join(re.findall(r"^\|([^|]+)\|", listed, re.MULTILINE)))
    lines = [
        _UNSEARCHED + "# Python API\n",
        "Made of the docstrings. [What may be relied on](python.md) lists the same by name.\n",
    ]
    seen = set()
    lines.append("## asa\n")
    for name in asa.__all__:
        value = getattr(asa, name)
        seen.add(id(value))
        lines.append(_of_python(value))
    for module in modules:
        loaded = importlib.import_module(module)
        fresh = []
        for name in loaded.__all__:
            value = getattr(loaded, name)
            if (
                id(value) not in seen
                and getattr(value, "__module__", "").startswith("asa")
                and hasattr(value, "__qualname__")
            ):
                seen.add(id(value))
                fresh.append(_of_python(value))
        if fresh:
            lines += [f"## {module}\n", *fresh]
    return "\n".join(lines)


def _of_python(value: type) -> str:
    """Document a class or a function, and the keys of a workflow file that it has, as these are described."""
    lines = [f"::: {value.__module__}.{value.__qualname__}\n"]
    if value is Resources:
        lines += ["| argument | what it says |", "|---|---|"]
        lines += [f"| `{name}` | {ASKED[name].description.replace('|', '&#124;')} |" for name in in_order(ASKED)]
        lines.append("")
    if is_dataclass(value) and (keys := keys_of(value)):
        lines += ["Fields that are keys of a workflow file, too:\n", "| field | key | what it says |", "|---|---|---|"]
        lines += [f"| `{key.field}` | `{key.name}` | {key.description.replace('|', '&#124;')} |" for key in keys]
        lines.append("")
    return "\n".join(lines)


MADE = {"reference/cli.md": cli_page, "reference/workflow-file.md": toml_page, "reference/python-api.md": python_page}
"""The pages that are made here, by their place in `docs/`."""


# ---------------------------------------------------------------------- the first page


def versioned(text: str, project: Mapping[str, Any]) -> str:
    """Write the version below the title of the first page, with links to what there is of the project.

    `project`: that table of `pyproject.toml`; `[project.urls]` has the addresses of a project that is published.
    """
    title, below = text.split("\n", 1)
    links = ["[Changes](../CHANGELOG.md)", "[Source and tests](../CONTRIBUTING.md)"]
    links += [f"[{name}]({address})" for name, address in project.get("urls", {}).items()]
    links.append("[Security, and how to report a weakness](../SECURITY.md)")
    return f"{title}\n\nVersion {project['version']} · {' · '.join(links)}\n{below}"


# ---------------------------------------------------------------------- the site


class Pages:
    """The pages of the site by path; pages for linked files are added as links are found."""

    def __init__(self) -> None:
        self.text: dict[str, str] = {}
        self.broken: list[str] = []
        self._places = {
            path.relative_to(ROOT).as_posix(): path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")
        }
        self._places |= ALSO | {f"docs/{place}": place for place in MADE}
        for source, place in list(self._places.items()):
            if place in MADE:
                continue
            text = (ROOT / source).read_text(encoding="utf-8")
            if place == "index.md":
                text = versioned(text, tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])
            self.text[place] = self._linked(source, place, text)
        for place, make in MADE.items():
            self.text[place] = make()

    def _linked(self, source: str, place: str, text: str) -> str:
        """Change the links of a page to where their targets are in the site."""
        parts = re.split(r"(^```.*?^```|`[^`]*`)", text, flags=re.MULTILINE | re.DOTALL)
        # a link's text may be code: put code back before links are read
        held: list[str] = []

        def hold(part: str) -> str:
            held.append(part)
            return f"\0{len(held) - 1}\0"

        flat = "".join(hold(part) if number % 2 else part for number, part in enumerate(parts))
        flat = _LINK.sub(lambda found: self._link(source, place, found), flat)
        return re.sub(r"\0(\d+)\0", lambda found: held[int(found[1])], flat)

    def _link(self, source: str, place: str, found: re.Match[str]) -> str:
        picture, words, link = found.groups()
        path, mark, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", link):
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), unquote(path)))
        if picture or target.endswith(".svg"):
            return found[0].replace(
                path, os.path.relpath(target.removeprefix("docs/"), posixpath.dirname(place) or ".")
            )
        if target not in self._places:
            if not (ROOT / target).exists() or target.startswith(".."):
                self.broken.append(f"{source}: {link}")
                return found[0]
            self._show(target)
        there = os.path.relpath(self._places[target], posixpath.dirname(place) or ".")
        return f"[{words}]({there}{mark}{anchor})"

    def _show(self, target: str) -> None:
        """Make a page for a file, or for the files in a folder."""
        place = self._places[target] = f"files/{target}.md"
        path = ROOT / target
        if path.is_file() and path.suffix == ".md":
            self.text[place] = self._linked(target, place, path.read_text(encoding="utf-8"))
            return
        files = [path] if path.is_file() else sorted(one for one in path.iterdir() if one.is_file())
        lines = [f"{_UNSEARCHED}# {target}\n"]
        for file in files:
            lines += [f"## {file.name}\n"] if path.is_dir() else []
            text = file.read_text(encoding="utf-8").rstrip("\n")
            lines += [f"````{_KINDS.get(file.suffix, 'text')}", text, "````\n"]
        self.text[place] = "\n".join(lines)


def _places(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for value in nav.values():
            yield from _places(value)
    elif isinstance(nav, list):
        for value in nav:
            yield from _places(value)


def unreachable(pages: Mapping[str, str]) -> list[str]:
    """List pages missing in the navigation, and entries without a page. Pages of files are reached by links."""
    named = set(_places(tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["nav"]))
    own = {place for place in pages if not place.startswith("files/")}
    return [f"{place}: not in the navigation (zensical.toml)" for place in sorted(own - named)] + [
        f"{place}: in the navigation, but there is no such page" for place in sorted(named - own)
    ]


_TOGETHER = re.compile(r"^( +)(\w+(?:, \w+)+)\n((?:\1 {4}.*\n)+)", re.MULTILINE)


def apart(source: str) -> str:
    r"""Give parameters that share a description one each: else all are shown with the first one's type and default.

    Examples
    --------
    >>> apart("    low, high\n        In seconds.\n")
    '    low\n        In seconds.\n    high\n        In seconds.\n'
    """
    return _TOGETHER.sub(
        lambda found: "".join(f"{found[1]}{name}\n{found[3]}" for name in found[2].split(", ")), source
    )


def _as_installed(place: Path) -> None:
    """Copy the sources into the layout in which they are installed: docstrings are looked up by module names."""
    for folder, at in (("asa", ""), ("backends", "backends"), ("workflows", "workflows")):
        for source in (ROOT / folder).rglob("*.py"):
            copy = place / at / source.relative_to(ROOT / folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = apart(source.read_text(encoding="utf-8"))
            # what reads the signatures of dataclasses knows those of the standard library alone
            copy.write_text(text.replace("from asa.core.late import", "from dataclasses import"), encoding="utf-8")


_OUTSIDE = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")


def _without_network(out: Path) -> list[str]:
    """Replace addresses from which a page would fetch a file by the site's own files; list the remaining addresses."""
    left = []
    for page in out.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        own = os.path.relpath(out / "offline-search.js", page.parent)
        made = re.sub(
            r"<script[^>]*src=[\"']?https://unpkg\.com/[^>]*></script>", f'<script src="{own}"></script>', text
        )
        made = re.sub(r"<link[^>]*rel=[\"']?canonical[^>]*>", "", made)
        if made != text:
            page.write_text(made, encoding="utf-8")
        left += [f"{page.relative_to(out)}: fetches {address}" for address in _OUTSIDE.findall(made)]
    return left


def build(out: Path) -> list[str]:
    """Build the site; return the problems."""
    pages = Pages()
    wrong = pages.broken + unreachable(pages.text)
    if wrong:
        return wrong
    work = ROOT / "build" / "site-work"
    shutil.rmtree(work, ignore_errors=True)
    for place, text in pages.text.items():
        file = work / "docs" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for file in DOCS.rglob("*"):
        if file.suffix in {".svg", ".png", ".css", ".js"}:
            kept = work / "docs" / file.relative_to(DOCS)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, kept)
    shutil.copyfile(CONFIG, work / CONFIG.name)
    _as_installed(work / "package" / "asa")
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean"]
    done = subprocess.run(
        command, cwd=work, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"}
    )
    if done.returncode:
        return [f"zensical build: exit code {done.returncode}", done.stdout, done.stderr.split("Traceback")[0]]
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(work / "site", out)
    wrong = _without_network(out)
    absent = [place for place in pages.text if not (out / place).with_suffix(".html").exists()]
    return wrong + [f"{place}: was not built" for place in absent]


def main() -> int:
    """Build the site as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    wrong = build(parser.parse_args().out.absolute())
    sys.stderr.writelines(f"{one}\n" for one in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
