"""Workflow files."""

import pytest

from asa.errors import InputError
from asa.spec import load_workflow

GOOD = """\
name = "mosaic"
walltime = "1:00:00"

[[stage]]
name = "project"
cores = 64
walltime = "30min"
expected = "12min"
command = "./project.sh"
memory = "4G"

[[stage]]
name = "add"
nodes = 1
gpus = 2
walltime = "10"
after = ["project"]
"""


def write(tmp_path, text):
    path = tmp_path / "flow.toml"
    path.write_text(text)
    return path


def test_a_file_becomes_a_workflow(tmp_path):
    """Every key."""
    flow = load_workflow(write(tmp_path, GOOD))
    assert flow.name == "mosaic"
    assert flow.walltime_s == 3600
    project, add = flow.stages["project"], flow.stages["add"]
    assert (project.cores, project.walltime_s, project.expected_s) == (64, 1800, 720)
    assert (project.command, project.memory_bytes) == ("./project.sh", 4 << 30)
    assert (add.nodes, add.gpus, add.walltime_s, add.after) == (1, 2, 600, ("project",))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("cores = 64", "coers = 64", 6, "no key 'coers'"),
        ('name = "mosaic"', 'nmae = "mosaic"', 1, "no key 'nmae'|'name' is missing"),
        ('walltime = "10"', "", 12, "'walltime' is missing"),
        ('walltime = "30min"', 'walltime = "soon"', 7, "no duration"),
        ('walltime = "30min"', "walltime = 30", 7, "in quotes"),
        ('memory = "4G"', 'memory = "4Q"', 10, "no memory size"),
        ("cores = 64", 'cores = "many"', 6, "cores"),
        ("cores = 64", "cores = 0", 4, "asks for 0 cores"),
        ('after = ["project"]', 'after = ["projekt"]', 12, "'projekt', which is no stage"),
        ('after = ["project"]', 'after = ["add"]', 12, "waits for itself"),
        ('name = "add"', 'name = "project"', 4, "two stages"),
        ('expected = "12min"', 'expected = "2h"', 4, "would be killed"),
        ("cores = 64", "cores = ", 6, "no TOML"),
        ('walltime = "1:00:00"', 'walltime = "0s"', 2, "walltime of 0"),
        ("cores = 64", "cores = true", 6, "cores"),
        ("cores = 64", 'cores = "8"', 6, "cores"),
        ("cores = 64", "cores = 8.0", 6, "cores"),
        ('after = ["project"]', "after = [1]", 17, "after: Input should be a valid string"),
        ('walltime = "1:00:00"', 'walltime = "5min"', 2, "longer than its walltime"),
        ('[[stage]]\nname = "add"', '[[stagee]]\nname = "add"', 12, "no key 'stagee'"),
    ],
)  # fmt: skip
def test_a_typo_is_refused_with_file_line_and_remedy(tmp_path, old, new, line, message):
    """Where to look, and what to write."""
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InputError, match=message) as caught:
        load_workflow(path)
    assert str(caught.value.where).startswith(f"{path}:{line}" if line else str(path))
    assert caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('name = "x"\n[stage]\nname = "a"\n', 2, r"no table of its own\nBegin each stage with a line \[\[stage\]\]"),
        ('name = "x"\nstage = ["a"]\n', 2, "no table of its own"),
        ('name = "x"\n\n[[stages]]\nname = "a"\n', 3, "no key 'stages'"),
    ],
)
def test_stages_written_wrongly_are_shown_how(tmp_path, text, line, message):
    """A single bracket, a list of names, a plural."""
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=message) as caught:
        load_workflow(path)
    assert caught.value.where == f"{path}:{line}"


def test_a_byte_order_mark_is_no_offence(tmp_path):
    """Some editors write one."""
    path = tmp_path / "flow.toml"
    path.write_text(GOOD, encoding="utf-8-sig")
    assert load_workflow(path).name == "mosaic"


def test_a_file_without_stages_is_refused(tmp_path):
    """An empty list is none."""
    with pytest.raises(InputError, match="'stage' is missing"):
        load_workflow(write(tmp_path, 'name = "x"\n'))


def test_files_that_cannot_be_read_are_refused(tmp_path):
    """Missing, or not text."""
    with pytest.raises(InputError, match="cannot be read"):
        load_workflow(tmp_path / "none.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        load_workflow(path)
