"""The line of each value of a TOML file."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.spec import check_file
from asa.spec.locations import Locations

LINE = "@LINE@"  # in place of the number of the line on which it stands

# What may stand in strings that TOML writes in each of its four ways, with all that could be taken for something else.
INNER = st.lists(
    st.sampled_from(["n", "a", ",", "]", "}", "#", "=", "[", "{", " ", "é", "\u2028", "\x85"]), max_size=8
).map("".join)
ESCAPED = st.lists(st.sampled_from(["n", "'", ",", "]", "#", r"\"", r"\\", r"\n", r"\u00e9"]), max_size=8).map("".join)
LINES = st.lists(st.sampled_from(["n", ",", "]", "#", "\n", " ", "a = 1\n"]), max_size=8).map("".join)
STRING = st.one_of(
    INNER.map(lambda text: f"'{LINE} {text}\"'"),
    ESCAPED.map(lambda text: f'"{LINE} {text}"'),
    LINES.map(lambda text: f"'''{LINE} {text}'' \"'''"),
    st.tuples(LINES, ESCAPED).map(lambda texts: f'"""{LINE} {texts[0]}" ""{texts[1]}x"""'),
    LINES.map(lambda text: f'"""{LINE}{text}"""""'),  # ends with two quotes
)
NUMBER = st.sampled_from([LINE, f"{LINE}.0", f"+{LINE}"])
BLANK = st.sampled_from(["", " ", "\n", " # a, ] } # \" '''\n", "\n\n\t# b = [\n"])
BLANKS_IN_LINE = st.sampled_from(["", " ", "\t"])


def arrays(values):
    element = st.tuples(BLANK, values, BLANK).map("".join)
    return st.tuples(st.lists(element, max_size=4), st.booleans(), BLANK).map(
        lambda parts: f"[{','.join(parts[0])}{',' if parts[0] and parts[1] else ''}{parts[2]}]"
    )


@st.composite
def inline_tables(draw, values):
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=3, unique_by=tomllib_key))
    pairs = [f"{key}{draw(BLANKS_IN_LINE)}={draw(BLANKS_IN_LINE)}{draw(values)}" for key in keys]
    return f"{{ {' , '.join(pairs)} }}"


KEYS = ["a", "b-1", '"n"', '"a.b"', r'"q\"n"', "'x y'", r'"\u006d"', "2", "a.b", 'a . "c # d"']


def tomllib_key(key):
    """The first name of a key, so that no two meet."""
    return next(iter(tomllib.loads(f"{key} = 1")))


VALUES = st.recursive(
    st.one_of(STRING, NUMBER), lambda inner: st.one_of(arrays(inner), inline_tables(inner)), max_leaves=6
)


@st.composite
def documents(draw):
    """Tables and arrays of tables, each with some pairs."""
    lines = []
    for heading in draw(
        st.sampled_from([[], ["[t]"], ["[[s]]", "[[s]]"], ["[[s]]", "[s.e]", "[[s]]", "[s.e]", "[t.'u n']"]])
    ):
        lines += [*draw(pairs()), f"{draw(BLANKS_IN_LINE)}{heading} # [x]"]
    lines += draw(pairs())
    text = "".join(f"{line}\n{draw(BLANK)}" for line in lines)
    return "\n".join(row.replace(LINE, str(number)) for number, row in enumerate(text.split("\n"), start=1))


@st.composite
def pairs(draw):
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=3, unique_by=tomllib_key))
    return [f"{key} = {draw(VALUES)}" for key in keys]


def leaves(value, way=()):
    if isinstance(value, dict):
        return [leaf for key, part in value.items() for leaf in leaves(part, (*way, key))]
    if isinstance(value, list):
        return [leaf for number, part in enumerate(value) for leaf in leaves(part, (*way, number))]
    digits = str(value).split(" ")[0].split("\n")[0].split(".")[0]
    return [(way, int("".join(letter for letter in digits if letter in "0123456789")))]


@pytest.mark.full
@given(documents())
@settings(max_examples=150, deadline=None)
def test_every_value_stands_where_toml_reads_it(text):
    """Each value says its own line, so what tomllib reads says where it stands."""
    places = Locations(Path("x.toml"), text)
    for way, line in leaves(tomllib.loads(text)):
        assert places.has(way), way
        assert places.line(way) == line, way


@pytest.mark.parametrize(
    "value",
    ['"run a, then b # now"', '"n]"', '["run, n", "n"]', '"\\"n"', '"a\u2028n"', "{ n = \"n, n\", b = 'n # n' }"],
)
def test_what_comes_after_a_string_stands_where_it_stands(tmp_path, value):
    """Strings with an n, a comma, a bracket, a number sign."""
    path = tmp_path / "flow.toml"
    path.write_text(
        f'name = "w"\n[[stage]]\nname = "a"\ncores = 1\nwalltime = "1h"\nother = {value}\ncoers = 2\n', encoding="utf-8"
    )
    lines = {problem.message.split("'")[3]: problem.line for problem in check_file(path)}
    assert lines == {"other": 6, "coers": 7}
