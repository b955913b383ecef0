"""Stages that run in legs, on real daemons: the result of one long run, bit for bit, whatever is killed."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from slurm_runs import LINKS, SlurmRun, busy_nodes, process
from slurm_testbed import until

from asa.continuation import Continuation
from asa.workflow import Stage

LENT = {}  # by cluster, where its jobs have a Python
EXAMPLE = Path(__file__).parents[2] / "examples" / "legs"
SIZE = 60
STEPS = 200_000  # seconds of computing; it saves its state 40 times, and a job waits a second each time, on any machine
LEGS = 12  # of the random trial, at least


SLOWER = """\
import os, time
fsync = os.fsync
os.fsync = lambda file: (time.sleep(1.0), fsync(file))[1]
"""


class LegRun(SlurmRun):
    """A run of the example's solver, and of a stage after it."""

    def __init__(self, slurm, *, walltime_s=60, warn="USR1@30s", retries=0, times=1, **options):
        self._legs, self._steps = (walltime_s, warn, retries), times * STEPS
        super().__init__(slurm, [Stage("a", cores=1, command="x"), Stage("b", cores=1, command="x")], **options)
        (self.folder.path / "tasks").mkdir(exist_ok=True)
        (self.folder.path / "tasks").chmod(0o777)

    def _leaves_a_line(self, one):
        if one.name == "b":
            return Stage("b", cores=1, walltime_s=60, after=("a",), command="echo after >>did")
        if not (self.place / "heat.py").exists():
            shutil.copy(EXAMPLE / "heat.py", self.place)
        walltime_s, warn, retries = self._legs
        return Stage(
            "a", cores=1, walltime_s=walltime_s, expected_run_s=200.0, retries=retries,
            command=f"echo b$ASA_LEG >>did; {lent_python(self.slurm)} heat.py {self._steps} {SIZE}",
            continues=Continuation(**{**as_dict(Continuation.warned(warn)), "progress": ("ckpt/*.state",)}),
        )  # fmt: skip

    def did(self):
        with suppress(FileNotFoundError):
            return (self.place / "did").read_text().split()
        return []

    def legs(self):
        return [job for jobs in self.jobs().values() for job in jobs if job["JobName"].startswith("flow_a")]

    def running(self):
        return [job for job in self.legs() if job["JobState"] == "RUNNING"]

    def check(self, least_legs):
        state, _ = self.folder.state()
        assert state.outcome == "completed", state.reason
        assert self.did()[-1] == "after"
        began = [word for word in self.did() if word[0] == "b"]
        assert len(began) >= least_legs
        until(lambda: not self.left(), what="the end of all jobs")
        return len(began)


def as_dict(terms):
    return {"warn": terms.warn, "warn_s": terms.warn_s}


def lent_python(slurm):
    """Return a copy of this Python, with numpy, that any user's job can run; in it each fsync takes a second more."""
    if slurm.root not in LENT:
        place = LENT[slurm.root] = slurm.folder("python")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        here = Path(sys.base_prefix)
        (place / "bin").mkdir()
        shutil.copy(Path(sys.base_exec_prefix) / "bin" / version, place / "bin")
        left_out = "test tests idlelib lib2to3 tkinter turtledemo ensurepip site-packages dist-packages config-*"
        ignored = shutil.ignore_patterns(*left_out.split(), "*.pyi", "f2py")
        shutil.copytree(here / "lib" / version, place / "lib" / version, ignore=ignored, symlinks=False)
        for name in ("numpy", "numpy.libs"):
            if (Path(np.__file__).parents[1] / name).is_dir():
                shutil.copytree(Path(np.__file__).parents[1] / name, place / "lib" / version / name, ignore=ignored)
        for library in (here / "lib").glob(f"lib{version}*.so*"):
            shutil.copy(library, place / "lib")
        (place / "lib" / version / "sitecustomize.py").write_text(SLOWER)
        run = f'#!/bin/sh\nLD_LIBRARY_PATH={place}/lib PYTHONHOME={place} exec {place}/bin/{version} "$@"\n'
        (place / "run").write_text(run)
        (place / "run").chmod(0o755)
    return LENT[slurm.root] / "run"


def uninterrupted(place, count):
    """Return the result of one run."""
    command = [sys.executable, str(EXAMPLE / "heat.py"), str(count), str(SIZE)]
    subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=900)
    return (place / "ckpt" / "result.npy").read_bytes()


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    """Yield the result of one uninterrupted run."""
    return uninterrupted(tmp_path_factory.mktemp("alone"), STEPS)


@pytest.mark.parametrize(("link", "strategy"), [("rest", "asa"), ("commands", "chained")])
def test_it_goes_on_from_leg_to_leg(slurm, link, strategy, alone):
    """A leg is signalled after 30 s; with the strategy `asa` the next leg has started by then."""
    run = LegRun(slurm, link=link, strategy=strategy)
    run.client().result(within_s=400.0)
    run.check(2)
    assert (run.place / "ckpt" / "result.npy").read_bytes() == alone
    assert {job["JobState"] for job in run.legs()} <= {"COMPLETED", "CANCELLED"}


@pytest.mark.full
@pytest.mark.skipif("ASA_TRIALS" not in os.environ, reason="a random trial of minutes: set ASA_TRIALS to run it")
def test_whatever_is_killed_the_result_is_that_of_one_run(slurm, tmp_path):
    """Its client, its legs, its jobs by a requeue, and a leg as it writes its state; others' jobs come and go."""
    rng = random.Random(slurm.version)
    link = rng.choice(LINKS)
    run = LegRun(slurm, link=link, strategy=rng.choice(["asa", "asa-plan", "per-stage"]), retries=50, times=6)
    client, ends = process(run), time.monotonic() + 900.0
    until(run.running, what="a leg")
    killed = []
    with busy_nodes(slurm, 3):
        while time.monotonic() < ends and run.folder.state()[0].outcome is None:
            time.sleep(rng.uniform(5.0, 15.0))
            what = rng.choice(["client", "leg", "requeue", "write"])
            legs = run.running()
            if what == "client" or client.exitcode is not None:
                if client.exitcode is None:
                    os.kill(client.pid, signal.SIGKILL)
                client.join(30.0)
                client = process(run)
            elif legs and what == "requeue" and killed.count("requeue") < 1:  # Slurm lets it wait for two minutes
                slurm.run("scontrol", "requeue", legs[0]["JobId"], check=False)
            elif legs and what == "leg":
                kill(legs[-1])
            elif legs and what == "write":
                kill_in_the_writing(run, legs[-1])
            killed.append(what)
    client.join(200.0)
    if client.exitcode is None or client.exitcode:
        process(run).join(300.0)
    legs = run.check(LEGS)
    whole = uninterrupted(tmp_path, 6 * STEPS)
    assert (run.place / "ckpt" / "result.npy").read_bytes() == whole, (legs, killed)


def kill(job):
    """Kill all that runs of a job; other clusters have the same numbers."""
    ours = {f"SLURM_JOB_ID={job['JobId']}".encode(), f"SLURM_JOB_NAME={job['JobName']}".encode()}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if ours <= set(path.read_bytes().split(b"\0")):
                os.kill(int(path.parent.name), signal.SIGKILL)


def kill_in_the_writing(run, job):
    """Kill a leg while it writes its state, if it does so soon."""
    half = run.place / "ckpt" / "state.part"
    until_s = time.monotonic() + 8.0
    while time.monotonic() < until_s:
        if half.exists():
            kill(job)
            return
