"""The kept outcomes of an experiment: recomputed when an input changes, and never misread."""

import json
import sys
from dataclasses import dataclass

import asa.workflows
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import JournalError, StateError
from asa.studies import harness as cells
from asa.studies.harness import Kind, code_digest, fill
from asa.studies.schedulers.study import SchedulerCampaign


@dataclass(frozen=True)
class Cell:
    """A cell to run."""

    name: str
    code: str = "this"


@dataclass(frozen=True)
class Trial:
    """The outcome of a cell."""

    seconds: float
    words: str
    parts: tuple[int, ...]


CELLS = [Cell("one"), Cell('two, "quoted" \u00e9\u2028'), Cell("three")]


def outcome(cell):
    return [Trial(len(cell.name) / 3 + seed, f"{cell.name} {seed}", (1, seed)) for seed in range(3)]


def trial(seconds, words, parts):
    return Trial(seconds, words, tuple(parts))


KIND = Kind(outcome, Cell, trial)
TRUTH = {cell: outcome(cell) for cell in CELLS}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("cells")


@pytest.fixture(scope="module")
def kept(place):
    path = place / "kept.jsonl"
    fill(CELLS, KIND, path, jobs=1)
    return path.read_bytes()


# ---------------------------------------------------------------------- damage


def read(place, data):
    """Continue from a file twice; if it is refused, the error has its line and a remedy."""
    path = place / "damaged.jsonl"
    path.write_bytes(data)
    try:
        found = fill(CELLS, KIND, path, jobs=1)
    except StateError as error:
        refused = error
    else:
        assert found == TRUTH
        assert fill(CELLS, KIND, path, jobs=1) == TRUTH
        # a line that was cut off goes with the next that is written; nothing is, where no cell was missing
        assert path.read_bytes().endswith(b"\n") or path.read_bytes() == data
        return True
    assert refused.where.startswith(f"{path}:")
    assert refused.hint
    assert path.read_bytes() == data
    return False


@given(st.data())
def test_what_was_changed_is_refused_or_run_again(place, kept, data):
    """Any byte, anywhere, to any other; several at once."""
    changed = bytearray(kept)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(kept) - 1))] = data.draw(st.integers(0, 255))
    read(place, bytes(changed))


@given(st.data())
def test_what_was_cut_out_or_moved_is_refused_or_run_again(place, kept, data):
    """Pieces of any length: the end, as after a kill; the outcome of another cell; a line twice."""
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(kept))] * 2)))
    piece, rest = kept[begin:end], kept[:begin] + kept[end:]
    at = data.draw(st.integers(0, len(rest)))
    read(place, data.draw(st.sampled_from([rest, kept[:begin], rest[:at] + piece + rest[at:], kept + piece])))


def test_the_end_of_a_file_that_was_cut_off_is_run_again_and_whole_lines_may_move(place, kept):
    lines = kept.splitlines(keepends=True)
    assert all(read(place, kept[:size]) for size in range(0, len(kept), 7))
    assert read(place, b"".join(reversed(lines)))
    assert read(place, lines[1] * 2)


def test_outcomes_of_another_cell_types_and_missing_fields_are_refused(place, kept):
    one, two, *_ = [json.loads(line) for line in kept.splitlines()]
    for changed in (
        {**one, "trials": two["trials"]},
        {**one, "trials": [{**one["trials"][0], "seconds": "12"}]},
        {**one, "trials": [{"seconds": 1.0}]},
        {**one, "trials": one["trials"][:2]},
        {**one, "trials": None},
        {name: value for name, value in one.items() if name != "check"},
        [],
    ):
        assert not read(place, json.dumps(changed).encode() + b"\n" + kept)


def test_the_line_that_is_damaged_is_named(place, kept):
    path = place / "named.jsonl"
    path.write_bytes(kept.replace(b"two", b"to"))
    with pytest.raises(StateError, match="is damaged") as refused:
        fill(CELLS, KIND, path, jobs=1)
    assert refused.value.where == f"{path}:2"
    assert "Delete this line" in refused.value.hint
    path.write_bytes(b"".join(kept.splitlines(keepends=True)[::2]))  # as it says
    assert fill(CELLS, KIND, path, jobs=1) == TRUTH


def test_a_file_of_somebody_else_s_is_not_cut(place):
    for theirs in (b"no newline", b"{}", b'{"cell": 3}\n'):
        assert not read(place, theirs)


def test_another_experiment_s_file_is_refused(place, kept):
    path = place / "other.jsonl"
    path.write_bytes(kept)
    with pytest.raises(StateError, match="of this kind"):
        fill(CELLS, Kind(outcome, lambda *, other: Cell(other), trial), path, jobs=1)


def test_what_cannot_be_written_is_no_fault_of_the_input(tmp_path):
    """A folder takes the file's path while a cell runs."""
    path = tmp_path / "kept.jsonl"

    def run(cell):
        path.mkdir()
        return outcome(cell)

    with pytest.raises(JournalError, match=r"cannot be written: .*directory") as refused:
        fill(CELLS, Kind(run, KIND.cell, trial), path, jobs=1)
    assert refused.value.exit_code == 1
    assert refused.value.where == str(path)
    assert "Free disk space" in refused.value.hint


def test_a_folder_that_is_not_there_is_told_before_anything_runs(tmp_path):
    ran = []
    with pytest.raises(StateError, match="no such folder"):
        fill(CELLS, Kind(ran.append, KIND.cell, trial), tmp_path / "no" / "kept.jsonl", jobs=1)
    assert not ran


# ---------------------------------------------------------------------- what an outcome hangs on


@pytest.fixture
def fresh():
    """Have digests computed anew, as in another process."""

    def forget():
        cells._own_digest.cache_clear()
        cells._plug_in_digest.cache_clear()

    forget()
    yield forget
    forget()


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    """Install another distribution, which has a strategy."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "__init__.py").write_text("from theirs.made import Made\n")
    (tmp_path / "theirs" / "made.py").write_text("class Made: pass\n")
    (tmp_path / "theirs_too.py").write_text("WIDE = 3\n")
    about = tmp_path / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[asa.strategies]\ntheirs = theirs:Made\n")
    (about / "RECORD").write_text("theirs/__init__.py,,\ntheirs/made.py,,\ntheirs_too.py,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "changed", ["theirs/made.py", "theirs/table.npz", "theirs_too.py", "theirs-1.0.dist-info/METADATA"]
)
def test_a_plug_in_s_sources_count_for_who_names_it(plug_in, fresh, changed):
    named, others = [("asa.strategies", "theirs")], [("asa.strategies", "asa")]
    before, ours = code_digest(named), code_digest(others)
    assert before != ours
    assert code_digest(named) == before
    file = plug_in / changed
    file.write_text((file.read_text() if file.exists() else "").replace("1.0", "1.1") + "\n")
    fresh()
    assert code_digest(named) != before
    assert code_digest(others) == ours
    assert "theirs" not in sys.modules


def test_data_that_ship_count_and_what_is_compiled_does_not(tmp_path, monkeypatch, fresh):
    monkeypatch.setattr(asa.workflows, "__path__", [str(tmp_path)])
    (tmp_path / "agent.npz").write_bytes(b"one")
    before = code_digest()
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "kernel.nbi").write_bytes(b"x")
    (tmp_path / ".agent.npz.swp").write_bytes(b"x")
    fresh()
    assert code_digest() == before
    (tmp_path / "agent.npz").write_bytes(b"two")
    fresh()
    assert code_digest() != before


def test_files_that_settings_name_count(tmp_path):
    agent = tmp_path / "agent.npz"
    agent.write_bytes(b"one")
    settings = [str(agent), "0.5", "no/such/file", "x" * 5000, ""]
    before = code_digest((), settings)
    assert before == code_digest((), settings)
    assert code_digest((), settings[1:]) == code_digest()
    agent.write_bytes(b"two")
    assert code_digest((), settings) != before


def test_a_campaign_s_cells_hang_on_the_files_that_their_schedulers_name(tmp_path):
    """Other cells do not depend on these files."""
    agent = tmp_path / "agent.npz"
    shipped = next(path for path in cells._files_in(map(cells.Path, asa.backends.__path__)) if path.name == "agent.npz")
    agent.write_bytes(shipped.read_bytes())
    campaign = SchedulerCampaign(schedulers=("easy", f"dras:weights={agent}"), workflows=("blast",), strategies=())
    before, _ = campaign.plan()
    agent.write_bytes(agent.read_bytes() + b"\0")
    after, _ = campaign.plan()
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, True, False, False]
