"""Files that a stage made and that the next one sees only some time later, as by NFS."""

import subprocess

import pytest
from this_machine import Place

# by somebody else, for what a job leaves behind is ended with it
LATE = "until [ -e seen ]; do sleep 0.1; done; rm seen; sleep {}; mkdir -p out; echo x >out/made"


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    made.environment["ASA_LATENCY_S"] = ""  # as it is for users
    made.disks = []
    yield made
    for disk in made.disks:
        disk.kill()
        disk.wait()
    made.close()


def flow(place, late_s, more=""):
    place.disks.append(subprocess.Popen(["sh", "-c", LATE.format(late_s)], cwd=place.root))
    (place.root / "flow.toml").write_text(
        f'name = "flow"\n[defaults]\ncores = 1\nwalltime = "1min"\n{more}\n'
        f'[[stage]]\nname = "a"\ncommand = "rm -rf out; touch seen"\n'
        '[[stage]]\nname = "b"\nafter = ["a"]\ncommand = "cat out/made >>did"\ninputs = ["out/made"]\n'
    )
    return "flow.toml"


@pytest.mark.parametrize("strategy", ["per-stage", "chained", "big-job"])
def test_an_input_that_comes_late_is_waited_for(place, strategy):
    place.asa("run", flow(place, 2), *place.on, "--strategy", strategy)
    assert place.lines() == ["x"]


def test_one_that_comes_later_than_that_is_tried_again(place):
    told = place.asa("run", flow(place, 5, 'input_patience = "1s"\nretries = 3'), *place.on, "--strategy", "per-stage")
    assert "b: submitted again: failed (an input is missing or empty)" in told.stdout
    assert place.lines() == ["x"]


def test_the_site_says_how_long_where_a_stage_does_not(place):
    (place.root / "sites").mkdir(exist_ok=True)
    text = f'backend = "local"\ncores = 4\nspool = "{place.root / "spool"}"\n'
    (place.root / "sites" / "here.toml").write_text(f'{text}input_patience = "1s"\n')
    place.asa("run", flow(place, 9), "--site", "here", "--strategy", "per-stage", code=1)
    assert "an input is missing or empty" in place.asa("explain", "b").stdout
    place.asa("run", flow(place, 3, 'input_patience = "30s"'), "--site", "here", "--strategy", "per-stage")
    (place.root / "sites" / "here.toml").write_text(f'{text}input_patience = "2 weeks"\n')
    told = place.asa("run", "flow.toml", "--site", "here", code=2).stderr
    assert "is not a time of up to an hour" in told


def test_what_no_stage_makes_is_found_before_anything_is_submitted(place):
    path = place.root / flow(place, 0)
    path.write_text(path.read_text().replace('inputs = ["out/made"]', 'inputs = ["ot/made"]'))
    warning = "input ot/made does not exist, and no earlier stage makes it"
    assert warning in " ".join(place.asa("check", "flow.toml").stdout.split())
    told = place.asa("run", "flow.toml", *place.on, "--dry-run")
    assert warning in " ".join(told.stderr.split())
