"""The time of every reader grows with the length of what it reads, and no faster.

What is read is found, not listed: every regular expression in the sources with how it is used, and every function of a
module that takes a text first. Who writes a new one has it here, too. What is not tried is in `NOT_TRIED`, with the
reason.
"""

import ast
import gc
import importlib
import inspect
import math
import re
import signal
import time
from contextlib import suppress
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = {"asa": "asa", "backends": "asa.backends", "workflows": "asa.workflows"}
METHODS = {"match", "search", "fullmatch", "findall", "finditer", "sub", "split", "subn"}
# growth of the time for four times the length: 4 if it is linear, 16 if it is the square
MAX_GROWTH = 9.0
SURE_S = 0.006
"""Less than that is too short to judge by."""
MOST_S = 3.0
TICK_S = 0.004  # in which some machines count CPU time
WORTH_S = 0.002
"""What takes less for 4,000 letters does not do 4,000 squared steps: it need not be measured."""

SHAPES = (
    "a", "1", " ", "\n", ",", "[", "(", "{", '"', "'", "\\", "`", "*", "<", "a,", "[1-2],", "key = 1\n", "ab ", "1-",
    "1:", "1.", "a=", "a|", "a/", "a;", "# ", "${a:-", "$(", '{"a":', "[1,", "n[1-3]", "1h ", "<<a\n", "gpu:a:1,",
    "--a=b ", "a->b ", "[a]\n", "{{ ", "1_", "%a", "@1", "#SBATCH --x=1\n", "&a=", "a=(", "(1),", "A=1 sbatch x\n",
)  # fmt: skip

NOT_TRIED = {
    "asa.spec.calls": "Python's own reader of Python",
    "asa.spec.checks": "runs shells",
    "asa.spec.environments": "runs shells",
    "asa.backends.slurm.commands.process": "runs commands",
    "asa.backends.slurm.commands.direct": "runs commands",
}


@cache
def modules():
    """Every module's name and tree: to read them takes some seconds of CPU."""
    found = []
    for room, package in ROOMS.items():
        for file in sorted((ROOT / room).rglob("*.py")):
            parts = file.relative_to(ROOT / room).with_suffix("").parts
            if "plugins" not in parts and parts[-1] != "__main__":
                name = ".".join((package, *(part for part in parts if part != "__init__")))
                found.append((name, ast.parse(file.read_text())))
    return found


def is_tried(name):
    return not any(name == known or name.startswith(f"{known}.") for known in NOT_TRIED)


# ---------------------------------------------------------------------- measuring


class TooLongError(BaseException):
    """It took more CPU time than anything here may."""


def give_up(*_):
    raise TooLongError


def cpu_s(work, text):
    """CPU seconds that it takes, whatever comes of it; infinite where it is more than any of this may take."""
    is_collecting = gc.isenabled()
    gc.disable()
    before = signal.signal(signal.SIGVTALRM, give_up)
    begin = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
        with suppress(Exception):
            found = work(text)
            if inspect.isgenerator(found):
                for _ in found:
                    pass
        return time.process_time() - begin
    except TooLongError:
        return math.inf
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
        if is_collecting:
            gc.enable()


def grows_too_fast(work, made, sizes=(2_000, 8_000, 32_000)):
    """Say for which size and by how much; None if its time grows as the length does.

    A single measurement may be disturbed, and only ever be too long: so what grows too fast is measured again.
    """
    before = cpu_s(work, made(sizes[0]))
    if before == math.inf:
        return f"{sizes[0]} take more than {MOST_S:.0f} s"
    for smaller, size in pairwise(sizes):
        took = cpu_s(work, made(size))
        if took > SURE_S and took > MAX_GROWTH * before:
            before = max(median(cpu_s(work, made(smaller)) for _ in range(5)), TICK_S)
            took = min(took, *(cpu_s(work, made(size)) for _ in range(2)))
            if took > SURE_S and took > MAX_GROWTH * before:
                return f"{size} take {took:.4f} s, {smaller} take {before:.4f} s"
        if took > 0.2:
            return None
        before = took
    return None


# ---------------------------------------------------------------------- regular expressions


def called(node):
    """The name of a function that is called, as in ``re.compile``; empty for what is no name."""
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


@cache
def expressions():
    """Every regular expression in the sources that is known before anything runs, with how it is used."""
    found = {}
    for name, tree in modules():
        nodes = [
            node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign | ast.Attribute | ast.Call)
        ]
        compiled = {
            target.id
            for node in nodes
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and isinstance(node.value, ast.Call)
            and called(node.value) in {"re.compile", "pattern"}
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        for node in nodes:
            if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in METHODS):
                continue
            if node.value.id in compiled:
                found.setdefault((name, node.value.id, node.attr), None)
        for node in nodes:
            if isinstance(node, ast.Call) and called(node) in {f"re.{method}" for method in METHODS}:
                pattern = node.args[0]
                if isinstance(pattern, ast.Constant):
                    flags = [ast.unparse(one) for one in (*node.args[1:], *(word.value for word in node.keywords))]
                    several = re.MULTILINE if any("MULTILINE" in flag for flag in flags) else 0
                    found[name, pattern.value, node.func.attr] = several
    return found


def letters_of(pattern):
    """A few letters that the expression tells apart, by those that are written in it."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    plain = re.sub(r"\\[dDsSwWbBAZ]|\(\?[a-zA-Z:<>=!]*", "", text)
    written = dict.fromkeys(letter for letter in plain if letter not in "()[]{}|?*+^$\\")
    marks = [letter for letter in written if not letter.isalnum()]
    return ["a", "0", " ", "\n", *marks[:8], *[letter for letter in written if letter.isalnum()][:2]]


def texts_of(pattern, flat=re.compile(r"\w+")):
    letters = dict.fromkeys(letters_of(pattern))
    beginnings = ["", *(word[0] for word in [flat.findall(str(pattern.pattern))] if word)]
    for beginning, (one, other), end in product(beginnings, product(letters, ["", *letters]), ("", "\x01")):
        if one != other:
            yield beginning, one + other, end


def found_quadratic(pattern, method):
    for beginning, unit, end in texts_of(pattern):

        def made(size, beginning=beginning, unit=unit, end=end):
            text = beginning + unit * (size // len(unit)) + end
            return text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")

        def work(text):
            if method in {"sub", "subn"}:
                return getattr(pattern, method)("" if isinstance(text, str) else b"", text)
            return list(pattern.finditer(text)) if method == "finditer" else getattr(pattern, method)(text)

        took = cpu_s(work, made(4_000))
        if took < max(WORTH_S, 6 * cpu_s(work, made(1_000))):
            continue  # it is linear, or of no account
        if how := grows_too_fast(work, made, (4_000, 16_000)):
            return f"{method} of {pattern.pattern!r} in {beginning!r} {unit!r}... {end!r}: {how}"
    return None


@pytest.mark.full
def test_no_regular_expression_takes_the_square_of_a_texts_length():
    bad = []
    for (name, given, method), flags in expressions().items():
        pattern = getattr(importlib.import_module(name), given, None) if flags is None else re.compile(given, flags)
        if pattern is not None and (how := found_quadratic(re.compile(pattern.pattern, pattern.flags), method)):
            bad.append(f"{name}: {how}")
    assert not bad, "\n".join(bad)


# ---------------------------------------------------------------------- functions

READING = (
    "asa.bags", "asa.core.documents", "asa.core.words", "asa.elements", "asa.importers", "asa.payload", "asa.printable",
    "asa.requests", "asa.runner.entries", "asa.runtimes.log", "asa.spec", "asa.units", "asa.workflow",
    "asa.backends.shell", "asa.backends.simulated.swf", "asa.backends.slurm",
)  # fmt: skip
"""Rooms and modules that understand texts of others; the rest has them from these."""

TEXTS = {"str", "bytes", "str | bytes", "str | bytes | bytearray", "object", "str | None"}
GIVEN = {
    "str": "x", "int": 3, "float": 1.0, "bool": False, "str | None": None, "int | None": None, "float | None": None,
    "bytes": b"x", "Path": Path("none"), "Sequence[str]": ["x"], "Mapping[str, Any]": {}, "int | str": 3,
    "Mapping[str, str]": {}, "Iterable[str]": ["x"], "Any": None, "object": None, "Collection[str]": ["x"],
    "Collection[int | str]": [1], "Mapping[str, Place]": {}, "list[str]": ["x"], "Callable[[], T]": lambda: None,
}  # fmt: skip


def arguments_of(node):
    """Something for each parameter but the first that must be given; None if that is not known."""
    named = [*node.args.posonlyargs, *node.args.args]
    needed = named[1 : len(named) - len(node.args.defaults)]
    alone = [one for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if default is None]
    if any(one.annotation is None or ast.unparse(one.annotation) not in GIVEN for one in (*needed, *alone)):
        return None
    value = {one.arg: GIVEN[ast.unparse(one.annotation)] for one in (*needed, *alone)}
    return [value[one.arg] for one in needed], {one.arg: value[one.arg] for one in alone}


def functions():
    for name, tree in modules():
        if not name.startswith(READING):
            continue
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef) or not (named := [*node.args.posonlyargs, *node.args.args]):
                continue
            kind = ast.unparse(named[0].annotation) if named[0].annotation else ""
            if kind in TEXTS and is_tried(name) and is_tried(f"{name}.{node.name}") and arguments_of(node):
                yield name, node.name, kind, arguments_of(node)


def growth_of(function, kind, given):
    words, named = given
    for shape in SHAPES:
        unit = shape.encode() if kind.startswith("bytes") else shape

        def work(text):
            return function(text, *words, **named)

        def made(size, unit=unit):
            return unit * (size // len(unit))

        # twice, as what has a bound may grow as the square until there
        if grows_too_fast(work, made) and (how := grows_too_fast(work, made, (4_000, 16_000))):
            return f"{shape!r}: {how}"
    return None


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_no_function_of_a_text_takes_the_square_of_its_length(part, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    every = sorted(functions(), key=lambda one: one[:2])
    assert len(every) > 90
    bad = []
    for name, called, kind, given in every[part::4]:
        if how := growth_of(getattr(importlib.import_module(name), called), kind, given):
            bad.append(f"{name}.{called}: {how}")
    assert not bad, "\n".join(bad)


@pytest.mark.full
def test_what_takes_the_square_is_found(monkeypatch):
    def quadratic(text):
        whole = []
        for letter in text:
            whole = [*whole, letter]

    def sought(text):
        return re.search(r"a+b", text)

    assert growth_of(quadratic, "str", ([], {}))
    assert growth_of(sought, "str", ([], {}))
    assert not growth_of(lambda text: text.split(","), "str", ([], {}))
    monkeypatch.setitem(globals(), "WORTH_S", WORTH_S / 10)  # a quick machine takes little for these short texts
    assert found_quadratic(re.compile(r"\s*x"), "search")
    assert found_quadratic(re.compile(r"(\w+)="), "findall")
    assert found_quadratic(re.compile(r"a+b"), "search")
    monkeypatch.setitem(globals(), "MOST_S", 0.1)
    assert found_quadratic(re.compile(r"(a*)*b"), "fullmatch")  # worse than the square
    assert ("asa.core.variables", "_VALUE", "search") in expressions()
    assert not found_quadratic(re.compile(r"(?<!\w)(\w++)="), "findall")
    names = {f"{name}.{called}" for name, called, _, _ in functions()}
    assert {"asa.elements.parse_array", "asa.units.parse_duration", "asa.core.documents.read_toml"} <= names
