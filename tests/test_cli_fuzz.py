"""The command line survives invalid input: a sample of `cli_fuzz`, and its earlier findings."""

import re

import pytest
from cli_fuzz import Fuzz, commands, type_of
from forked import asa

SAMPLE = 24


_FEW = 4  # of the sample, for `make test`


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory):
    return Fuzz(tmp_path_factory.mktemp("fuzz") / "it", seed=23)


@pytest.mark.full
@pytest.mark.parametrize(
    "number", [*range(_FEW), *(pytest.param(one, marks=pytest.mark.full) for one in range(_FEW, SAMPLE))]
)
def test_a_command_that_nobody_should_give_is_borne(fuzz, number):
    case = fuzz.run(fuzz.case(number))
    assert not case.trouble, "\n".join([str(case), *case.trouble])


def test_every_whole_number_has_a_largest():
    """Otherwise some code would count up to any number given."""
    from typer.main import get_command

    from asa.cli.app import app

    without = []

    def look(command, path):
        for name, one in getattr(command, "commands", {}).items():
            look(one, f"{path} {name}")
        for one in command.params:
            name, largest = type_of(one)
            if re.search(r"\bint\b", name) and largest is None:
                without.append(f"{path} {one.opts[0]}")

    assert len(commands()) > 40
    look(get_command(app), "asa")
    assert not without


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "montage", "--seeds", "99999999999"], "--seeds"),
        (["compare", "montage", "--poll", "1" + "0" * 12], "--poll"),
        (["compare", "montage", "--poll", "1" + "0" * 23], "--poll"),
        (["predict", "--cores", "4", "--walltime", "99999999999d"], "longer than can be counted"),
        (["run", "montage"], "It is a model"),
        (["run", "montage", "--cores", "28"], "It is a model"),
        (["plan", "w.toml", "--backend", "simulated"], "--option system=hpc2n"),
        (["learn", "--from", "jobs.txt", "--bank", "w.toml"], "is a file, not the folder of a bank"),
        (["predict", "--cores", "4", "--walltime", "2h", "--bank", "w.toml"], "is a file, not the folder of a bank"),
        (["import", "wfformat", "deep.json"], "nested too deep"),
        (["import", "wfformat", "deeper.json"], "nested too deep"),
        (["check", "deep.toml"], "brackets are too deep"),
        (["check", "letters.toml"], "1 to 64 of A-Z, a-z, 0-9, '_', '.' and '-'"),
    ],
)
def test_what_once_was_a_traceback_or_wrong_is_told(fuzz, tmp_path, arguments, words):
    for name in ("jobs.txt", "deep.json", "deeper.json", "deep.toml", "flow.toml"):
        (tmp_path / name).write_bytes((fuzz.place / "samples" / name).read_bytes())
    (tmp_path / "flow.toml").rename(tmp_path / "w.toml")
    (tmp_path / "letters.toml").write_text('[[stage]]\nname = "étape"\ncommand = "true"\ncores = 1\nwalltime = "1m"\n')
    done = asa(*arguments, cwd=tmp_path, code=2)
    assert words in " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"], ["import", "nextflow"], ["import", "wfformat"], ["import", "scripts"], ["simulate"],
        ["bank", "import"], ["evaluate"],
        ["advise"], ["doctor", "--site"], ["learn", "--bank", "b", "--from"], ["export", "wfformat"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_never_ends_is_not_read(arguments, tmp_path):
    done = asa(*arguments, "/dev/zero", cwd=tmp_path, code=2)
    assert "it is a device, and no file" in " ".join((done.stdout + done.stderr).split())
