"""Statements of the README, the guides and the examples are true."""

import ast
import dataclasses
import importlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tokenize
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import docs_site
import examples_page
import forked
import pytest
import typer
from asa.backends.dras.patient import Patient
from asa.backends.dras.rivals import dras
from asa.backends.local.settings import LocalSettings
from asa.backends.openccs.limits_file import load_limits
from asa.backends.openccs.system import load_system
from asa.backends.slurm.settings import CommandSettings, RestSettings, SlurmSettings

from asa.hosted.options import OPTIONS as HOSTED
from asa.keys import TERMS
from asa.sites import open_facility
from asa.spec import load_workflow

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = ROOT / "examples"
OWN = ["own_estimator", "own_scheduler", "own_strategy", "own_workflow", "small_backend"]
QUICKLY = {"own_estimator": [1], "own_scheduler": [1], "own_strategy": [2]}  # days, days, replications
PAGE_LINES = 70
SNAKEMAKE_SLURM = tomllib.loads((ROOT / "tests" / "data" / "snakemake_slurm.toml").read_text())
OF_OTHERS = {
    *("--asa-option", "--asa-walltime", "--keep-going", "--retries", "--sdm"),  # Snakemake's, with our plug-in
    *(f"--slurm-{name.replace('_', '-')}" for name in SNAKEMAKE_SLURM["options"]),  # its executor's for Slurm
    *(f"--{key.option}" for key in TERMS),
    *(f"--asa{name.title()}" for name in HOSTED),  # Toil's, with our plug-in
    *("--batchSystem", "--doubleMem", "--doubleTime", "--maxDisk", "--maxJobDuration", "--restart", "--retryCount"),
    *("--slurmAllocateMem", "--slurmArgs", "--slurmGPUPartition", "--slurmGPUQOS", "--slurmPE", "--slurmPartition"),
    *("--slurmQOS", "--slurmTime"),
    *("--begin", "--chdir", "--dependency", "--error", "--mail-type", "--open-mode", "--output", "--partition"),
    *("--clusters", "--time", "--time-min"),
    *("--extra-node-info", "--gpus-per-node", "--mem-per-gpu", "--ntasks-per-gpu", "--ntasks-per-node", "--overcommit"),
    "--array",
    "--bb",
    "--cpu-bind",
    "--exclusive",
    "--export",
    "--gpus-per-task",
    "--gres",
    "--mem",
    "--job-name",
    "--mem-per-cpu",
    "--mpi",
    "--multi-prog",
    "--nv",
    "--signal",
    "--test-only",
}  # options of Slurm and of containers that are named
MADE = {ROOT / "docs" / place for place in docs_site.MADE}  # with the site: tests/test_docs_site.py
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]


@dataclass(frozen=True)
class Block:
    """A piece of code on a page; `said` is the comment before it."""

    page: Path
    line: int
    language: str
    text: str
    said: str

    @property
    def not_run(self):
        """Whether the page says that it is not complete, and why."""
        return self.said.startswith("not run")


def _read(page):
    """Split a page into its blocks of code and its prose."""
    blocks, prose, code, before = [], [], None, ""
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if line.startswith("```"):
            if code is None:
                code = [number, line[3:].strip(), []]
            else:
                said = before.removeprefix("<!-- ").removesuffix(" -->") if before.startswith("<!--") else ""
                blocks.append(Block(page, code[0], code[1], "\n".join(code[2]) + "\n", said))
                code, before = None, ""
        elif code is not None:
            code[2].append(line)
        else:
            prose.append(line)
            before = line or before
    assert code is None, f"{page.name}: a block of code has no end"
    return blocks, "\n".join(prose)


READ = {page: _read(page) for page in PAGES}
BLOCKS = [block for blocks, _ in READ.values() for block in blocks]
INLINE = [
    (page, code) for page, (_, prose) in READ.items() for code in re.findall(r"`([^`]+)`", prose.replace("\n", " "))
]


def _of(language):
    found = [block for block in BLOCKS if block.language == language]
    assert found
    return [pytest.param(block, id=f"{block.page.name}:{block.line}") for block in found]


def _file(name):
    """Find an example, or what is too long for one and lies beside the tests."""
    return next(path for room in (EXAMPLES, ROOT / "tests") if (path := room / f"{name}.py").exists())


def _docstring(name):
    return ast.get_docstring(ast.parse(_file(name).read_text()))


def _anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", READ[page][1], re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """Relative links and their anchors are there."""
    prose = re.sub(r"`[^`]*`", "", READ[page][1])
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", prose) if not link.startswith("https://")]
    assert links
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target in MADE or target.exists(), link
        if anchor and target not in MADE:
            assert anchor in _anchors(target), link


def test_paths_that_are_named_are_there():
    """So is every file of the project that is named in passing."""
    rooms = ("asa/", "backends/", "docs/", "examples/", "tests/", "workflows/")
    named = {(page.name, word) for page, code in INLINE for word in code.split() if word.startswith(rooms)}
    assert len(named) > 20
    assert not [(page, path) for page, path in named if not (ROOT / path.partition("::")[0]).exists()]


def test_pages_that_help_and_messages_name_are_there():
    """Wherever the program sends its user to."""
    sources = [path for room in ("asa", "backends", "tools", "examples") for path in (ROOT / room).rglob("*.py")]
    named = {(path.name, page) for path in sources for page in re.findall(r"docs/[\w/-]+\.md", path.read_text())}
    assert len(named) > 5
    assert not [(name, page) for name, page in named if not (ROOT / page).exists()]


def test_the_readme_is_short():
    """It is read before anything else: what is longer belongs into the guides."""
    assert len(PAGES[0].read_text().splitlines()) <= 120


def test_examples_can_be_found():
    """Each example is named on some page. That pages can be found is a matter of the site: tests/test_docs_site.py."""
    whole = "".join(page.read_text() for page in PAGES)
    assert not [example.name for example in EXAMPLES.glob("*.py") if example.name not in whole]


@pytest.mark.parametrize("block", _of("python"))
def test_python_runs(block, tmp_path, monkeypatch):
    """Blocks are whole programs, unless the line before says that they are not run."""
    code = compile("\n" * block.line + block.text, str(block.page), "exec")
    if not block.not_run:
        monkeypatch.chdir(tmp_path)
        exec(code, {"__name__": "a_page"})


def _opened(file):
    return open_facility(site=str(file)).settings


@pytest.mark.parametrize("block", _of("toml"))
def test_toml_loads(block, tmp_path):
    """Workflow files, site files of clusters, and those of a planning scheduler's system; entry points exist."""
    given = tomllib.loads(block.text)
    file = tmp_path / "given.toml"
    file.write_text(block.text)
    for stage in given.get("stage", []):
        (tmp_path / stage.get("script", "none")).write_text("true\n")
    if "project" in given:
        assert set(given["project"]["entry-points"]) <= set(DECLARED)
        return
    load = {"clusters": _opened, "stage": load_workflow, "nodes": load_system, "limits": load_limits}
    [kind] = load.keys() & given.keys()
    assert load[kind](file)


# ---------------------------------------------------------------------- commands


@cache
def _tree():
    return typer.main.get_command(importlib.import_module("asa.cli.app").app)


def _options(command):
    former = importlib.import_module("asa.cli.app").former_options(command)
    own = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    return {"--help"} | own | former.keys()


def _all_options(command):
    below = [_all_options(child) for child in getattr(command, "commands", {}).values()]
    return _options(command).union(*below)


def _check_command(words):
    """Follow the words of a command line through the tree of commands; say what is wrong with them."""
    command, words = _tree(), words[1:]
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"there is no command {words[0]!r}"
        command = command.commands[words.pop(0)]
    own = words[: words.index("--")] if "--" in words else words  # what follows is another program's
    for name in (word.partition("=")[0] for word in own if re.match("--?[a-z]", word)):
        assert name in _options(command), f"{command.name} has no option {name}"


def _commands_in(line):
    """Yield the command lines of asa in a line of a shell."""
    line = line.strip().removeprefix("$ ").replace("…", "").replace("...", "")
    if not re.match(r"asa [a-z-]", line):
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
    lexer.whitespace_split = True
    words = []
    for word in [*lexer, ";"]:
        if set(word) <= set("&|;<>"):
            if words[:1] == ["asa"]:
                yield words
            words = []
        else:
            words.append(word)


def _command_lines():
    lines = [(f"{b.page.name}:{b.line}", line) for b in BLOCKS if not b.language for line in b.text.splitlines()]
    lines += [(page.name, code) for page, code in INLINE]
    for example in EXAMPLES.glob("*.py"):
        lines += [(example.name, code) for code in re.findall(r"`([^`]+)`", _docstring(example.stem))]
    return [(where, words) for where, line in lines for words in _commands_in(line.replace("\n", " "))]


def test_commands_exist_and_have_these_options():
    """No guide names a command or an option that is not there."""
    told = []
    lines = _command_lines()
    assert len(lines) > 80
    for where, words in lines:
        try:
            _check_command(list(words))
        except AssertionError as wrong:
            told.append(f"{where}: {shlex.join(words)}: {str(wrong).splitlines()[0]}")
    assert not told


def _block_of_readme(text):
    [block] = [block for block in BLOCKS if block.page.name == "README.md" and text in block.text]
    return [words for line in block.text.splitlines() for words in _commands_in(line)]


def test_the_first_look_works_for_a_new_user(tmp_path, monkeypatch):
    """Nothing was learned, nothing is kept in the home; comparisons are cut down to a run or two."""
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "COLUMNS": "120"}
    monkeypatch.chdir(tmp_path)
    for words in _block_of_readme("asa list"):
        brief = ["--cores", "28", "--seeds", "1", "--jobs", "1"] if words[1] == "compare" else []
        assert forked.asa(*words[1:], *brief, env=env).stdout
    assert not list(tmp_path.iterdir())


def test_five_commands_wrap_the_scripts_of_the_readme(tmp_path, monkeypatch):
    """In a copy of the folder that it names; the computer has as many slots as the scripts want."""
    folder = tmp_path / "reads"
    shutil.copytree(EXAMPLES / "reads", folder)
    subprocess.run([sys.executable, "make_reads.py", "--bases", "5000"], cwd=folder, check=True)
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "COLUMNS": "120"}
    commands = _block_of_readme("asa import scripts")
    assert [words[1] for words in commands] == ["import", "check", "show", "compare", "run"]
    monkeypatch.chdir(folder)
    for words in commands:
        more = {"compare": ["--seeds", "1", "--jobs", "1"], "run": ["--option", "cores=8"]}.get(words[1], [])
        forked.asa(*words[1:], *more, env=env)
    assert "reads kept" in (folder / "report.txt").read_text()


# ---------------------------------------------------------------------- the page of what one sees


def test_all_that_the_page_shows_is_made_again_by_its_tool():
    """Each block that begins with a command is found by what fills them; of each it has what was printed."""
    page = examples_page.PAGE.read_text()
    commands = [command for command, _ in examples_page.commands_of(page)]
    assert commands == re.findall(r"^\$ (.+)$", page, re.MULTILINE)
    words = [shlex.split(command)[1] for command in commands if command.startswith("asa ")]
    assert words == ["import", "check", "show", "run", "run", "status", "explain", "logs", "report"]
    assert examples_page.filled(page, dict.fromkeys(commands, "other\n")).count("other\n") == len(commands)


def test_the_page_shows_what_commands_print_now(tmp_path):
    """Those before the first that needs a cluster."""
    page = examples_page.PAGE.read_text()
    folder = tmp_path / "forecast"
    shutil.copytree(examples_page.EXAMPLE, folder)
    env = {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "TERM": "xterm-256color"}
    commands = [command for command, _ in examples_page.commands_of(page)]
    printed = {}
    for command in commands[: commands.index(f"{examples_page.RUN} --dry-run")]:
        printed[command] = examples_page.plain("".join(examples_page.Terminal(command, folder, env).end()))
    assert len(printed) == 4
    assert [command for command, text in printed.items() if f"```\n$ {command}\n{text}```\n" not in page] == []


@pytest.mark.full
def test_the_forecast_is_what_the_page_shows(tmp_path, monkeypatch):
    """Its scripts compute the chart that is there, without a batch system as well."""
    spec = importlib.util.spec_from_file_location("weather", examples_page.EXAMPLE / "weather.py")
    weather = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(weather)
    monkeypatch.chdir(tmp_path)
    weather.initial()
    for number in range(1, weather.MEMBERS + 1):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(number))
        weather.member()
    weather.merge()
    weather.verify()
    weather.chart()
    assert f"$ asa logs mail\n{Path('errors.txt').read_text()}```" in examples_page.PAGE.read_text()


def test_pictures_are_small_and_on_a_page():
    """None takes as long to load as its page."""
    pictures = sorted((ROOT / "docs").rglob("*.svg"))
    whole = "".join(page.read_text() for page in PAGES)
    assert {"examples-run.svg", "examples-timeline.svg", "picture.svg"} <= {picture.name for picture in pictures}
    assert not [picture.name for picture in pictures if picture.stat().st_size > 60_000]
    assert not [picture.name for picture in pictures if f"{picture.name})" not in whole]


# ---------------------------------------------------------------------- the tutorial


TUTORIAL = [block for block in BLOCKS if block.page.name == "tutorial.md" and block.language == "sh"]
ON_A_CLUSTER = "on a cluster"  # what comes there is run by tests/slurm/test_tutorial.py


@pytest.mark.full
@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.full)])
def test_the_tutorial_runs_from_its_first_command_to_its_last(tmp_path, is_whole):
    """In the order of the page, in one shell, with nothing in the home; its figures are those that come out.

    If it is not whole, comparisons are cut down to a run, and have no figures that are on the page.
    """
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    blocks = [block for block in TUTORIAL if block.said != ON_A_CLUSTER]
    assert len(blocks) > 10
    shell = "set -eu\n"
    for block in blocks:
        code = int(block.said.removeprefix("ends with ") or 0)
        shell += block.text if code == 0 else f"set +e\n{block.text}[ $? = {code} ] || exit 99\nset -e\n"
    assert shell.count("--seeds 20") == 2
    if not is_whole:
        shell = shell.replace("--seeds 20", "--seeds 1 --jobs 1")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {"HOME": str(tmp_path), "PATH": path, "COLUMNS": "100"}
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "reads kept" in (tmp_path / "reads" / "report.txt").read_text()
    runs = list((tmp_path / "reads" / "asa-runs").iterdir())
    assert len(runs) == 2  # the second was gone on with
    if not is_whole:
        return
    page = (ROOT / "docs" / "tutorial.md").read_text()
    found = re.search(r"asa-plan finishes (\d+) %.*? for (\d+) %.*?finishes (\d+) %", done.stdout, re.DOTALL)
    told = re.search(r"ends (\d+) % sooner.*?for (\d+) % fewer core-hours, and (\d+) % sooner", page, re.DOTALL)
    assert told.groups() == found.groups()


def test_what_the_tutorial_does_on_a_cluster_is_marked():
    """Lest a command is run by no test."""
    kinds = {block.said for block in TUTORIAL}
    assert kinds == {"", "ends with 1", ON_A_CLUSTER}


def test_options_that_are_named_alone_are_somebodys():
    """An option that is told apart from its command is one of some command's."""
    alone = {(page.name, code.split()[0].partition("=")[0]) for page, code in INLINE if code.startswith("--")}
    assert alone
    assert not [(page, option) for page, option in alone if option not in _all_options(_tree()) | OF_OTHERS]


# ---------------------------------------------------------------------- examples


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda example: example.stem)
def test_an_example_is_under_a_page(example):
    """A page is 70 lines of code; a whole backend may take two, for its contract has twelve methods."""
    text = example.read_text()
    words = {ast.Module, ast.ClassDef, ast.FunctionDef}
    docstrings = [node.body[0] for node in ast.walk(ast.parse(text)) if type(node) in words and ast.get_docstring(node)]
    told = {line for docstring in docstrings for line in range(docstring.lineno, docstring.end_lineno + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    code = {n for t in tokens if t.type not in silent for n in range(t.start[0], t.end[0] + 1)}
    assert len(code - told) <= PAGE_LINES * (2 if example.stem == "small_backend" else 1)


def _example(name):
    spec = importlib.util.spec_from_file_location(name, _file(name))
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made  # dataclasses look their module up
    spec.loader.exec_module(made)
    return made


@pytest.mark.full
@pytest.mark.parametrize("name", OWN)
def test_examples_of_ones_own_run(name, capsys):
    """Each thing that can be added has an example that works."""
    _example(name).main(*QUICKLY.get(name, []))
    assert capsys.readouterr().out


def test_an_agent_learns_by_an_objective_of_ones_own(capsys, tmp_path, monkeypatch):
    """It costs less by that than order of age, and can be used where nothing can be learned."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    _example("own_objective").main(episodes=2)
    told = re.findall(r"([\d,]+) a job.*: (.+)", capsys.readouterr().out)
    costs = {name: float(cost.replace(",", "")) for cost, name in told}
    assert costs["the new agent"] < 0.8 * costs["order of age"]
    assert isinstance(dras(weights="out/own_objective.npz"), Patient)


def test_without_pytorch_the_objective_says_what_is_missing(capsys, monkeypatch):
    """`make examples` goes on."""
    monkeypatch.setitem(sys.modules, "torch", None)
    _example("own_objective").main()
    assert "pip install 'asa-client[dras]'" in capsys.readouterr().out


@pytest.mark.parametrize("name", [*OWN, "own_backend"])
def test_examples_say_how_they_are_made_known(name):
    """The entry point in each docstring is of a group that asa looks through, and names what is there."""
    told = _docstring(name)
    lines = told[told.index("[project.entry-points.") :].split("\n\n")[0]
    [(group, points)] = tomllib.loads(lines)["project"]["entry-points"].items()
    assert group in DECLARED
    for point in points.values():
        module, _, attribute = point.partition(":")
        assert module == name
        assert callable(getattr(_example(name), attribute))


def test_every_setting_of_a_site_is_listed():
    """And no other; of those of one backend alone in its own table."""
    of_local = {field.name for field in dataclasses.fields(LocalSettings)}
    own = [set(model.model_fields) for model in (CommandSettings, RestSettings)]
    page = (ROOT / "docs" / "reference" / "site-files.md").read_text()
    tables = ["".join(re.findall(r"^\| (`.*?`) \|", part, re.MULTILINE)) for part in page.split("\n## ")[1:]]
    listed = [set(re.findall(r"`(\w+)`", cells)) for cells in tables]
    of_slurm = set(SlurmSettings.model_fields)
    of_clusters = {"clusters", "moves"}  # and tables of settings of each
    assert listed == [of_slurm, *(names - of_slurm for names in own), of_local, of_clusters]


def test_the_public_interface_is_what_the_guide_lists():
    """Each name that `asa` exports, and each module whose names may be relied on."""
    names, modules = (
        table.split("\n\n")[0]
        for table in (ROOT / "docs" / "reference" / "python.md").read_text().split("|---|---|")[1:]
    )
    cells = [[row.split("|")[1] for row in table.splitlines() if row.startswith("|")] for table in (names, modules)]
    listed = [[name for cell in column for name in re.findall(r"`([\w.]+)`", cell)] for column in cells]
    assert sorted(listed[0]) == sorted(importlib.import_module("asa").__all__)
    assert all(importlib.import_module(name).__all__ for name in listed[1])
