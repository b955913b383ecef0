"""The shell text that runs inside jobs: it is made of its files, and shellcheck accepts it."""

import itertools
import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from asa.backends.local import processes
from asa.backends.local.processes import NO_OUTPUT, UNBEGUN_EXIT
from asa.backends.shell.script import ENTRY, Payload, batch_script, facts_of, requested
from asa.backends.slurm.script import batch_script as for_slurm

import asa.job
from asa.backend import REFUSAL, JobSpec, Step
from asa.continuation import Continuation
from asa.elements import parse_array_of
from asa.job import head, text
from asa.legs import Turn
from asa.outcome import JobOutcome
from asa.payload import Share, payload_text
from asa.pool.stages import _once
from asa.preparation import Preparation
from asa.workflow import Stage

FOLDER = Path(asa.job.__file__).parent
FILES = sorted(FOLDER.glob("*.sh"))
FIRST = Path(processes.__file__).with_name("first.sh")
STAND_INS = [FIRST.with_name(f"{name}.sh") for name in ("module", "scontrol")]
OLD = Path(__file__).parent / "data" / "scripts"  # as asa wrote them before its text was in files
MARKS, POSTS = Path("/r/marks"), Path("/r/posts")
TWO = (Step("a", "true", post="r/a"), Step("b c", "true", post="r/b c", beside=True, awaits=("r/x",)))
SCRIPTS = {
    "single": batch_script(Payload("fit.a1", "true", "/home/me", MARKS, POSTS, "a1"), "SLURM_JOB_ID"),
    "steps": for_slurm(Payload("a+b.a2", "", "/home/me", MARKS, POSTS, "a2", steps=TWO, before=[["room 4"], []])),
    "array": for_slurm(Payload("a", "true", "/home/me", MARKS, POSTS, array=parse_array_of("3-5"), is_renumbered=True)),
}
PLACE, SHARE = "/r/tasks/s", Share(0, "x", 2)
PREPARED = Preparation(modules=("gcc",), conda="e.yml", setup="true", launcher="srun")
ELEMENTS = Stage("s", cores=1, command="true", array=parse_array_of("1-2"), tasks=("1", "2"), jobs=(1, 1))
PAYLOADS = {
    "command": payload_text(Stage("s", cores=1, command="true", inputs=("a",), outputs=("b",)), 1),
    "script": payload_text(Stage("s", cores=1, script="true\n", preparation=PREPARED, environment=(("A", "b"),)), 1),
    "printed": payload_text(Stage("s", cores=1, script="true\n", stdout="o/%j", stderr="e"), 1),
    "element": payload_text(Stage("s", cores=1, command="true", array=parse_array_of("1-2"), outputs=("b%a",)), 1),
    "container": payload_text(Stage("s", cores=1, command="true", preparation=Preparation(container="a.sif")), 1),
    "leg": payload_text(
        Stage("s", cores=1, command="true", continues=Continuation.warned("USR1@3s"), outputs=("b",)),
        1, turn=Turn(1, "/r/legs", 60.0),
    ),
    "tasks": payload_text(Stage("s", cores=1, tasks=("a", "b"), outputs=("b",)), 1, folder=PLACE),
    "tasks without a place": payload_text(Stage("s", cores=1, tasks=("a", "b")), 1),
    "bag": payload_text(Stage("s", cores=1, tasks_file="list", outputs=("b",)), 1, folder=PLACE, share=SHARE),
    "elements": payload_text(ELEMENTS, 1, folder=PLACE),
    "elements of a bag": payload_text(replace(ELEMENTS, jobs=(2, 2), cores=2), 2, folder=PLACE, share=SHARE),
    "of a pool": _once("true", 1, 2, Path("/r/done")),
}  # fmt: skip
_WORDS = "|".join(JobOutcome)

needs_shellcheck = pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")


def checked(*arguments, **options):
    return subprocess.run(["shellcheck", *arguments], capture_output=True, text=True, check=False, **options)


@needs_shellcheck
def test_shellcheck_has_nothing_against_the_files():
    """What is disabled is so in the file that it is about, or in `.shellcheckrc`, with the reason."""
    found = checked("-s", "sh", *(file.name for file in FILES), FIRST, *STAND_INS, cwd=FOLDER)
    assert found.returncode == 0, found.stdout
    texts = [file.read_text() for file in (*FILES, FOLDER / ".shellcheckrc")]
    disabled = [
        (before, line)
        for lines in map(str.splitlines, texts)
        for before, line in itertools.pairwise(lines)
        if "disable=" in line
    ]
    bare = [
        line for before, line in disabled if not before.startswith("# ") and not re.search(r"disable=\S+ # .", line)
    ]
    assert not bare


@pytest.mark.full
@needs_shellcheck
@pytest.mark.parametrize("kind", [*SCRIPTS, *PAYLOADS])
def test_what_a_text_uses_is_given_by_its_head_or_one_of_its_files(kind):
    """So it is in what its head has for shells of their own: that which takes tasks on each node, and its workers."""
    written = (SCRIPTS | PAYLOADS)[kind]
    inner = subprocess.run(
        ["sh", "-c", f"{written.rpartition('asa_end() {')[0]}\nprintf %s \"${{asa_inner-}}\""],
        capture_output=True, text=True, check=True, env={"JOB": "7"} | dict(os.environ),
    ).stdout if kind in PAYLOADS else ""  # fmt: skip
    assert bool(inner) == ("asa_inner=" in written and kind in PAYLOADS)
    worker = subprocess.run(
        ["sh", "-c", f"{inner.partition('asa_end() {')[0]}\nprintf %s \"$asa_worker\""],
        capture_output=True, text=True, check=True,
    ).stdout if inner else ""  # fmt: skip
    assert ("asa_task() {" in worker) == bool(inner)
    for one in filter(None, (written, inner, worker)):
        found = checked("--norc", "--include=SC2154", "--shell=sh", "-", input=one)
        assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_means_the_same_without_its_comments(file):
    """As bash takes it apart: what is left out is no part of a word, as a line of awk's would be."""
    told = [
        subprocess.run(
            ["bash", "-c", f"f() {{\n{one}\n}}\ndeclare -f f"], capture_output=True, text=True, check=True
        ).stdout
        for one in (file.read_text(), text(file.stem))
    ]
    assert told[0] == told[1]


def test_outcomes_are_the_words_and_codes_of_python():
    said = [
        pair
        for file in FILES
        for code, word in re.findall(r"finish (\d+) ([a-z-]+)", file.read_text())
        for pair in [(word, int(code))]
    ]
    said += [
        (word, int(code)) for file in FILES for word, code in re.findall(r"asa_end ([a-z-]+) (\d+)", file.read_text())
    ]
    assert said
    for word, code in said:
        assert JobOutcome(word).exit_code == code
    whole = "".join(file.read_text() for file in FILES)
    for word in re.findall(rf"(?:word=|= |\*)\b((?:{_WORDS}|[a-z]+-[a-z]+))\b(?=[;\n )])", whole):
        assert word in set(JobOutcome), word
    assert NO_OUTPUT in FIRST.read_text()
    assert f"exit {UNBEGUN_EXIT}\n" in FIRST.read_text()
    codes = {int(code) for code in re.findall(r"\bexit (8\d|9\d)\b", whole)}
    assert codes <= {JobOutcome.UNABLE.exit_code, JobOutcome.DUPLICATE.exit_code}


def test_names_that_client_and_job_share_are_the_same_in_both():
    assert f'"$posts/$post{REFUSAL}"' in (FOLDER / "script-run.sh").read_text()
    assert f'unset "{ENTRY}$entries"' in (FOLDER / "script-claim.sh").read_text()


def test_the_files_are_installed():
    tables = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert tables["package-data"]["asa.job"] == ["*.sh"]
    assert tables["package-data"]["asa.backends.local"] == ["*.sh"]


def test_a_head_says_any_value_as_a_shell_reads_it(tmp_path):
    values = ["", "a b", "it's", "$x `y` \\", "two\nlines\n", "a=b", "~", "-n", "ümläut", "*"]
    names = [f"v{number}" for number in range(len(values))]
    shown = "\n".join(f'printf "%s\\0" "${name}"' for name in names)
    written = head(dict(zip(names, values, strict=True)))
    for shell in ("sh", "bash"):
        told = subprocess.run([shell, "-euc", f"{written}{shown}"], capture_output=True, text=True, check=True).stdout
        assert told.split("\0")[:-1] == values


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("single", (True, (), 90.5, "", False, ("r%2Ffit",), "ignore")),
        ("steps", (False, ("a", "b c"), 3600.0, "", False, ("r%2Fa", "r%2Fb%20c"), "fail")),
        ("array", (False, (), 60.0, "1-9:2,100", True, ("r%2Farr", "$whole+/$element"), "fail")),
    ],
)
def test_scripts_of_the_version_before_are_read(kind, told):
    """Of jobs that are in the queue. Their payloads have lines that look as those of a head."""
    script = (OLD / f"{kind}.sh").read_text()
    assert tuple(facts_of(script).values()) == told


def test_a_scripts_first_screen_says_what_was_asked_for_and_what_runs():
    stage = Stage("fit", cores=4, command="fit 'my data'\nplot", inputs=("in",))
    spec = JobSpec("fit", 4, 5400.0, payload_text(stage, 4), memory_bytes=8 << 30, options=("--nice=5",))
    made = Payload("fit.a1", spec.command, "/home/me", MARKS, POSTS, "a1", asks=requested(spec))
    assert batch_script(made, "SLURM_JOB_ID").splitlines()[:7] == [
        "#!/bin/sh",
        "# Written by asa for the job fit.a1.",
        "# It asks for 4 cores, walltime 1h30m, memory 8192M, options --nice=5.",
        "# It runs, in /home/me:",
        "#     fit 'my data'",
        "#     plot",
        "# The rest are values, and a text that reads them, which is the same for every job: files of asa/job.",
    ]


@pytest.mark.parametrize(
    "what", [{"command": "a\n" * 1000}, {"tasks": ("a",) * 1000}, {"script": "#!/bin/sh\n" + "a\n" * 1000}]
)
def test_of_long_commands_the_first_screen_shows_the_beginning(what):
    made = Payload("fit.a1", payload_text(Stage("fit", cores=1, **what), 1), "/home/me", MARKS, POSTS, "a1")
    lines = batch_script(made, "SLURM_JOB_ID").splitlines()
    assert sum(line.startswith("#     ") for line in lines[:40]) == 21
    assert re.fullmatch(r"#     \.\.\. and 9\d\d more lines", lines[2 + 21])


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x85", "\u2028"])
def test_what_is_shown_cannot_be_taken_for_what_a_script_says(end):
    """Nor run: what ends a line for Python alone begins no line of a head."""
    command = f"true {end}awaits='x'{end}# Its walltime in seconds: 5{end}#SBATCH -n 9"
    for text_of in (command, payload_text(Stage("s", cores=1, command=command, inputs=("a",)), 1)):
        script = batch_script(Payload("s", text_of, "/home/me", MARKS, POSTS, walltime_s=90.0), "SLURM_JOB_ID")
        assert tuple(facts_of(script).values())[:3] == (False, (), 90.0)
        head_lines = script.partition("\nawaits=")[0].split("\n")
        assert all(line.startswith("#") and not line.startswith("#SBATCH") for line in head_lines)


def test_what_a_payload_says_is_not_taken_for_what_its_script_says():
    command = "steps=x\nposted=none\nawaits='x'\n# Its walltime in seconds: 5\n"
    made = Payload("fit.a1", command, "/home/me", MARKS, POSTS, "a1", posted=("r/fit",), walltime_s=90.5)
    script = batch_script(made, "SLURM_JOB_ID")
    assert tuple(facts_of(script).values()) == (False, (), 90.5, "", False, ("r%2Ffit",), "fail")
