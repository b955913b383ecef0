"""Stages of several shapes on the command line: one width for all, and what can never run; on this machine's queue."""

import json

import pytest
from this_machine import Place

CORES = 'cores = [4, 1, 2]\nexpected = { 1 = "4min", 2 = "2min", 4 = "1min" }\nwalltime = "10min"\n'
TELLS = 'command = "echo $ASA_STAGE:$ASA_CORES >>did"\n'
STRATEGIES = ("per-stage", "chained", "asa", "asa-naive", "asa-plan", "elastic", "big-job")


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.close()


def write(place, *stages, name="flow"):
    """Write stages one after the other, named a, b and so on."""
    text = 'name = "flow"\n'
    for number, own in enumerate(stages):
        after = f'after = ["{"abc"[number - 1]}"]\n' if number else ""
        text += f'[[stage]]\nname = "{"abc"[number]}"\n{after}{own}'
    (place.root / f"{name}.toml").write_text(text)
    return f"{name}.toml"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_stage_is_asked_for_in_the_width_that_is_wanted(place, strategy):
    """Each stage gets its widest possible width up to the given one, by any strategy, or its only width."""
    flow = write(
        place,
        TELLS + CORES,
        TELLS + 'cores = "1..2"\nwalltime = "10min"\nexpected = "1min"\nscaling = { amdahl = 0.9 }\n',
        TELLS + "cores = 3\nwalltime = '10min'\n",
    )
    place.asa("run", flow, *place.on, "--strategy", strategy, "--width", 2, "--quiet")
    assert place.lines() == ["a:2", "b:2", "c:3"]


@pytest.mark.parametrize(
    ("width", "cores", "note"),
    [
        (4, 4, ""),
        (3, 2, ""),
        (1, 1, "the run time of a on 1 core is not known; it asks for 10m00s"),
        (100, 4, ""),
    ],
)
def test_a_width_may_be_tried_of_which_no_run_time_is_known(place, width, cores, note):
    """The run time on this width becomes known then."""
    flow = write(
        place,
        TELLS
        + 'cores = [4, 1, 2]\nexpected = { learn = true, until = { 2 = "2min", 4 = "1min" } }\nwalltime = "10min"\n',
    )
    told = place.asa("run", flow, *place.on, "--width", width).stderr
    assert place.lines() == [f"a:{cores}"]
    assert (f"Note: {note}" in told) == bool(note)


def test_a_run_that_was_begun_in_one_width_keeps_it_when_its_file_is_mended(place):
    broken = write(place, TELLS + CORES, 'command = "exit 3"\n' + CORES)
    place.asa("run", broken, *place.on, "--width", 2, code=1)
    mended = write(place, TELLS + CORES, TELLS + CORES, name="mended")
    done = place.asa("resume", "--retry", "--workflow", mended)
    assert "changes there have no effect" not in done.stderr
    assert place.lines() == ["a:2", "b:2"]


def test_a_plan_is_shown_for_one_width(place):
    flow = write(place, TELLS + CORES)
    shown = json.loads(place.asa("plan", flow, *place.on, "--width", 2, "--output", "json").stdout)
    assert [job["cores"] for job in shown["jobs"]] == [2]
    assert "--width 2" in " ".join(place.asa("plan", flow, *place.on, "--width", 2).stdout.split())
    assert (
        "the fewest that it allows"
        in place.asa("plan", write(place, TELLS + CORES.replace("1, ", "")), *place.on, "--width", 1).stderr
    )


def test_one_width_is_refused_where_there_are_not_several(place):
    flow = write(place, TELLS + "cores = 2\nwalltime = '10min'\n")
    for command in ("run", "plan"):
        told = place.asa(command, flow, *place.on, "--width", 2, code=2).stderr
        assert "no stage of flow has several widths" in told


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (TELLS + CORES.replace("4, 1, 2", "4, 1, 2, 64"), "a: asks for 64 cores, and the largest possible job has"),
        (TELLS + CORES.replace("{ 1", "{ 0 = '4min', 1"), "expected: '0' is not a width"),
        (TELLS + CORES.replace('"10min"', "{ 0 = '10min', 4 = '20min' }"), "walltime: '0' is not a width"),
        (
            'tasks = ["mpirun -n 4 ./x"]\ncores = [4, 2]\nwalltime = "10min"\n',
            "mpirun starts 4 processes in one of its",
        ),
        (
            'tasks = ["srun hostname"]\ncores = [4, 2]\nwalltime = "10min"\n',
            "srun in one of its tasks, which get 1 core",
        ),
        ('command = "if true; then"\ncores = 2\nwalltime = "10min"\n', "does not understand this"),
    ],
)
def test_what_can_never_run_is_refused_also_where_notes_are_not_wanted(place, stage, words):
    flow = write(place, stage)
    for quiet in ((), ("--quiet",)):
        told = place.asa("run", flow, *place.on, *quiet, code=2).stderr
        assert words in " ".join(told.split())
    assert not place.runs()


def test_run_times_that_grow_with_the_cores_are_noted_and_allowed(place):
    flow = write(place, TELLS + 'cores = [1, 2]\nexpected = { 1 = "1min", 2 = "2min" }\nwalltime = "10min"\n')
    assert "it is expected to run longer on more cores: 2m00s on 2, 1m00s on 1" in place.asa("check", flow).stdout
    place.asa("run", flow, *place.on, "--quiet")
    assert place.lines() == ["a:1"]
