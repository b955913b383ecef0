"""A program that stands before Slurm's own squeue and refuses an option: the run goes on, or says why it does not."""

import json
import os
import subprocess

import pytest
from forked import ASA, asa
from slurm_runs import SlurmRun, stage
from slurm_testbed import make_home, until

REFUSING = """\
#!/bin/sh
for word; do
  case $word in {refused})
    echo "squeue: unrecognized option '$word'" >&2
    echo 'Try "squeue --help" for more information' >&2
    exit 1
  esac
done
exec {real} "$@"
"""


def stand_before(slurm, place, refused):
    """Put a squeue into a folder that refuses an option; return the prefix by which it is found first."""
    folder = place / "bin"
    folder.mkdir()
    program = folder / "squeue"
    program.write_text(REFUSING.format(refused=refused, real=slurm.run("sh", "-c", "command -v squeue").strip()))
    program.chmod(0o755)
    return (*slurm.prefix, "env", f"PATH={folder}:/usr/bin:/bin")


@pytest.mark.parametrize("refused", ["--local", "--name=*"])
def test_without_an_option_that_can_be_done_without_a_run_completes(slurm, refused):
    run = SlurmRun(slurm, [stage(name, "", "true") for name in "abc"], link="commands")
    run.plan.settings["prefix"] = stand_before(slurm, run.place, refused)
    assert run.result().outcome == "completed"
    until(lambda: not run.left(), what="that no job is left")
    run.check()


def test_an_option_that_is_needed_is_named_once_with_what_to_do(slurm, tmp_path):
    """The client says it, and so does `asa status` next to it; once squeue takes the option, the run goes on."""
    place = slurm.folder(f"squeue-{tmp_path.name}")
    (place / "one.toml").write_text(
        'name = "one"\n[[stage]]\nname = "first"\ncommand = "true"\ncores = 1\nwalltime = "5m"\n'
    )
    prefix = stand_before(slurm, place, "-O")
    environment = {**os.environ, "HOME": make_home(place), "ASA_RUNS": str(place / "runs"), "COLUMNS": "400"}
    told = {"cwd": place, "env": environment}
    on = ("--backend", "slurm-cli", "--option", f"prefix={' '.join(prefix)}", "--option", "poll=1s")
    words = ("run", "one.toml", *on, "--option", "max_poll=1s", "--strategy", "per-stage", "--bank", "none")
    with (place / "said").open("w") as said:
        client = subprocess.Popen([ASA, *words], umask=0, stdout=said, stderr=said, **told)
    try:

        def trouble():
            if not list((place / "runs").glob("*/journal.jsonl")):
                return None
            return json.loads(asa("status", "--output", "json", **told).stdout)["trouble"]

        refusal = "squeue: does not take the option -O: squeue: unrecognized option '-O'"
        assert until(trouble, what=(place / "said").read_text).startswith(refusal)
        shown = asa("status", **told).stdout
        for text in (shown, (place / "said").read_text()):
            assert refusal in text
            assert "type -a squeue and squeue --version" in text
        (place / "bin" / "squeue").unlink()
        assert client.wait(120) == 0
        assert (place / "said").read_text().count(refusal) == 1
    finally:
        client.kill()
        client.wait()
