"""Numbers of job arrays' elements: sets, read and written as sbatch does."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from asa.elements import MAX_ELEMENTS, Array, Elements, parse_array, parse_array_of, parse_elements
from asa.errors import InputError

NUMBERS = st.sets(st.integers(0, 300), max_size=60)


@given(NUMBERS)
def test_a_set_is_what_it_was_made_of_and_reads_back(numbers):
    elements = Elements.of(numbers)
    assert (list(elements), len(elements), bool(elements)) == (sorted(numbers), len(numbers), bool(numbers))
    assert {n for n in range(302) if n in elements} == numbers
    if numbers:
        assert parse_elements(str(elements)) == elements
        assert (elements.first, elements.last) == (min(numbers), max(numbers))


@given(NUMBERS, NUMBERS, st.integers(0, 70))
def test_sets_of_the_same_numbers_are_equal_however_they_came_about(one, other, count):
    first, second = Elements.of(one), Elements.of(other)
    assert first | second == Elements.of(one | other)
    assert first & second == Elements.of(one & other)
    assert first - second == Elements.of(one - other)
    assert first.take(count) == Elements.of(sorted(one)[:count])
    assert hash(first | second) == hash(second | first)


@given(NUMBERS.filter(bool), st.sampled_from([0, 1, 20]))
def test_arrays_survive_journals_and_pickles(numbers, at_once):
    array = Array(Elements.of(numbers), at_once).only(Elements.of(sorted(numbers)[::2]))
    adapter = TypeAdapter(Array)
    assert adapter.validate_json(adapter.dump_json(array)) == array
    assert pickle.loads(pickle.dumps(array)) == array
    assert array.all == Elements.of(numbers)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=5))
def test_what_sbatch_takes_is_read(parts):
    ranges = [(first, first + more, step) for first, more, step in parts]
    text = ",".join(f"{first}-{last}:{step}" for first, last, step in ranges)
    wanted = {n for first, last, step in ranges for n in range(first, last + 1, step)}
    array = parse_array(f"{text}%7")
    assert (set(array.elements), array.at_once) == (wanted, 7)
    assert array.most_at_once == min(7, len(wanted))


def test_the_whole_is_told_to_what_is_left_of_it():
    array = parse_array("1-9:2%3").only(Elements.of([5, 9]))
    assert str(array) == "5,9%3"
    assert dict(array.variables) == {
        "SLURM_ARRAY_TASK_COUNT": "5", "SLURM_ARRAY_TASK_MIN": "1",
        "SLURM_ARRAY_TASK_MAX": "9", "SLURM_ARRAY_TASK_STEP": "2",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1-6%0", "lets none of its elements run"),
        ("", "lists no elements"),
        ("%3", "lists no elements"),
        ("6-1", "ends before it begins"),
        ("1-6:0", "step of 0"),
        ("1-6%x", "no number of elements"),
        ("1-6%-2", "no number of elements"),
        ("a", "lists no elements"),
        ("1;2", "lists no elements"),
        ("٣", "lists no elements"),
        (f"0-{MAX_ELEMENTS}", "too many"),
        ("99999999", "of the number 99999999"),
        ([], "lists no elements"),
        ([1, True], "no whole numbers"),
        (1.5, "lists no elements"),
        (-1, "below 0"),
    ],
)
def test_what_makes_no_array_is_refused_with_what_would(text, says):
    with pytest.raises(InputError, match=says) as caught:
        parse_array_of(text)
    assert caught.value.hint


def test_programs_give_numbers():
    assert [str(parse_array_of(one)) for one in (3, [3, 1, 2], range(0, 30, 10), "0-3%2")] == [
        "3", "1-3", "0-20:10", "0-3%2",
    ]  # fmt: skip
