"""No Python of ours takes a module of the folder that it is started in; a user's own functions find theirs."""

import ast
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from asa.core import python
from asa.flow import stage

ROOT = Path(__file__).parents[1]
HOMES = {ROOT / "asa" / "core" / f"{name}.py" for name in ("python", "processes")}
ENDED_BY_OTHERS = {"parent_process", "Connection", "wait", "SpawnProcess", "ForkingPickler", "SharedMemory"}
"""What may be taken of multiprocessing: it starts nothing, or what `context` has started already."""


def starts(node):
    """Return how a piece of a source file starts a Python; empty if it does not."""
    if isinstance(node, ast.Attribute) and node.attr == "executable":
        return ast.unparse(node)
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "multiprocessing":
        return ", ".join(name.name for name in node.names if name.name not in ENDED_BY_OTHERS)
    if isinstance(node, ast.Import):
        return ", ".join(name.name for name in node.names if name.name.split(".")[0] == "multiprocessing")
    if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "ProcessPoolExecutor":
        contexts = [ast.unparse(given.value) for given in node.keywords if given.arg == "mp_context"]
        return "" if contexts == ["context()"] else "ProcessPoolExecutor"
    if isinstance(node, ast.List | ast.Tuple) and node.elts and not is_option(node):
        return "-m" if any(isinstance(one, ast.Constant) and one.value == "-m" for one in node.elts) else ""
    return ""


def is_option(node):
    """Whether it is a list of options of other programs."""
    return all(isinstance(one, ast.Constant) and str(one.value).startswith("-") for one in node.elts)


@pytest.mark.parametrize(
    ("line", "is_start"),
    [
        ('run([sys.executable, "x"])', True), ('[self.python, "-m", "distributed"]', True),
        ("import multiprocessing", True),
        ("from multiprocessing import get_context", True), ("from multiprocessing.pool import Pool", True),
        ("from concurrent.futures import ProcessPoolExecutor\nProcessPoolExecutor(2)", True),
        ("from multiprocessing import parent_process", False), ("ProcessPoolExecutor(mp_context=context())", False),
        ('("-n", "-m")', False), ('command("-m", "asa")', False),
    ],
)  # fmt: skip
def test_what_starts_a_python_is_known(line, is_start):
    assert any(map(starts, ast.walk(ast.parse(line)))) is is_start


@pytest.mark.full
def test_nowhere_else_is_a_python_started():
    """So that a new one is started in the same way. A default that names an interpreter starts none."""
    found = {}
    for file in sorted((*(ROOT / "asa").rglob("*.py"), *(ROOT / "backends").rglob("*.py"))):
        tree = ast.parse(file.read_text())
        defaults = {id(one) for node in ast.walk(tree) if isinstance(node, ast.arguments) for one in node.kw_defaults}
        for node in ast.walk(tree):
            if file not in HOMES and id(node) not in defaults and (how := starts(node)):
                found[f"{file.relative_to(ROOT)}:{node.lineno}"] = how

    assert found == {}
    for file in (*(ROOT / "asa").rglob("*.sh"), *(ROOT / "backends").rglob("*.sh")):
        assert "python" not in file.read_text(), file


# ---------------------------------------------------------------------- other users' modules

PLANTED = """
import os
with open({proof!r}, "a") as file:
    file.write(f"{{os.getuid()}} {module}\\n")
raise ImportError("of a stranger")
"""


@pytest.fixture
def planted(accounts):
    """A group's folder in which a stranger has left modules by names that programs need, and who has run one."""
    proof = accounts.place / "proof"
    proof.touch()
    proof.chmod(0o666)
    folder = accounts.group_folder()

    def plant(*modules):
        for module in modules:
            text = PLANTED.format(proof=str(proof), module=module)
            if module == "asa":
                accounts.stranger.mkdir(folder / "asa")
            name = "asa/__init__" if module == "asa" else module
            accounts.stranger.write(folder / f"{name}.py", text)
        return folder

    plant.who = proof.read_text
    return plant


PROCESSES = """
import json, os, sys
from asa import dmr
from asa.backends.simulated.commands import _processes
from asa.core.parallel import pool

def safe(_part=None):
    return os.environ.get("PYTHONSAFEPATH"), sys.flags.safe_path

if __name__ == "__main__":
    with pool(2) as processes:
        seen = [processes.submit(safe).result()]
    with _processes() as processes:
        seen.append(processes.submit(safe).result())
    with dmr.Pool(1, {"x": [1, 2]}) as processes:
        seen += processes.run(safe)
    print(json.dumps([*seen, safe()]))
"""


def test_processes_that_share_work_take_no_module_of_the_folder_that_they_are_started_in(accounts, planted):
    """Before, `asa compare` in a group's folder ran a `struct.py` that another member had left there."""
    folder = planted("struct", "multiprocessing", "pickle", "asa", "numpy")
    program = accounts.victim.write(accounts.victim.home / "program.py", PROCESSES)
    done = accounts.victim.run(sys.executable, program, cwd=folder)
    assert planted.who() == ""
    assert done.returncode == 0, done.stderr
    # what they start is as ever
    assert json.loads(done.stdout) == [*[[None, True]] * 3, [None, False]]


@stage(cores=1, walltime=60)
def say(words: str) -> None: ...


def test_a_stage_that_is_a_function_takes_no_module_of_the_folder_that_it_runs_in(accounts, planted):
    """Before, it took `asa` and what that needs of there."""
    folder = planted("asa", "pydantic", "numpy", "runpy", "surely_not_installed")
    words = shlex.split(say.bind("well").command)
    words[words.index("asa.call") + 2] = str(accounts.victim.write(accounts.victim.home / "mine.py", MINE))
    words[words.index("asa.call") + 1] = "mine"
    done = accounts.victim.run(*words, cwd=folder)
    assert planted.who() == ""
    assert (done.stdout, done.returncode) == ("well of one's own\n", 0), done.stderr


MINE = """
from asa.flow import stage
@stage(cores=1, walltime=60)
def say(words):
    import json, struct, numpy
    try:
        import surely_not_installed
    except ModuleNotFoundError:
        print(words, "of one's own")
"""


@pytest.mark.full
def test_workers_of_a_pool_take_no_module_of_the_folder_that_they_run_in(accounts, planted):
    """Before, they took what dask needs of there; and they find what lies beside its owner's program."""
    pytest.importorskip("distributed")
    folder = planted("psutil", "msgpack", "tornado", "cloudpickle", "asa", "pynvml")
    home = accounts.victim.home
    accounts.victim.write(home / "beside.py", "def double(x): return 2 * x\n")
    program = accounts.victim.write(home / "program.py", POOL)
    done = accounts.victim.run(sys.executable, program, cwd=folder, timeout=120)
    assert planted.who() == ""
    assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr


POOL = """
import sys
import beside
from asa.pool import AsaCluster
from distributed import Client

if __name__ == "__main__":
    with AsaCluster(backend="local", cores=1, threads=1, n_workers=1, bank=False) as pool, Client(pool) as client:
        print(client.submit(beside.double, 21).result(60))
"""


# ---------------------------------------------------------------------- a user's own modules

FILES = {
    "program.py": "from steps.deep.fit import fit\nimport near\n",
    "near.py": "WORD = 'near'\n",
    "steps/__init__.py": "",
    "steps/other.py": "WORD = 'other'\n",
    "steps/deep/__init__.py": "",
    "steps/deep/sibling.py": "WORD = 'sibling'\n",
    "steps/deep/fit.py": """
from asa.flow import stage
from . import sibling
from steps.other import WORD
@stage(cores=1, walltime=60)
def fit(x):
    import near
    print(x, WORD, sibling.WORD, near.WORD)
""",
}
BIND = "import subprocess, sys; {line}; sys.exit(subprocess.call({function}.bind(1).command, shell=True, cwd={cwd!r}))"


@pytest.fixture
def project(tmp_path):
    """A program with modules beside it, and a package."""
    for name, text in FILES.items():
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(text)
    return tmp_path / "project"


@pytest.mark.full
def test_a_function_finds_its_package_and_what_lies_beside_it_wherever_it_runs(project, tmp_path):
    """Before, it found its package in the folder that it runs in alone."""
    for cwd in (project, tmp_path):
        code = BIND.format(line="from steps.deep.fit import fit", function="fit", cwd=str(cwd))
        done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False)
        assert done.stdout == "1 other sibling near\n", done.stderr


@pytest.mark.full
@pytest.mark.parametrize("how", [["program.py"], ["-m", "program"], ["-m", "steps.program"]])
def test_a_function_of_a_program_finds_what_its_program_finds(project, how, tmp_path):
    text = """
from asa.flow import stage
@stage(cores=1, walltime=60)
def fit(x):
    import near
    print(near.WORD)
if __name__ == "__main__":
    """
    end = BIND.format(line="pass", function="fit", cwd=str(project if how[-1] == "steps.program" else tmp_path))
    (project / "program.py").write_text(text + end)
    (project / "steps" / "program.py").write_text(text + end)
    done = subprocess.run([sys.executable, *how], cwd=project, capture_output=True, text=True, check=False)
    assert done.stdout == "near\n", done.stderr


@pytest.mark.parametrize(
    ("module", "file", "folder"),
    [
        ("fit", "/w/fit.py", "/w"), ("a.b.fit", "/w/a/b/fit.py", "/w"), ("a.b", "/w/a/b/__init__.py", "/w"),
        ("__main__", "/w/a/fit.py", "/w/a"), ("a.__main__", "/w/a/__main__.py", "/w"), ("other", "/w/a/fit.py", "/w/a"),
        ("a.b.c.d.e", "/w/fit.py", "/w"),
    ],
)  # fmt: skip
def test_the_folder_of_a_module_is_that_of_its_package(module, file, folder):
    assert python.folder_of(module, file) == folder


def test_modules_are_taken_of_a_folder_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert python.folder_here() == [os.path.realpath(tmp_path)]


def test_modules_are_not_taken_of_a_folder_that_others_can_write_to(accounts):
    folder = accounts.group_folder()
    assert accounts.victim.call(python.folder_here, cwd=folder) == []
    assert accounts.victim.call(python.folder_here, cwd=accounts.victim.home) == [str(accounts.victim.home)]
