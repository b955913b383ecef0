"""The counts of `tools/house.py` on short sources, and that the map names every room."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import house
import pytest

ROOT = Path(__file__).parents[1]
WAVES = house.Mechanism("waves", ("asa/waves.py",), frozenset({"wave", "waves"}), apart=("asa/sea/*",))
PUT_OFF = house.Mechanism("put off", (), frozenset({"put off"}))
ARRAYS = house.Mechanism("arrays", (), frozenset({"array"}), frozenset({"np.array"}))


@pytest.mark.parametrize(
    ("mechanism", "text", "is_mentioned"),
    [
        (WAVES, "from asa.waves import slots_of\n", True),
        (WAVES, "def f(of):\n    return of.first_wave\n", True),
        (WAVES, "class Waves: ...\n", True),
        (WAVES, "class TwoWavesOf: ...\n", True),
        (WAVES, '# a wave\nx = "wave"\n"""waves"""\nwaver = microwaved = 1\n', False),
        (PUT_OFF, "put_off_s = 1\n", True),
        (PUT_OFF, "class PutOff: ...\n", True),
        (PUT_OFF, "put = off = 1\n", False),
        (ARRAYS, "import numpy as np\nx = np.array([1])\n", False),
        (ARRAYS, "def f(x):\n    return x.array\n", True),
    ],
)
def test_a_mechanism_is_mentioned_by_names_in_code(mechanism, text, is_mentioned):
    assert house.mentions(mechanism, {"asa/other.py": text}) == ["asa/other.py"] * is_mentioned


@pytest.mark.parametrize("file", ["asa/waves.py", "asa/sea/tide.py"])
def test_home_is_not_counted_nor_where_the_word_means_something_else(file):
    assert not house.mentions(WAVES, {file: "wave = 1\n"})


def test_circles_of_imports_are_found_but_those_of_types():
    sources = {
        "asa/__init__.py": "",
        "asa/a.py": "from asa import b\n",
        "asa/b.py": "from .c import x\n",
        "asa/c.py": "def f():\n    import asa.a\n",
        "asa/d.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from asa.e import x\n",
        "asa/e.py": "import asa.d\n",
    }
    assert house.circles(sources) == [["asa.a", "asa.b", "asa.c"]]


def test_what_is_installed_elsewhere_has_its_name():
    assert house.module("backends/slurm/__init__.py") == "asa.backends.slurm"
    assert house.module("asa/cli/app.py") == "asa.cli.app"


def test_too_much_is_said_and_ceilings_only_fall(monkeypatch, tmp_path):
    of = {
        "mechanisms": {"waves": {"home": [], "words": ["wave"], "ceiling": 1}},
        "complexity": {"limit": 20, "but": ["asa/a.py:*"]},
    }
    monkeypatch.setattr(house, "too_complex", lambda _: ["asa/a.py:f", "asa/b.py:g"])
    text = "wave = 1\n"
    sources = {"asa/a.py": f"{text}class Twice: ...\n", "asa/b.py": f"{text}class Twice: ...\n"}
    first, second, third = house.troubles(of, sources)
    assert first.startswith("waves: mentioned in 2 files outside their home, 1 at most")
    assert second.startswith("class Twice is there 2 times: asa/a.py, asa/b.py")
    assert third == "asa/b.py:g has a complexity above 20: divide it"
    written = '[mechanisms."waves"]\nceiling = {}\nhome = []\n'
    monkeypatch.setattr(house, "TABLE", tmp_path / "house.toml")
    for ceiling, after in ((1, 1), (2, 2), (7, 2)):
        of["mechanisms"]["waves"]["ceiling"] = ceiling
        house.TABLE.write_text(written.format(ceiling))
        assert house.lower(of, sources) == written.format(after)


def test_whoever_reads_the_counts_may_stop_before_their_end():
    command = f"{shlex.join([sys.executable, house.__file__, '--count'])} | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert not done.stderr


def test_a_function_that_branches_too_often_is_found(monkeypatch, tmp_path):
    (tmp_path / "asa").mkdir()
    branches = "".join(f"    if x == {n}:\n        return {n}  \n" for n in range(21))
    (tmp_path / "asa" / "a.py").write_text(f"def f(x):  # noqa: C901\n{branches}def g(x):\n    return x\n")
    monkeypatch.setattr(house, "ROOT", tmp_path)
    monkeypatch.setattr(house, "_FOLDERS", ("asa",))
    assert house.too_complex(20) == ["asa/a.py:f"]


def test_the_map_names_every_room():
    """Each package and module of `asa/`, and each package of backends."""
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## The map")[2].partition("\n## ")[0]
    named = set()
    for row in (line.split("|")[1] for line in section.splitlines() if line.startswith("| `")):
        folder = ""
        for name in (found.rstrip("/") for found in re.findall(r"`([\w/.]+)`", row)):
            folder, _, rest = name.rpartition("/") if "/" in name else (folder, "", name)
            named.add(f"{folder}/{rest}".strip("/"))
    rooms = {
        path.relative_to(ROOT).as_posix()
        for top in ("asa", "backends")
        for path in (ROOT / top).iterdir()
        if (path / "__init__.py").is_file() or (top == "asa" and re.fullmatch(r"[a-z]\w*\.py", path.name))
    }
    assert rooms - named == set(), "these are not in the map"
    assert named - rooms == {"workflows"}, "the map has what is not there"
