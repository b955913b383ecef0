"""A recorded driver submits what it really submits: random drivers run on real Slurm, on hold, and are recorded."""

import itertools
import os
import random
import re
from pathlib import Path

import pytest

from asa.errors import InputError
from asa.importers.recording import record, translate
from asa.importers.recording.submissions import waits_for
from asa.importers.scripts import ImportChoices

NUMBERS = itertools.count()
KINDS = ("afterok", "afterok", "afterany", "afternotok", "after")


def driver(seed, folder):
    """Write a driver of a few calls, of which each waits for some of those before it; it prints their numbers."""
    draw = random.Random(seed)
    lines = ["#!/bin/bash", f"cd {folder}", "mkdir -p sub"]
    (folder / "plain.sh").write_text("#!/bin/sh\ntrue\n")
    (folder / "asks.sh").write_text("#!/bin/sh\n#SBATCH -J asks --time=7\n#SBATCH -n 2 --comment='a b'\ntrue\n")
    arrays = []
    for number in range(draw.randint(3, 7)):
        options = ["--parsable", "-H"]
        options += draw.choice([[], ["-J", f"n{draw.randint(0, 2)}"], [f"--job-name=n{draw.randint(0, 2)}"]])
        options += draw.choice([[], ["-t", "5"], ["--time=0-1:30"], ["-t10:00"]])
        if draw.random() < 0.3:
            options.append(draw.choice(["--array=1-3", "-a0-4%2", "--array=2,5"]))
            arrays.append(number)
        options += draw.choice([[], [], ["-D", "sub"], [f"--chdir={folder}/sub"]])
        options += [f"--nice={draw.randint(1, 50)}"] if draw.random() < 0.2 else []
        if number and draw.random() < 0.8:
            options.append(f'--dependency="{waited(draw, number, arrays)}"')
        words = " ".join(options)
        lines.append(
            draw.choice(
                [
                    f"j{number}=$(sbatch {words} plain.sh one 'two three')",
                    f"j{number}=$(sbatch {words} asks.sh)",
                    f"j{number}=$(sbatch {words} --wrap 'echo $SLURM_JOB_ID')",
                    f"j{number}=$(sbatch {words} <<'END'\n#!/bin/sh\n#SBATCH -J piped -n 3\ntrue\nEND\n)",
                    f"j{number}=$(cd sub; sbatch {words.replace(' sub', ' .')} ../plain.sh)",
                ]
            )
        )
        lines.append(f"echo $j{number}")
    text = "\n".join(lines) + "\n"
    (folder / "driver.sh").write_text(text)
    return folder / "driver.sh"


def waited(draw, number, arrays):
    """Write the dependency of a job."""
    some = draw.sample(range(number), min(number, draw.randint(1, 3)))
    form = draw.randint(0, 4)
    if form <= 1 and arrays and arrays[-1] < number:
        return f"aftercorr:$j{arrays[-1]}"
    if form == 1:
        return "singleton"
    if form == 2:
        return draw.choice([",", "?"]).join(f"{draw.choice(KINDS[:4])}:$j{one}" for one in some)
    kind = draw.choice(KINDS)
    late = "+3" if kind == "after" and draw.random() < 0.5 else ""
    return f"{kind}:" + ":".join(f"$j{one}{late}" for one in some)


def told(slurm, number):
    """Return what Slurm shows of a job."""
    lines = slurm.run("scontrol", "show", "job", "-o", number).splitlines()
    found = re.findall(r"\b(JobName|TimeLimit|Dependency|ArrayTaskId|WorkDir|Nice|NumTasks)=(\S+)", lines[0])
    return dict(found) | ({"is_split": True} if len(lines) > 1 else {})


def dependencies(text, places):
    """Read the dependencies that Slurm shows, or that a call had: each has a kind and the position of a job."""
    if text in {"(null)", ""}:
        return set()
    found, _ = waits_for(re.sub(r"\(\w+\)", "", text).replace("_*", ""))
    # Slurm forgets a singleton once no job of that name is before it
    return {(one.kind, places.get(str(one.number)), one.minutes) for one in found if one.kind != "singleton"}


@pytest.mark.parametrize("seed", range(int(os.environ.get("ASA_RECORDED", "12"))))
def test_what_is_recorded_is_what_slurm_gets(slurm, seed):
    folder = slurm.folder(f"recorded{next(NUMBERS)}")
    written = driver(seed, folder)
    numbers = slurm.run("bash", str(written)).split()
    real = [told(slurm, number) for number in numbers]
    slurm.run("scancel", *numbers)
    for one in folder.iterdir():
        if one.name == "sub":
            one.rmdir()
    try:
        done = record(["bash", "driver.sh"], folder=folder)
    except InputError as error:
        pytest.skip(f"no namespaces here: {error.message}")
    assert len(done.jobs) == len(real)
    places = {number: place for place, number in enumerate(numbers)}
    recorded = {str(job.number): place for place, job in enumerate(done.jobs)}
    for job, fields in zip(done.jobs, real, strict=True):
        assert job.name == fields["JobName"]
        assert str(Path(job.folder, job.value("chdir"))) == fields["WorkDir"].removesuffix("/.")
        assert dependencies(job.value("dependency"), recorded) == dependencies(fields["Dependency"], places)
        assert job.value("nice", "0") == fields["Nice"]
    try:
        stages = translate(done, Path("kept"), ImportChoices()).imported.workflow.stages
    except InputError as error:
        if "afternotok" in error.message:  # or something else (`?`), which no stage can say
            return
        raise
    failures = {stage.name: stage.after for stage in stages.values() if stage.when == "failed" and stage.local}
    stages = [stage for stage in stages.values() if not stage.local]
    for stage, fields in zip(stages, real, strict=True):
        minutes = {"UNLIMITED": 60.0}.get(fields["TimeLimit"]) or seconds(fields["TimeLimit"]) / 60.0
        assert stage.walltime_s == 60.0 * minutes or not has_time(done, stages.index(stage))
        array = str(stage.array) if stage.array is not None else None
        assert array == fields.get("ArrayTaskId") or "is_split" in fields
        assert stage.cores == int(fields.get("NumTasks", 1))
        check_edges(stage, stages, fields["Dependency"], places, failures)


def check_edges(stage, stages, text, places, failures):
    """Check that a stage waits for what its job waits for; `failures`: stages that run after others' failures."""
    asked = dependencies(text, places)
    if not asked or len({place for _, place, _ in asked}) < len(asked):
        return  # nothing, or several things of one job, of which the strictest is kept
    is_any = "?" in text and len(asked) > 1
    for kind, place, minutes in asked:
        before = stages[place]
        if kind == "afternotok" and any(before.name in failures.get(name, ()) for name in stage.strictly_after):
            continue
        assert before.name in stage.after
        if kind == "after":
            assert before.name in stage.after_start
            assert stage.start_delay_s >= 60 * minutes
        elif kind == "aftercorr" and not is_any and {before.array, stage.array} != {None}:
            has_all = before.array and stage.array and not set(stage.array.all) - set(before.array.all)
            assert (before.name in stage.after_matching) == bool(has_all)
        elif kind == "afterany":
            assert stage.when == "always" or before.name in stage.after_any
        else:
            assert before.name in stage.strictly_after
    kinds = {kind for kind, _, _ in asked}
    singleton = "singleton" in text
    is_failed = "afternotok" in kinds and not failures.keys() & set(stage.after)
    expected = "failed" if is_failed else "any" if is_any else "always" if kinds == {"afterany"} else "success"
    assert stage.when == expected or singleton


def has_time(done, place):
    return "time" in done.jobs[place].directives


def seconds(text):
    days, _, rest = text.rpartition("-")
    hours, minutes, secs = map(int, rest.split(":"))
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + secs
