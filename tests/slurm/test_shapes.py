"""Stages of several shapes on real Slurm, next to another user's jobs: the choice, its explanation, and that it holds.

Real programs run on the cluster's simulated cores: BLAST+ on a generated database.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import chdir, contextmanager
from types import SimpleNamespace

import pytest
from forked import ASA, asa
from portable_tools import bring
from real_pipelines import SMALL, pipeline_of
from slurm_runs import process, told_jobs
from slurm_testbed import OLDEST, make_home, until
from trial.verdict import entries_in, reshaped

from asa.runner import RunFolder
from asa.runner.begin import Chosen, plan_run
from asa.sites import open_facility
from asa.spec import load_workflow

FULL = pytest.mark.full
LINKS = ("commands", pytest.param("rest", marks=FULL))
SEARCH = """\
cores = [56, 14, 28]
expected = { 14 = "40min", 28 = "20min", 56 = "10min" }
walltime = { 14 = "1h", 28 = "30min", 56 = "15min" }
"""
OWN, NARROW, HOLE = 56, 28, 27
LATE = 18  # moments of a journal: then some stages of a chain have run


class Place:
    """A folder that jobs see, a cluster with a second user, and the command `asa`."""

    def __init__(self, slurm, folder, link):
        self.slurm, self.folder, self.others = slurm, folder, []
        reach = f"url=unix://{slurm.socket}" if link == "rest" else f"prefix={' '.join(slurm.prefix)}"
        self.on = ("--backend", "slurm-rest" if link == "rest" else "slurm-cli", "--option", reach)
        self.on += ("--option", "poll=0.5s", "--option", "max_poll=1s")
        if link == "rest" and slurm.release != OLDEST:  # which does not report what else is taken
            self.on += ("--option", "partition=normal")
        self.env = {**os.environ, "HOME": make_home(folder), "ASA_RUNS": str(folder / "runs"), "COLUMNS": "300"}
        self.env |= {"ASA_BANK": str(folder / "bank"), "ASA_SITES": str(folder / "sites")}

    def asa(self, *words, code=0):
        return asa(*words, code=code, cwd=self.folder, env=self.env)

    def client(self, *words):
        """Begin a client: its jobs are another user's, and write into its folders."""
        with (self.folder / f"client{time.time_ns()}").open("w") as out:
            return subprocess.Popen([ASA, *words], cwd=self.folder, env=self.env, umask=0, stdout=out, stderr=out)

    def learn(self, wait_s=20):
        """Teach the bank past jobs that ran for about their whole walltime, which strategies then expect."""
        lines = ["Cluster|JobID|User|Partition|Submit|Eligible|Start|End|State|TimelimitRaw|ReqCPUS"]
        since = int(time.time()) - 40 * 600
        for number in range(40):
            submit = since + 600 * number
            start = submit + wait_s * (1 + number % 7)
            lines.append(
                f"testbed|{number}|root|normal|{submit}|{submit}|{start}|{start + 570}|COMPLETED|10|{7 << number % 4}"
            )
        (self.folder / "past").write_text("\n".join(lines) + "\n")
        self.asa("learn", "--from", "past", "--system", "testbed")

    def occupy(self, *size):
        """Submit a job of the other user, and wait until it runs, or is pending if the machine is full."""
        words = ("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", *size, "--wrap", "sleep 900")
        self.others.append(self.slurm.run_as_root(*words).strip())
        return self.others[-1]

    def release(self, *jobs):
        """End jobs of the other user, with a walltime that they have about used up.

        Otherwise forecasts of later tests learn that this user's jobs end early.
        """
        for job in jobs:
            self.slurm.run_as_root("scontrol", "update", f"jobid={job}", "timelimit=1", check=False)
            self.slurm.run_as_root("scancel", job, check=False)

    def running(self, *jobs):
        def run():
            told = self.slurm.run_as_root("squeue", "-h", "-j", ",".join(jobs), "-o", "%T", check=False).split()
            return told == ["RUNNING"] * len(jobs)

        until(run, what=f"jobs {jobs}")

    def run_folder(self):
        [run] = (self.folder / "runs").glob("*/journal.jsonl")
        return run.parent

    def entries(self):
        """Read the complete entries of the only run's journal."""
        journals = (self.folder / "runs").glob("*/journal.jsonl")
        return [entry for journal in journals for entry in entries_in(journal.read_bytes())]

    def shaped(self, stage):
        return [one for one in self.entries() if one["kind"] == "shaped" and one["stage"] == stage]

    def intents(self, stage):
        """Return the requests to Slurm for jobs of a stage, by token."""
        found = [one for one in self.entries() if one["kind"] == "intended" and stage in one["planned"]["stages"]]
        return {one["token"]: one["spec"] for one in found}

    def jobs(self, stage):
        """Return the jobs of a stage that Slurm accepted, by the journal."""
        tokens = self.intents(stage)
        accepted = [one for one in self.entries() if one["kind"] == "accepted" and one["token"] in tokens]
        return [one["status"]["job_id"] for one in accepted]

    def has_begun(self, stage):
        mine = set(self.jobs(stage))
        told = [one["status"] for one in self.entries() if one["kind"] == "told"]
        return any(one["job_id"] in mine and one["payload_start_s"] is not None for one in told)

    def marks(self):
        """Return the lines of payloads: stage, cores and job."""
        return [line.split() for line in (self.folder / "marks").read_text().splitlines()]


@pytest.fixture
def place(slurm, request):
    """Yield a place without jobs, before and after."""
    before = os.umask(0)
    slurm.empty()
    place = Place(slurm, slurm.folder(f"shapes-{time.time_ns()}"), getattr(request, "param", "commands"))
    yield place
    place.release(*place.others)
    slurm.empty()
    os.umask(before)


def mark(command=""):
    """Note the stage, its cores and its job, and run a command."""
    return f'echo "$ASA_STAGE $ASA_CORES $SLURM_JOB_ID" >>marks; {command}'


def blast(place):
    """Write a search in several widths: the example, whose stages leave marks."""
    pipeline = pipeline_of("blast")
    source = pipeline.flow.parent
    pipeline.make_data(place.folder, SMALL)
    shutil.copy(source / "split.sh", place.folder)
    with (place.folder / "split.sh").open("a") as split:  # one more task, beside which there is time for a kill
        split.write(f"echo 'sleep 3; {mark('true')}' >>search.tasks\n")
    own = 'cores = "{{width}}"\nwalltime = "30min"\nexpected = { learn = true, until = "1min" }\n'
    text = pipeline.flow.read_text().replace("parts = 16", "parts = 4")
    for old, new in (
        (own, SEARCH),
        ('"makeblastdb', f"'''{mark('makeblastdb')}"),
        ('database/database"\n', "database/database'''\n"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    text = text.replace('[ "$(ls hits', mark('[ "$(ls hits'))
    if place.slurm.tree:  # nodes that are another Debian, which has none of the programs
        (place.folder / "tools").mkdir()
        tools = bring(pipeline.tools, place.folder / "tools")
        text = text.replace('LC_ALL = "C",', f'LC_ALL = "C", PATH = "{tools}:/usr/bin:/bin",')
    (place.folder / "flow.toml").write_text(text)
    return pipeline


def spoil(place):
    """Remove what the programs and asa wrote, but for the bank."""
    results = {name: (place.folder / name).read_bytes() for name in ("best.tsv", "hits.tsv")}
    for name in ("best.tsv", "hits.tsv", "marks", "search.tasks", "hits.sorted"):
        (place.folder / name).unlink(missing_ok=True)
    for name in ("hits", "part", "database", "runs"):
        shutil.rmtree(place.folder / name, ignore_errors=True)
    return results


def killed(place, client, *, at):
    """Kill a client once a condition holds."""
    try:
        until(lambda: at() or client.poll() is not None, what="the moment of the kill")
        assert client.poll() is None, "it ended before"
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()


@pytest.mark.parametrize("place", LINKS, indirect=True)
def test_a_search_takes_the_width_that_fits_now_and_keeps_it_however_often_its_client_is_killed(place):
    """Three of four nodes are in use for half a day, and all cores but one of the last for a minute or two."""
    slurm, pipeline = place.slurm, blast(place)
    place.asa("run", "flow.toml", *place.on, "--width", OWN, "--quiet", "--bank", "none")
    assert {name: cores for name, cores, _ in place.marks()} == {"format": "1", "search": f"{OWN}", "merge": "1"}
    assert pipeline.check(place.folder, place.folder).startswith("good")
    reference = spoil(place)
    place.learn()

    wide = place.occupy("--nodes=3", "--exclusive", "--time=12:00:00")
    small = place.occupy(f"--ntasks={HOLE}", "--time=2")
    place.running(wide, small)
    run = place.client("run", "flow.toml", *place.on, "--history", "1")  # not what other tests had run here
    killed(place, run, at=lambda: place.shaped("search"))
    killed(place, place.client("resume"), at=lambda: place.jobs("search"))
    [job] = place.jobs("search")
    told = slurm.run_as_root("squeue", "-h", "-j", job, "-o", "%T %C").split()
    assert told == ["PENDING", f"{NARROW}"], "has its turn within minutes; its own would wait for half a day"
    place.release(small)
    killed(place, place.client("resume"), at=lambda: place.has_begun("search"))
    place.release(wide)  # its own width would be the best now
    place.asa("resume", "--quiet")

    assert place.jobs("search") == [job]
    assert [[name, cores, by] for name, cores, by in place.marks() if name == "search"] == [
        ["search", f"{NARROW}", job]
    ]
    check_job(place, job, f"{NARROW}")
    assert list(reshaped(place.entries())) == [], "once it was submitted, it was weighed no more"
    assert Counter(name for name, *_ in place.marks()) == {"format": 1, "search": 1, "merge": 1}
    assert {name: (place.folder / name).read_bytes() for name in reference} == reference
    check_words(place)


def check_job(place, job, cores):
    """Raise AssertionError unless a job had so many cores, by Slurm's controller and by its accounting."""
    [told] = [one for one in told_jobs(place.slurm) if one["JobId"] == job]
    assert (told["NumCPUs"], told["NumTasks"]) == (cores, cores)
    asked = ("sacct", "-n", "-X", "-P", "-j", job, "-o", "AllocCPUS,State")
    ended = until(
        lambda: (word := place.slurm.run_as_root(*asked).strip()).endswith("COMPLETED") and word, what="its end"
    )
    assert ended == f"{cores}|COMPLETED"


def check_words(place):
    """Raise AssertionError unless the journal and `asa explain` say which shapes were weighed, and why this one."""
    choice = place.shaped("search")[-1]["choice"]
    weighed = {one["cores"]: one for one in choice["weighed"]}
    assert weighed.keys() == {14, 28, 56}
    assert choice["shape"]["width"] == NARROW
    half = {cores: (one["waits_s"][1], one["ends_s"][1]) for cores, one in weighed.items()}
    assert half[OWN][0] > 10 * half[NARROW][0], "minutes beside half a day"
    assert half[NARROW][1] == min(end_s for _, end_s in half.values())
    words = place.asa("explain", "search").stdout
    assert "Of 3 shapes 28 cores for 30m00s was chosen: half of such jobs wait" in words
    assert "Also compared: 56 cores for 15m00s, half of such jobs wait" in words
    assert "Also compared: 14 cores for 1h00m, half of such jobs wait" in words
    [stage] = json.loads(place.asa("explain", "search", "--output", "json").stdout)["stages"]
    assert sum("Also compared" in line for line in stage["told"]) == 2


# ---------------------------------------------------------------------- killed at any moment

CHAIN = """\
name = "chain"
[defaults]
cores = [8, 2, 4]
expected = { 2 = "40min", 4 = "20min", 8 = "10min" }
walltime = { 2 = "1h", 4 = "30min", 8 = "15min" }
"""


def chain(place, *stages):
    """Write a chain of stages, each with keys of its own."""
    text = CHAIN
    for name, before, own in zip("abcdef", ["", *"abcde"], stages, strict=False):
        after = f'after = ["{before}"]\n' if before else ""
        text += f"[[stage]]\nname = \"{name}\"\n{after}command = '''{mark('sleep 0.5')}'''\n{own}"
    (place.folder / "flow.toml").write_text(text)


@FULL
def test_a_client_may_be_killed_at_any_moment_and_each_stage_keeps_the_shape_that_was_submitted(slurm):
    """Another user's job leaves six cores, for which these runs compete."""
    before = os.umask(0)
    slurm.empty()
    other = Place(slurm, slurm.folder(f"other-{time.time_ns()}"), "commands")
    try:
        other.occupy("--ntasks=106", "--time=12:00:00")
        links = itertools.cycle(["rest", "commands"])
        runs = [(at, began(slurm, next(links))) for at in range(0, 36, 3)]  # three stages: 18 entries and more
        first = [(at, process(run, "journal", at)) for at, (_, run) in runs]
        for at, one in first:
            if at == LATE:
                other.release(*other.others)  # and from now on any width would start at once
            one.join(120.0)
            assert one.exitcode == -signal.SIGKILL, at
        second = [process(run) for _, (_, run) in runs]
        for one in second:
            one.join(180.0)
            assert one.exitcode == 0
        for at, (place, _) in runs:
            assert Counter(name for name, *_ in place.marks()) == {"a": 1, "b": 1, "c": 1}, at
            for name, cores, job in place.marks():  # one that came too early was given back, and asked for anew
                assert job in place.jobs(name)
                check_job(place, job, cores)
            assert list(reshaped(place.entries())) == [], at
    finally:
        other.release(*other.others)
        slurm.empty()
        os.umask(before)


def began(slurm, link):
    """Create a run whose strategy chooses shapes; no client drives it yet."""
    place = Place(slurm, slurm.folder(f"shapes-{time.time_ns()}"), link)
    place.learn()
    chain(place, *["retries = 1\n"] * 3)  # so that each has a job of its own
    backend, settings = place.on[1], dict(word.split("=", 1) for word in place.on[3::2])
    with chdir(place.folder):
        opened = open_facility(backend, None, settings)
        world = opened.facility.connect(place.folder / "look")
        try:
            flow = load_workflow(place.folder / "flow.toml", {})
            bank = place.folder / "bank"
            who = Chosen("asa-queue")
            plan = plan_run(flow, opened, world.capabilities, strategy="asa-plan", estimator=who, bank=bank, history=1)
        finally:
            world.close()
        folder = RunFolder.create(place.folder / "runs", plan)
    for part in ("scripts", "logs", "marks", "posts", "jobs"):
        (folder.path / part).mkdir(exist_ok=True)
        (folder.path / part).chmod(0o777)  # clients are root, the jobs are not
    return place, SimpleNamespace(folder=folder)


# ---------------------------------------------------------------------- nodes, and jobs of several stages


@pytest.mark.parametrize(
    ("own", "cores", "nodes"),
    [
        pytest.param(
            'nodes = [4, 1, 2]\nexpected = { 1 = "20min", 4 = "10min" }\nwalltime = "30min"\n', 28, 1, marks=FULL
        ),
        pytest.param("cores = [56, 14, 28]\nexclusive = true\n" + SEARCH.split("\n", 1)[1], 28, 1, marks=FULL),
    ],
    ids=["nodes", "exclusive"],
)
def test_whole_nodes_are_weighed_as_such(place, own, cores, nodes):
    """One of four nodes is idle, and the others are in use for half a day."""
    place.learn()
    place.running(place.occupy("--nodes=3", "--exclusive", "--time=12:00:00"))
    (place.folder / "flow.toml").write_text(f"name = 'whole'\n[[stage]]\nname = 'a'\ncommand = '''{mark()}'''\n{own}")
    place.asa("run", "flow.toml", *place.on, "--history", "1", "--quiet")
    [job] = place.jobs("a")
    [told] = [one for one in told_jobs(place.slurm) if one["JobId"] == job]
    assert (told["NumCPUs"], told["NumNodes"]) == (f"{cores}", f"{nodes}")
    assert place.marks() == [["a", f"{cores}", job]]
    assert {one["cores"] for one in place.shaped("a")[-1]["choice"]["weighed"]} >= {28, 56}


def test_stages_that_share_a_job_run_each_as_wide_as_fits_into_it(place):
    """Jobs wait long and stages are short, so they share a job; each stage gets its own number of the job's cores."""
    place.learn(wait_s=1800)
    short = 'expected = {{ 4 = "2min", {0} = "1min" }}\nwalltime = "5min"\ncores = [{0}, 4]\n'
    chain(place, short.format(8), short.format(16), short.format(8))
    place.asa("run", "flow.toml", *place.on, "--history", "1", "--estimator", "asa", "--quiet")
    [spec] = place.intents("a").values()
    assert [one["name"] for one in spec["steps"]] == ["a", "b", "c"]
    [job] = {job for _, _, job in place.marks()}
    [told] = [one for one in told_jobs(place.slurm) if one["JobId"] == job]
    chosen = {name: place.shaped(name)[-1]["choice"]["shape"]["width"] for name in "abc"}
    assert told["NumCPUs"] == f"{max(chosen.values())}"
    assert {name: int(cores) for name, cores, _ in place.marks()} == chosen
    assert "Also compared" in place.asa("explain", "b").stdout


# ---------------------------------------------------------------------- what can never be

W = 'walltime = "10min"\n'
KNOWN = 'expected = { 7 = "6min", 28 = "2min" }\n'
BAD = {
    "cores = [28, 0]\n" + W + KNOWN: "cores: must be 1 or more, not 0",
    "cores = [28, -7]\n" + W + KNOWN: "cores: must be 1 or more, not -7",
    "cores = [28, 7, 28]\n" + W + KNOWN: "cores: 28 is there twice",
    'cores = "112..7"\n' + W + KNOWN: "cores: '112..7' ends before it begins",
    "cores = [28, 7]\ncpus_per_task = 4\n" + W + KNOWN: "asks for 7 cores in tasks of 4",
    "cores = [28, 7]\nexpected = { 0 = '6min', 28 = '2min' }\n" + W: "expected: '0' is not a width",
    "cores = [28, 7, 224]\n" + W + KNOWN: "a: asks for 224 cores, and the largest possible job has 112",
    "nodes = [1, 8]\nexpected = { 1 = '4min', 8 = '1min' }\n" + W: "a: on 8 nodes it asks for 224 cores",
    'cores = [28, 56]\npartition = "narrow"\n'
    + W
    + KNOWN: "asks for 56 cores in partition 'narrow', which gives at most 28",
    "cores = [28, 7]\npartition = 'debug'\nwalltime = '20min'\nexpected = { 7 = '40min', 28 = '10min' }\n": (
        "a: on 7 cores it asks for 1h20m in partition 'debug', which gives at most 30m00s"
    ),
    'cores = [28, 7]\npartition = ["normal", "nowhere"]\n'
    + W
    + KNOWN: "asks for partition 'nowhere', which does not exist",
    'cores = [28, 7]\npartition = ["normal", "closed"]\n' + W + KNOWN: "but those of rich",
    'cores = [28, 7]\npartition = ["normal", ""]\n' + W + KNOWN: "partition: one of several has no name",
}
BAD_TASKS = {
    "mpirun -n 4 ./solver": "mpirun starts 4 processes in one of its tasks, which get 1 core each, however wide it is",
    "srun hostname": "srun in one of its tasks, which get 1 core each, however wide it is",
}


@contextmanager
def partitions(slurm, **more):
    """Add partitions for a while, each with given settings."""
    for name, says in more.items():
        slurm.run_as_root("scontrol", "create", f"partitionname={name}", "nodes=ALL", "state=up", says)
    try:
        yield
    finally:
        for name in more:
            slurm.run_as_root("scontrol", "delete", f"partitionname={name}")


@pytest.mark.parametrize("place", LINKS, indirect=True)
def test_what_can_never_run_is_refused_before_anything_is_submitted(place):
    head = 'name = "bad"\n[[stage]]\nname = "a"\n'
    files = {head + f"command = '''{mark()}'''\n" + own: words for own, words in BAD.items()}
    files |= {head + f'tasks = ["{task}"]\ncores = [28, 7]\n{W}': words for task, words in BAD_TASKS.items()}
    with partitions(place.slurm, narrow="maxnodes=1", closed="allowaccounts=rich"):
        for text, words in files.items():
            (place.folder / "flow.toml").write_text(text)
            told = place.asa("run", "flow.toml", *place.on, code=2).stderr
            assert words in " ".join(told.split()), (text, told)
            assert "Traceback" not in told
    assert not list(place.folder.glob("runs/*"))
    names = place.slurm.run_as_root("squeue", "-h", "-t", "all", "-o", "%j").split()
    assert not [name for name in names if name.startswith("bad_")]
