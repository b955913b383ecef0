"""Any workflow file is read, or refused with a line number."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from asa.errors import InputError
from asa.spec import check_file, load_workflow, parameters_of
from asa.spec.checks import check_here
from asa.spec.model import StageSpec, WorkflowSpec

SCALARS = st.one_of(
    st.sampled_from([
        "true", "0", "-1", "2.5", "nan", "-inf", "1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", f"0x{'f' * 5000}",
        '""', '" "', '"a"', '"learn"', '"1h"', '"4G"', '"--x"', '"a.sh"', '"~nosuch/x"', '"~"', '"/"', '"."', '"a/b/c"',
        r'"a\u0000b"', r'"a\nb"', r'"#!/bin/sh\nif"', '"#!"', '"#!/usr/bin/env"',
        '"{{p}}"', '"{{q}}"', '"{{p}} {{"', '"$HOME/{a,b}"', "'~/`x'",
        '"if [ $("', "'''<<E'''", f'"{"9" * 400}"', f'"{"9" * 400}h"', f'"{"9" * 5000}"', f'"{"n" * 300}/x"',
        "'éß\u2028'", "1e308",
    ]),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="'"), max_size=9).map("'{}'".format),
)  # fmt: skip
KEYS = st.sampled_from(["a", "times", "walltime_factor", "learn", "until", "'1 b'", "A", r'"a\u0000"', "local", "name"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
        st.dictionaries(KEYS, inner, max_size=2).map(
            lambda pairs: f"{{ {', '.join(f'{key} = {value}' for key, value in pairs.items())} }}"
        ),
    ),
    max_leaves=4,
)
STAGE_KEYS = sorted(StageSpec.model_fields)
USUAL = {"name": '"s"', "cores": "1", "walltime": '"1h"'}


def text_of(top, stages, defaults):
    lines = [f"{key} = {value}" for key, value in ({"name": '"w"'} | top).items()]
    if "parameters" not in top:
        lines += ["[parameters]", 'p = "x"']
    if "defaults" not in top and defaults:
        lines += ["[defaults]", *(f"{key} = {value}" for key, value in defaults.items())]
    if "stage" not in top:
        for stage in stages:
            lines += ["[[stage]]", *(f"{key} = {value}" for key, value in (USUAL | stage).items())]
    return "\n".join(lines) + "\n"


STAGES = st.dictionaries(st.sampled_from(STAGE_KEYS), VALUES, max_size=3)
DOCUMENTS = st.builds(
    text_of,
    st.dictionaries(st.sampled_from(sorted(WorkflowSpec.model_fields)), VALUES, max_size=1),
    st.lists(STAGES, min_size=1, max_size=2),
    st.dictionaries(st.sampled_from(STAGE_KEYS), VALUES, max_size=2),
)


@given(DOCUMENTS)
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_values_are_read_or_refused(tmp_path, text):
    """Nothing but InputError, and each error with a line."""
    path = tmp_path / "flow.toml"
    path.write_text(text, encoding="utf-8")
    errors = [problem for problem in check_file(path) if problem.severity == "error"]
    assert all(problem.line is not None and problem.message for problem in errors)
    try:
        load_workflow(path)
    except InputError:
        assert errors
    else:
        assert not errors
    try:
        parameters_of(path)
    except InputError:
        assert errors


@pytest.mark.full
@pytest.mark.parametrize("key", STAGE_KEYS)
@given(value=VALUES)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example("[]")
@example('[["a"]]')
@example("{}")
@example(r'"a\u0000b"')
@example('"~nosuch/x"')
def test_any_value_of_a_key_can_be_checked(tmp_path, key, value):
    """Also by the checks of what is there, which never fail themselves."""
    path = tmp_path / "flow.toml"
    path.write_text(text_of({}, [{key: value}], {}), encoding="utf-8")
    check_here(path, folder=tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("local = []", "local: must be true or false, without quotes"),
        ('after = [["a"]]', "after: must be text in quotes"),
        ('script = "~nosuch/x"', "~nosuch/x cannot be read: there is no such user"),
        ('script = "a\\u0000b"', "has a null byte"),
        (f'script = "{"n" * 300}/x"', "cannot be read: File name too long"),
        ('script = "binary"', "the script binary is not text"),
        (f"cores = 0x{'f' * 5000}", "a number has too many digits"),
        (f"cores = 1{'0' * 5000}", "a number has too many digits"),
        (f'expected = "{"9" * 400}h"', "longer than can be counted"),
        (f'memory = "{"9" * 400}"', "more memory than can be counted"),
        (f"inputs = {'[' * 2000}{']' * 2000}", "brackets are too deep"),
    ],
)
def test_what_python_cannot_take_is_told_with_its_line(tmp_path, line, message):
    """In words."""
    (tmp_path / "binary").write_bytes(b"#!/bin/sh\n\0\n")
    path = tmp_path / "flow.toml"
    path.write_text(f'name = "w"\ndefaults = {{ nodes = 1, walltime = "1h" }}\n[[stage]]\nname = "s"\n{line}\n')
    with pytest.raises(InputError, match=message) as caught:
        load_workflow(path)
    assert caught.value.where == f"{path}:5"
    assert caught.value.hint
