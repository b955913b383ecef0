"""Job arrays on this machine's queue, which has none: jobs take the elements in turn, each runs once."""

import json
import re
from collections import Counter

import pytest
from this_machine import Place


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path, cores=3)
    yield made
    made.close()


def flow(place, command, *, array="1-9:2%2", more=""):
    (place.root / "flow.toml").write_text(
        f'name = "flow"\n[[stage]]\nname = "a"\ncores = 1\nwalltime = "1min"\narray = "{array}"\n'
        f"command = '''\n{command}\n'''\n{more}\n"
        '[[stage]]\nname = "b"\ncores = 1\nwalltime = "1min"\nafter = ["a"]\ncommand = "echo after >>did"\n'
    )
    return "flow.toml"


TELL = "echo e$SLURM_ARRAY_TASK_ID:$ASA_ELEMENT:$SLURM_ARRAY_TASK_COUNT >>did"


def once(*numbers):
    return Counter(f"e{number}:{number}:{len(numbers)}" for number in numbers) + Counter(["after"])


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["chained", "per-stage", "asa-plan"])
def test_each_element_runs_once_and_is_told_its_number(place, strategy):
    place.asa("run", flow(place, TELL), *place.on, "--strategy", strategy)
    assert Counter(place.lines()) == once(1, 3, 5, 7, 9)
    assert place.lines()[-1] == "after"


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["per-stage", "big-job", "asa-plan"])
@pytest.mark.parametrize("cores", ["cores = 2", "cores = 2\ncpus_per_task = 2"])
def test_elements_of_several_cores_run_side_by_side_in_a_job_with_what_follows(tmp_path, strategy, cores):
    """Two elements fit on the machine; each has its own cores and walltime, alone in a job or with successors."""
    place = Place(tmp_path, cores=4)
    try:
        count = "touch at.$ASA_ELEMENT; ls at.* | wc -l >>counts; sleep 3; rm at.$ASA_ELEMENT"
        path = place.root / flow(place, f"{TELL}; echo $ASA_CORES >>cores; {count}", array="1-4")
        path.write_text(path.read_text().replace("cores = 1", cores, 1).replace("1min", "5s", 1))
        place.asa("run", path.name, *place.on, "--strategy", strategy)
        assert Counter(place.lines()) == once(1, 2, 3, 4)
        assert place.lines("cores") == ["2"] * 4
        assert max(place.lines("counts")) == "2"
    finally:
        place.close()


def test_no_more_run_at_once_than_the_throttle_says(place):
    """Each element leaves a file while it runs, and counts the files."""
    count = "touch at.$ASA_ELEMENT; ls at.* | wc -l >>counts; sleep 0.3; rm at.$ASA_ELEMENT"
    place.asa("run", flow(place, count, array="1-7%2"), *place.on)
    counts = [int(word) for word in (place.root / "counts").read_text().split()]
    assert len(counts) == 7
    assert max(counts) <= 2


def test_those_alone_are_tried_again_that_failed(place):
    fails = f"{TELL}; [ $ASA_ELEMENT -ne 5 ] || [ -e once ] || {{ touch once; exit 3; }}"
    place.asa("run", flow(place, fails, more="retries = 1"), *place.on)
    assert Counter(place.lines()) == once(1, 3, 5, 7, 9) + Counter(["e5:5:5"])


def test_output_is_shown_below_the_numbers_of_the_elements_that_wrote_it(place):
    """A job that wrote nothing has no heading, however the output is read."""
    quiet = "[ $ASA_ELEMENT -ne 3 ] || echo I am $ASA_ELEMENT"
    place.asa("run", flow(place, quiet, array="1-3"), *place.on)
    for words in ((), ("--lines", 5), ("--follow",)):
        heading, line = place.asa("logs", "a", *words).stdout.splitlines()
        assert re.fullmatch(r"==> elements? (\d, )*3, job \d+@\S+ <==", heading), heading
        assert line == "I am 3"


def test_an_elements_own_exit_code_is_no_word_of_ours(place):
    """Exit codes that asa uses itself, as for a missing input or a timeout, mean nothing special in an element."""
    fails = f"{TELL}; [ -e once$ASA_ELEMENT ] || {{ touch once$ASA_ELEMENT; exit $ASA_ELEMENT; }}"
    ran = place.asa("run", flow(place, fails, array="84,124", more="retries = 1"), *place.on)
    assert Counter(place.lines()) == Counter({"e84:84:2": 2, "e124:124:2": 2, "after": 1})
    assert "submitted again: failed (some of its tasks failed)\n" in ran.stdout, "with no longer walltime"


def test_a_resumed_run_asks_for_those_alone_that_did_not_complete(place):
    fails = f"{TELL}; [ $ASA_ELEMENT -ne 5 ] || [ -e mended ]"
    place.asa("run", flow(place, fails), *place.on, code=1)
    told = place.asa("status").stdout
    assert "of 5 elements 4 completed, 1 did not complete; element 5 failed (exit code 1)" in " ".join(told.split())
    (place.root / "mended").touch()
    place.asa("resume", "--retry")
    assert Counter(place.lines()) == once(1, 3, 5, 7, 9) + Counter(["e5:5:5"])


def test_inputs_and_outputs_are_those_of_the_element(place):
    for number in (1, 3):
        (place.root / f"in{number}").write_text("x")
    made = f"{TELL}; mkdir -p out; [ $ASA_ELEMENT -eq 3 ] || echo x >out/$ASA_ELEMENT.txt"
    place.asa(
        "run", flow(place, made, array="1-5:2", more='inputs = ["in%a"]\noutputs = ["out/%a.txt"]'), *place.on, code=1
    )
    assert Counter(place.lines()) == Counter(["e1:1:3", "e3:3:3"]), "the third has no input"
    told = " ".join(place.asa("status").stdout.split())
    assert "3 failed (its command exited with 0, but an output is missing or empty)" in told
    assert "5 failed (an input is missing or empty)" in told


def test_one_that_runs_out_of_time_gets_more_and_one_that_is_killed_more_memory(place):
    """Only the second element hangs, and only the first time; the third is killed once, as if out of memory."""
    hangs = "[ $ASA_ELEMENT -ne 2 ] || [ -e two ] || { touch two; exec sleep 600; }"
    killed = "[ $ASA_ELEMENT -ne 3 ] || [ -e three ] || { touch three; exit 137; }"
    path = place.root / flow(place, f"{TELL}; {hangs}; {killed}", array="1-4", more='retries = 1\nmemory = "64M"')
    path.write_text(path.read_text().replace('walltime = "1min"', 'walltime = "5s"', 1))
    place.asa("run", path.name, *place.on)
    assert Counter(place.lines()) == once(1, 2, 3, 4) + Counter(["e2:2:4", "e3:3:4"])
    lines = [json.loads(line) for line in (place.runs()[0] / "journal.jsonl").read_text().splitlines()]
    asked = [one["spec"] for one in lines if one.get("kind") == "intended" and one["planned"]["stages"] == ["a"]]
    assert {spec["memory_bytes"] for spec in asked} == {64 << 20, 128 << 20}
    assert len({spec["walltime_s"] for spec in asked}) == 2
