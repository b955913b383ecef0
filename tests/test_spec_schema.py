"""The JSON Schema of workflow files takes what the reader takes, and refuses what it refuses."""

import json
import tomllib
from pathlib import Path

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from asa.errors import InputError
from asa.spec import check_file, schema_document, schema_text
from asa.spec.model import DURATION_PATTERN, MEMORY_PATTERN, STORAGE_PATTERN
from asa.units import parse_duration, parse_memory, parse_storage

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
SCHEMA_FILE = Path(__file__).parents[1] / "asa/workflow.schema.json"
VALIDATOR = Draft202012Validator(schema_document())
STAGE = '[[stage]]\nname = "a"\ncores = 1\nwalltime = "10min"\n'

SEVERAL = '[parameters]\nwide = 112\nlaw = "amdahl"\n[[stage]]\nname = "a"\n'
FILLED = """
[parameters]
width = 2
how = "learn"
yes = true
[[stage]]
name = "a{{width}}"
cores = "{{ width }}"
walltime = "{{width}}h"
expected = "{{how}}"
local = "{{yes}}"
retries = "{{width}}"
input_size = "{{width}}"
"""
GOOD = [
    STAGE,
    STAGE + 'command = "true"\nmemory = "4G"\ngpus = 0\npartition = ""\naccount = "x"\n',
    STAGE + 'tasks = ["a", "b"]\noptions = ["--qos=x"]\ninputs = ["*.fits"]\noutputs = []\n',
    STAGE + 'tasks_file = "x.tasks"\ncpus_per_task = 1\nenvironment = { A = "1", B = 2, C = 0.5 }\n',
    STAGE + 'expected = "learn"\nretries = 2\n',
    STAGE + 'expected = { learn = true, until = "9min" }\nretries = { times = 1, walltime_factor = 1.5 }\n',
    STAGE + "expected = { learn = true }\nretries = { times = 0 }\ninput_size = 2e9\n",
    STAGE + 'script = "#!/bin/sh"\n',
    STAGE + "input_size = 7\nlocal = false\n",
    '[[stage]]\nname = "a"\nlocal = true\n',
    '[[stage]]\nname = "a"\nlocal = true\ncpus_per_task = 2\n',
    '[[stage]]\nname = "a"\nntasks = 4\ncpus_per_task = 2\nwalltime = "1-12:30"\n',
    '[[stage]]\nname = "a"\nnodes = 4\nwalltime = "90"\n',
    '[defaults]\nwalltime = "1h"\ncores = 4\n[[stage]]\nname = "a"\n',
    '[defaults]\nlocal = true\n[[stage]]\nname = "a"\n',
    '[defaults]\ncommand = "make"\ncores = 4\n[[stage]]\nname = "a"\nwalltime = "1h"\ntasks = ["b"]\nntasks = 3\n',
    FILLED,
    STAGE + '[[stage]]\nname = "b"\nafter = ["a"]\ncores = 1\nwalltime = "30:00"\n',
    'walltime = "2 hours"\n' + STAGE,
    SEVERAL
    + 'cores = [28, 7, "{{wide}}"]\nexpected = { 7 = "2h", 28 = "1h", "{{wide}}" = "30min" }\nwalltime = "3h"\n',
    SEVERAL + 'cores = "7..{{wide}}"\nscaling = { amdahl = "0.{{wide}}" }\nwalltime = { 7 = "3h", 112 = "4h" }\n',
    SEVERAL
    + 'nodes = [2, 1]\nexpected = { learn = true, until = { 2 = "1h" } }\nscaling = "{{law}}"\nwalltime = "3h"\n',
    SEVERAL + 'ntasks = [2, 1]\nscaling = { downey = { parallelism = 60, variance = 0 } }\nwalltime = "3h"\n',
    SEVERAL + 'cores = [2]\npartition = ["a", "{{law}}"]\nwalltime = "3h"\n',
]
BAD_LINES = [
    "coers = 1\n",
    "memory = 4\n",
    'memory = "4Q"\n',
    "gpus = -1\n",
    "partition = 3\n",
    'after = "b"\n',
    "after = [1]\n",
    'command = "a"\ntasks = ["b"]\n',
    'script = "#!/bin/sh"\ntasks_file = "b"\n',
    "tasks = []\n",
    'tasks = [" "]\n',
    'tasks = ["a\\nb"]\n',
    'tasks_file = ""\n',
    'options = ["-n4"]\n',
    'options = "--x"\n',
    'environment = { "1A" = "x" }\n',
    "environment = { A = true }\n",
    "environment = { A = [1] }\n",
    "retries = -1\n",
    "retries = 101\n",
    "retries = true\n",
    "retries = { walltime_factor = 2 }\n",
    "retries = { times = 1, walltime_factor = 0.5 }\n",
    'retries = { times = "a" }\n',
    "retries = { times = 1, more = 2 }\n",
    "expected = 5\n",
    'expected = "soon"\n',
    "expected = { learns = true }\n",
    'expected = { learn = "yes" }\n',
    "local = 1\n",
    'local = "true"\n',
    "input_size = 0\n",
    "input_size = true\n",
    'input_size = "9"\n',
    'inputs = [""]\n',
    'outputs = "a"\n',
    'scaling = "moore"\n',
    "scaling = { amdahl = 1.5 }\n",
    "scaling = { amdahl = 0.5, downey = { parallelism = 2, variance = 1 } }\n",
    "scaling = { downey = 2 }\n",
    "scaling = { downey = { parallelism = 2 } }\n",
    "scaling = { downey = { parallelism = 0.5, variance = 1 } }\n",
    "scaling = { tasks = 2 }\n",
    "partition = []\n",
    'partition = ["a", "a"]\n',
    'expected = { 1 = "5min", b = "6min" }\n',
    'expected = { 1 = "5min", learn = true }\n',
    "expected = { 1 = 5 }\n",
    "ntasks = 2\n",
    "cpus_per_task = 0\n",
]
BAD = [
    "",
    "stage = []\n",
    'stage = ["a"]\n',
    '[stage]\nname = "a"\n',
    '[[stage]]\ncores = 1\nwalltime = "1h"\n',
    '[[stage]]\nname = "a"\nwalltime = "1h"\n',
    '[[stage]]\nname = "a"\ncores = 1\n',
    '[[stage]]\nname = "-a"\ncores = 1\nwalltime = "1h"\n',
    '[[stage]]\nname = "a b"\ncores = 1\nwalltime = "1h"\n',
    '[[stage]]\nname = "a"\ncores = 0\nwalltime = "1h"\n',
    '[[stage]]\nname = "a"\ncores = 1.5\nwalltime = "1h"\n',
    '[[stage]]\nname = "a"\ncores = true\nwalltime = "1h"\n',
    '[[stage]]\nname = "a"\ncores = []\nwalltime = "1h"\n',
    '[[stage]]\nname = "a"\ncores = [2, 0]\nwalltime = "1h"\n',
    '[[stage]]\nname = "a"\ncores = [2, 2]\nwalltime = "1h"\n',
    '[[stage]]\nname = "a"\ncores = "2.."\nwalltime = "1h"\n',
    '[[stage]]\nname = "a"\ncores = 1\nwalltime = {}\n',
    '[[stage]]\nname = "a"\ncores = 1\nwalltime = { wide = "1h" }\n',
    '[[stage]]\nname = "a"\ncores = "8"\nwalltime = "1h"\n',
    '[[stage]]\nname = "a"\ncores = 1\nwalltime = 60\n',
    '[[stage]]\nname = "a"\ncores = 1\nwalltime = "soon"\n',
    '[[stage]]\nname = "a"\ncores = 1\nwalltime = "0:00"\n',
    '[[stage]]\nname = "a"\ncores = 1\nntasks = 1\nwalltime = "1h"\n',
    "[defaults]\ncoers = 4\n" + STAGE,
    '[defaults]\nname = "x"\n' + STAGE,
    '[defaults]\nafter = ["a"]\n' + STAGE,
    '[defaults]\ncommand = "a"\ntasks = ["b"]\n' + STAGE,
    "[parameters]\nx = [1]\n" + STAGE,
    '[parameters]\n"1x" = 1\n' + STAGE,
    '[parameters]\nx = "{{y}}"\ny = 1\n' + STAGE,
    'walltime = "1 fortnight"\n' + STAGE,
    "colour = 1\n" + STAGE,
    *(STAGE + line for line in BAD_LINES),
]


def errors(path, text):
    path.write_text(f'name = "w"\n{text}')
    return [problem.message for problem in check_file(path) if problem.severity == "error"]


def is_valid(path):
    return VALIDATOR.is_valid(tomllib.loads(path.read_text()))


@pytest.mark.parametrize("text", GOOD)
def test_what_the_reader_takes_the_schema_takes(tmp_path, text):
    """Each way of saying things."""
    assert errors(tmp_path / "flow.toml", text) == []
    assert is_valid(tmp_path / "flow.toml")


@pytest.mark.parametrize("text", BAD)
def test_what_the_reader_refuses_the_schema_refuses(tmp_path, text):
    """One mistake each."""
    assert errors(tmp_path / "flow.toml", text)
    assert not is_valid(tmp_path / "flow.toml")


@pytest.mark.skipif(
    f"pydantic=={pydantic.VERSION}" not in CONSTRAINTS.read_text(), reason="another pydantic words its schema otherwise"
)
def test_the_published_schema_is_the_one_that_the_model_makes():
    """Write it anew with: asa schema --out asa/workflow.schema.json."""
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text()
    Draft202012Validator.check_schema(json.loads(schema_text()))


def test_every_key_has_a_title_a_description_and_an_example_that_is_valid():
    """What an editor shows."""
    document = schema_document()
    for kind in ("StageSpec", "StageSettings"):
        for key, schema in document["$defs"][kind]["properties"].items():
            assert all(schema[word] for word in ("title", "description", "examples")), key
            validator = Draft202012Validator(schema)
            assert all(validator.is_valid(example) for example in schema["examples"]), key
    assert all(VALIDATOR.is_valid(example) for example in document["examples"])


def test_the_example_of_a_workflow_file_is_valid():
    """And names the schema where it lies."""
    example = Path(__file__).parent.parent / "examples" / "mosaic.toml"
    assert VALIDATOR.is_valid(tomllib.loads(example.read_text()))
    first = example.read_text().splitlines()[0]
    assert (example.parent / first.removeprefix("#:schema ")).resolve() == SCHEMA_FILE.resolve()


UNITS = st.sampled_from(
    ["s", "sec", "secs", "Seconds", "m", "min", "MINS", "minutes", "h", "hr", "hrs", "hours", "d", "days", "w", "ms"]
)
NUMBERS = st.sampled_from(["1", "07", "1.5", "90", ".5", "1."])


@given(
    st.one_of(
        st.lists(st.tuples(NUMBERS, st.sampled_from(["", " "]), UNITS), min_size=1, max_size=3).map(
            lambda terms: " ".join("".join(term) for term in terms)
        ),
        st.from_regex(r"[1-9]{0,2}[-:]?[1-9]{1,2}(:[1-9]{0,2}){0,3}", fullmatch=True),
    )
)
@settings(max_examples=400, deadline=None)
def test_durations_are_told_apart_alike(text):
    """By the pattern, and by whoever reads them."""
    try:
        parse_duration(text)
        is_duration = True
    except InputError:
        is_duration = False
    assert Draft202012Validator({"pattern": DURATION_PATTERN}).is_valid(text) == is_duration


@given(st.from_regex(r" ?[0-9.]{1,4} ?[kKmMgGtTpPqQ]?(i?[bB]?) ?", fullmatch=True))
@settings(max_examples=200, deadline=None)
@pytest.mark.parametrize(("parse", "pattern"), [(parse_memory, MEMORY_PATTERN), (parse_storage, STORAGE_PATTERN)])
def test_sizes_are_told_apart_alike(parse, pattern, text):
    """Likewise."""
    try:
        parse(text)
        is_size = True
    except InputError:
        is_size = False
    assert Draft202012Validator({"pattern": pattern}).is_valid(text) == is_size
