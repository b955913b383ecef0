"""Benchmarks of the hot paths, in CPU time, as ratios to a simple reference, since machines vary.

python tools/bench.py
"""

from __future__ import annotations

import importlib.util
import io
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import budgets
import numpy as np
import tasks_cost
from asa.backends.bbsched.exact import Exact
from asa.backends.bbsched.methods import BBSched
from asa.backends.bbsched.scheduler import WindowScheduler, make_load
from asa.backends.openccs.jobs import JobPhase
from asa.backends.simulated import SimulatedSite
from asa.backends.simulated.cluster import Cluster, Load
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.engine import NEVER, Engine
from asa.backends.simulated.policies import Conservative, Fcfs, Multifactor, Policy
from asa.backends.simulated.presets import PRESETS
from asa.backends.simulated.replay import replay
from asa.backends.simulated.swf import read_swf, write_swf
from asa.backends.simulated.table import JobTable
from asa.workflows import montage
from growth import exponent, measured
from numpy.typing import NDArray
from rich.console import Console

from asa import WaitBank
from asa.backend import Capabilities
from asa.core import plugins
from asa.estimators import Asa
from asa.history import JobHistory
from asa.observations import queued
from asa.runner import Run, run_all
from asa.runner.forecasts import LearnedForecast
from asa.runner.specs import ask_of
from asa.runner.state import RunState
from asa.shapes import Moldable, RunAt
from asa.strategies import load_strategy
from asa.strategies.planning import look_ahead
from asa.studies.accuracy.study import evaluate, installed
from asa.studies.bbsched.windows import fullest, harvest
from asa.studies.bbsched.workloads import load_workloads
from asa.studies.ccs.bench import filled, requests
from asa.waits import QueuedJob, Surroundings, WaitEstimator, exactly
from asa.workflow import Stage, Workflow

Row = tuple[str, float, str, float]
ROOT = Path(__file__).parents[1]


def spent_s() -> float:
    """CPU seconds of this process, and of those that it started and waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def best(work: Callable[[], object], times: int = 5) -> float:
    """Return the CPU seconds of the cheapest of some tries; other users of the machine change these least."""
    taken = []
    for _ in range(times):
        begun = spent_s()
        work()
        taken.append(spent_s() - begun)
    return min(taken)


def reference() -> Any:
    """Load a simulator in plain Python by other authors, if it is at hand; return it and its folder."""
    folder = Path(os.environ.get("ASA_DATA", ROOT.parent / "shared" / "data")).parent / "simulation"
    path = folder / "reference_easy.py"
    if not path.is_file():
        return None, folder
    spec = importlib.util.spec_from_file_location("reference_easy", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, folder


def schedules() -> Iterator[Row]:
    """Simulate whole logs under FCFS and EASY: the loop alone, without reading and compiling."""
    plain, folder = reference()
    for name in ("lublin_256", "kth_sp2") if plain else ():
        trace = read_swf(folder / "traces" / f"{name}.swf.gz")
        t = trace.table
        columns = [t.submit, t.run, t.request, t.cores]
        jobs = list(zip(range(len(t)), *(c.tolist() for c in (t.submit, t.run, t.cores, t.request)), strict=True))
        took = best(lambda c=columns, n=trace.cores: replay(*c, n), 30)
        yield (
            f"replay of {name}, {len(t):,} jobs",
            took,
            "reference in plain Python",
            best(lambda j=jobs, n=trace.cores: plain.simulate(j, n), 9),
        )
        yield from disciplines(name, t, trace.cores, trace.users)
        yield from disciplines(f"{name} at a load of 1.2", at_load(1.2, t, trace.cores), trace.cores, trace.users)
    model = PRESETS["hpc2n"]
    table = model.generate(8 * 86400, 1)
    compiled = best(lambda: Engine(model.machine.cores, table).advance(NEVER), 5)
    code = (
        "import sys, time; sys.modules['numba'] = None\n"
        "from asa.backends.simulated.engine import NEVER, Engine; from asa.backends.simulated.presets import PRESETS\n"
        "m = PRESETS['hpc2n']; t = m.generate(8 * 86400, 1); e = Engine(m.machine.cores, t); b = time.process_time()\n"
        "e.advance(NEVER); print(time.process_time() - b)"
    )
    plainly = float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    yield f"engine, {len(table):,} jobs of hpc2n", compiled, "the same without numba", plainly


def at_load(load: float, table: JobTable, cores: int) -> JobTable:
    """Return the jobs of a log, submitted at such times that they ask for this share of the machine's core-seconds."""
    work_s = int((table.run * table.cores).sum()) / cores / load
    since = table.submit - table.submit[0]
    return JobTable((since * (work_s / since[-1])).astype(np.int64), table.run, table.request, table.cores)


def disciplines(name: str, table: JobTable, cores: int, users: NDArray[np.int64]) -> Iterator[Row]:
    """Simulate a log on the general core, compared with the budget of each discipline in replays of the log."""
    columns = (table.submit, table.run, table.request, table.cores)
    replayed = best(lambda: replay(*columns, cores), 9)
    load = Load(table, Cluster({"cores": cores}))
    policies = {"EASY": Policy(), "conservative": Policy(Fcfs(), Conservative()), "multifactor": Policy(Multifactor())}
    for what, budget in budgets.DISCIPLINES.items():
        took = best(lambda p=policies[what]: GeneralCore(load, p).run(NEVER - 1), 3)
        yield f"  {what}, {name}", took, f"{budget:g} replays of it", budget * replayed
    if len(np.unique(users)) > 1:
        of_users = Load(table, Cluster({"cores": cores}), users=users)
        took = best(lambda: GeneralCore(of_users, policies["multifactor"]).run(NEVER - 1), 3)
        budget = budgets.DISCIPLINES["multifactor"]
        yield f"  multifactor of its users, {name}", took, f"{budget:g} replays of it", budget * replayed


def growth() -> Iterator[Row]:
    """Compare the cost per job under a long load with that under a short one: it should not grow."""
    model = PRESETS["hpc2n"]
    short, long = (model.generate(days * 86400, 1) for days in (4, 120))
    costs = [
        best(lambda t=t: replay(t.submit, t.run, t.request, t.cores, model.machine.cores), n)
        for t, n in ((short, 20), (long, 3))
    ]
    yield (
        f"replay, {len(long):,} jobs",
        costs[1],
        f"as many at {len(short):,} jobs' cost",
        costs[0] * len(long) / len(short),
    )


def graphs() -> Iterator[Row]:
    """Run ever larger graphs; fit the exponent of CPU time over stages and edges; see `tools/growth.py`."""
    counts = (64, 128, 256)
    for strategy in ("per-stage", "chained", "asa", "asa-naive", "asa-plan", "elastic"):
        for shape in ("chain", "layers"):
            sizes, seconds = zip(*measured(shape, strategy, counts, 60.0), strict=True)
            yield (
                f"{strategy}, {shape} of {counts[len(sizes) - 1]}: exponent {exponent(sizes, seconds):.2f}",
                seconds[-1],
                "as many stages and edges at the least graph's cost",
                seconds[0] * sizes[-1] / sizes[0],
            )


def estimator() -> Iterator[Row]:
    """Compare predicting and observing with keeping the last wait in a variable."""
    rng = np.random.default_rng(0)
    waits = rng.choice([100.0, 150.0, 5000.0], 1000).tolist()
    learner = Asa("tuned", seed=1)

    def learn() -> None:
        for wait in waits:
            learner.observe(wait, learner.predict())

    def remember() -> None:
        last = 0.0
        for wait in waits:
            _ = last
            last = wait

    yield "tuned ASA, predict + observe", best(learn) / 1000, "last wait", best(remember) / 1000


def reading() -> Iterator[Row]:
    """Compare reading a log with splitting its lines, and measure a whole simulation of it."""
    rows = 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.swf"
        table = PRESETS["hpc2n"].generate(120 * 86400, 1)
        table = JobTable(*(column[:rows] for column in (table.submit, table.run, table.request, table.cores)))
        write_swf(path, table, cores=PRESETS["hpc2n"].machine.cores)
        text = path.read_text()
        yield (
            f"reading {len(table):,} lines",
            best(lambda: read_swf(path), 3),
            "split() of each",
            best(lambda: [row.split() for row in io.StringIO(text)] and None, 1),
        )
        code = (
            "import re, sys; from asa.cli import main; sys.argv = ['asa', 'simulate', sys.argv[1], '--json']\n"
            "try: main()\n"
            "except SystemExit: pass\n"
            "sys.stderr.write('\\nmost: ' + re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])"
        )
        begun = spent_s()
        done = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
        whole = spent_s() - begun
        columns = (table.submit, table.run, table.request, table.cores)
        loop = best(lambda: replay(*columns, PRESETS["hpc2n"].machine.cores), 2)
        yield (
            f"asa simulate of it, {int(done.stderr.partition('most: ')[2].split()[0]) / 1024:.0f} MiB at most",
            whole,
            "its event loop",
            loop,
        )


def run() -> Iterator[Row]:
    """Compare a run of Montage in `asa compare`, and a fork of its world, with the warm-up that all runs share."""
    flow, strategy = montage(112), load_strategy("chained")
    site = SimulatedSite("hpc2n")
    site.prepare([1])
    warm_up = best(lambda: (site._worlds.clear(), site.prepare([1])), 3)
    sites = [("hpc2n", site, "its warm-up", warm_up)]
    log = Path(os.environ.get("ASA_DATA", ROOT.parent / "shared" / "data")) / "swf" / "HPC2N-2002-2.2-cln.swf.gz"
    for scheduler in ("easy", "multifactor") if log.is_file() else ():
        site = SimulatedSite(trace=log, scheduler=scheduler)
        begun = spent_s()
        site.prepare(range(20))
        took = spent_s() - begun
        sites.append((f"{len(site.trace.table):,} jobs, {scheduler}", site, "20 warm-ups in one pass", took))
    for name, where, beside, cost in sites:
        opened = best(lambda w=where: w.open(1), 20)
        yield f"a run of Montage, {name}", best(lambda w=where: run_all(w.open(1), [Run(flow, strategy)])), beside, cost
        yield "  a fork of its world", opened, beside, cost


def waits() -> Iterator[Row]:
    """Predict, submit and learn a job, in a steady state, compared with the minimum that any estimator could do."""
    rng = np.random.Generator(np.random.PCG64(1))
    count, lag = 20_000, 50
    submits = np.cumsum(rng.exponential(60.0, count)).tolist()
    shapes = list(
        zip(
            rng.choice([1, 4, 16, 64, 256], count).tolist(),
            rng.choice([600.0, 7200.0, 86400.0], count).tolist(),
            strict=True,
        )
    )
    jobs = [
        QueuedJob(at, cores, walltime_s, f"u{user}")
        for at, (cores, walltime_s), user in zip(submits, shapes, rng.integers(0, 50, count).tolist(), strict=True)
    ]
    seen = [exactly(wait) for wait in (10 ** rng.normal(3, 1, count)).tolist()]

    def live(estimator: WaitEstimator) -> None:
        tickets = []
        for place, job in enumerate(jobs):
            tickets.append(estimator.submitted(job, estimator.predict(job)))
            if place >= lag:
                estimator.observe(tickets[place - lag], seen[place - lag])

    def plain() -> None:
        last: dict[tuple[int, float], float] = {}
        told = []
        for place, job in enumerate(jobs):
            told.append(last.get((job.cores, job.walltime_s), 600.0))
            if place >= lag:
                was = jobs[place - lag]
                last[was.cores, was.walltime_s] = seen[place - lag].wait_s

    simple = best(plain) / count
    for name in ("asa", "asa-tuned", "last", "qbets"):
        make = plugins.load("asa.estimators", name)
        live(make(Surroundings()))
        yield (
            f"{name}: predict and observe",
            best(lambda m=make: live(m(Surroundings())), 3) / count,
            "last wait, plain",
            simple,
        )
    rows = len(jobs)
    history = JobHistory(
        submit_s=np.array(submits),
        wait_s=np.array([observation.wait_s for observation in seen]),
        cores=np.array([cores for cores, _ in shapes]),
        walltime_s=np.array([walltime_s for _, walltime_s in shapes]),
        started=np.ones(rows, dtype=np.bool_),
    )
    # without those that see the queue, and those that fit trees on another core meanwhile
    all_but_queue = {name: make for name, make in installed().items() if "boost" not in name}
    taken = best(lambda: evaluate({"made up": history}, all_but_queue), 1)
    yield f"evaluating {len(all_but_queue)} estimators, 200,000 jobs", taken * 200_000 / rows, "what it may take", 60.0


def planning() -> Iterator[Row]:
    """Plan the rest of a chain, with waits that a bank predicts."""
    rng = np.random.default_rng(0)
    bank = WaitBank(machine_cores=1000)
    for i in range(500):
        job = QueuedJob(600.0 * i, int(rng.choice([1, 28, 112])), float(rng.integers(300, 36_000)), system="x")
        bank.observe(bank.submitted(job), exactly(float(rng.exponential(3000))))
    site = Capabilities("x", 1000, 28, age_accrues=False, shrink_by=28)
    six = tuple(RunAt(28 * 2**n, 3600.0 / 2**n + 300.0) for n in range(6))
    for count, shapes, most_s in ((9, None, 0.05), (50, None, 0.05), (50, six, 0.2)):
        widths = rng.choice([1, 28, 56, 112], count).tolist()
        flow = Workflow("chain", [_stage(i, cores, shapes) for i, cores in enumerate(widths)])
        state = RunState("bench", flow, site, "bench")

        def job_of(names: tuple[str, ...], state: RunState = state) -> QueuedJob:
            return queued(ask_of(state, names), site, 1e6, bank.user)

        forecast = LearnedForecast(bank, job_of)
        seconds = best(lambda: look_ahead(state.view(1e6), forecast), 5)  # noqa: B023 - it is called at once
        of = f"{count} stages{f' of {len(shapes)} shapes' if shapes else ''}"
        yield f"a plan for a chain of {of}", seconds, "what one of 50 may take", most_s


def _stage(place: int, cores: int, shapes: tuple[RunAt, ...] | None) -> Stage:
    """Make a stage of a chain, with one shape or several."""
    after = (f"s{place - 1}",) if place else ()
    if shapes is None:
        return Stage(f"s{place}", cores=cores, walltime_s=600.0 + 60 * place, after=after)
    own, moldable = shapes[0], Moldable(tuple(one.width for one in shapes), shapes)
    asked_s = 2 * own.run_s
    return Stage(
        f"s{place}", cores=own.width, walltime_s=asked_s, expected_run_s=own.run_s, after=after, moldable=moldable
    )


def planner() -> Iterator[Row]:
    """Measure OpenCCS's planner on a cluster like the paper's, compared with the paper; `asa ccs bench` does more."""
    plan, source = filled(5000), requests(2)
    more = [next(source) for _ in range(200)]
    seconds = best(lambda: [plan.cluster.find(plan.cluster.prepare(request), 0) for request in more], 5) / len(more)
    yield "a place in a plan of 5,000 jobs on 616 nodes", seconds, "the paper's, 100 a second", 0.01
    now, ending = 60, [job for job in plan.jobs.values() if job.phase is JobPhase.RUNNING][:1]
    plan.end(ending[0].id, now=now)
    waiting = sum(job.phase is JobPhase.PLANNED for job in plan.jobs.values())
    seconds = best(lambda: plan.backfill(now=now), 1) / waiting
    yield "looking for an earlier place of one that waits", seconds, "the paper's, 500 a second", 0.002


def windows() -> Iterator[Row]:
    """Measure BBSched on a workload like Cori's: its solver on full windows, and passes; cf. `asa bbsched bench`."""
    workload = load_workloads(["cori-s4"], days=31)["cori-s4"]
    problems = fullest(harvest(workload))
    seconds = best(lambda: [Exact().solve(problem) for problem in problems]) / len(problems)
    yield "the exact front of a window of 20", seconds, "what it may take", 0.005
    whole, jobs = workload.table, 1000
    table = JobTable(*(column[:jobs] for column in (whole.submit, whole.run, whole.request, whole.cores)))
    load = make_load(workload.system, table, {name: asked[:jobs] for name, asked in workload.demands.items()})

    def scheduled(scheduler: Any) -> GeneralCore:
        core = GeneralCore(load, scheduler, now=0)
        core.run(NEVER - 1)
        return core

    passes = len(np.unique([table.submit, scheduled(Policy()).start + table.run]))
    ours, easy = (
        best(lambda m=make: scheduled(m()), 3) / passes
        for make in (lambda: WindowScheduler(workload.system, BBSched()), Policy)
    )
    yield "a pass of BBSched, jobs of Cori", ours, "a pass of EASY", easy


def imports() -> Iterator[Row]:
    """Compare `import asa` with `import numpy`, and quick commands with their budgets, in CPU time."""
    python, asa = sys.executable, str(Path(sys.executable).with_name("asa"))
    yield "import asa", cpu([python, "-c", "import asa"]), "import numpy", cpu([python, "-c", "import numpy"])
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        budgets.prepare(place)
        taken_s, numpy_s = budgets.measured(budgets.COMMANDS, place, 7)
        for words, times in budgets.COMMANDS.items():
            yield f"asa {words}", taken_s[words], f"its budget, {times} times import numpy", times * numpy_s
        model = PRESETS["hpc2n"]
        write_swf(place / "log.swf.gz", model.generate(8 * 86400, 1), cores=model.machine.cores)
        simulated = cpu([asa, "simulate", "log.swf.gz"], place)
        yield "asa simulate log.swf.gz", simulated, "import numpy", numpy_s


def fans() -> Iterator[Row]:
    """Run fans of `true` on this machine, in CPU time, compared with xargs; on Slurm: `tools/slurm_cost.py --fan`."""
    asa = str(Path(sys.executable).with_name("asa"))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for count in (10, 100):
            stages = (
                f'[[stage]]\nname = "s{n}"\ncores = 1\nwalltime = "1min"\ncommand = "true"\n' for n in range(count)
            )
            (place / "fan.toml").write_text('name = "fan"\n' + "".join(stages))
            plain = cpu(["sh", "-c", f"seq {count} | xargs -P 2 -I N sh -c true"], place)
            run = [asa, "run", "fan.toml", "--backend", "local", "--strategy"]
            own_s, *predicting_s = (
                cpu([*run, name], place, 3, budgets.at_home_in(place)) for name in ("per-stage", "asa", "asa-plan")
            )
            yield f"a fan of {count}, local", own_s, "xargs", plain
            for name, taken_s in zip(("asa", "asa-plan"), predicting_s, strict=True):
                yield (
                    f"  by {name}",
                    taken_s,
                    f"its budget, {budgets.PREDICTING:g} times per-stage",
                    budgets.PREDICTING * own_s,
                )


def tasks() -> Iterator[Row]:
    """Run short tasks as a list in one job and as a bag of two, in CPU time, compared with each peer that is found.

    Peers are those that the Python in `ASA_PEERS` can import, by default this one; `tools/tasks_cost.py` has the rest.
    """
    count = 1000
    taken_s = tasks_cost.measured(count, 1, os.environ.get("ASA_PEERS", sys.executable))
    for name in tasks_cost.JOBS:
        for peer in ("a loop of sh", "xargs", *tasks_cost.PEERS):
            if peer in taken_s:
                yield f"{count:,} tasks, {name.removeprefix('asa, ')}", taken_s[name], peer, taken_s[peer]


def banks() -> Iterator[Row]:
    """Learn a log of 200,000 jobs, learn it again, and predict from what was learned, in CPU time."""
    asa, count = str(Path(sys.executable).with_name("asa")), 200_000
    rng = np.random.default_rng(0)
    columns = zip(
        np.cumsum(rng.exponential(60.0, count)).astype(int).tolist(),
        (10 ** rng.normal(3, 1, count)).astype(int).tolist(),
        rng.choice([1, 4, 16, 64], count).tolist(),
        rng.integers(0, 50, count).tolist(),
        strict=True,
    )
    rows = (
        f"{job} {submit} {wait} 600 {cores} -1 -1 {cores} 3600 -1 1 {user} 1 1 1 1 -1 -1"
        for job, (submit, wait, cores, user) in enumerate(columns)
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "log.swf").write_text("\n".join(["; MaxProcs: 1024", *rows, ""]))
        variables = {"ASA_BANK": str(place / "bank"), "XDG_CACHE_HOME": folder, "ASA_COMPILE": "no"}
        learn = [asa, "learn", "--from", "log.swf", "--system", "x"]
        predict = [asa, "predict", "--cores", "4", "--walltime", "1h", "--system", "x", "--bank-only"]
        taken_s = cpu(learn, place, 1, variables)
        yield f"asa learn of {count:,} jobs, a job", taken_s / count, "what it may take", 20e-6
        yield "  of the same file again", cpu(learn, place, 3, variables), "what it may take", 1.0
        yield "  what it then learns in the background", cpu(predict, place, 1, variables), "asa learn", taken_s
        yield "  asa predict after that", cpu(predict, place, 3, variables), "what it may take", 1.0


def memory() -> Iterator[Row]:
    """Peak of `asa worth` on a long log, in bytes, with all compiled; of a client: `tools/slurm_cost.py --memory`."""
    asa, count = str(Path(sys.executable).with_name("asa")), 250_000
    rng = np.random.default_rng(0)
    run = np.clip(10 ** rng.normal(3, 0.7, count), 60, 86_400).astype(np.int64)
    columns = np.cumsum(rng.exponential(60.0, count)).astype(np.int64), run, 2 * run, rng.choice([1, 4, 16, 64], count)
    cores = 1024
    table = at_load(0.9, JobTable(*columns), cores)
    start = replay(table.submit, table.run, table.request, table.cores, cores)
    users = rng.integers(0, 50, count).astype(np.int32)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        waits_s = (start - table.submit).astype(np.int32)
        write_swf(place / "log.swf.gz", table, cores=cores, users=users, waits_s=waits_s, unix_start_s=10**9)
        worth = [asa, "worth", "montage", "--cores", "32", "--history", "log.swf.gz", "--jobs", "2", "--moments"]
        variables = budgets.at_home_in(place)
        budgets.cpu_s([*worth, "2"], place, variables)  # what has to be compiled is
        taken = budgets.peak_bytes([*worth, "6"], place, variables)
        yield f"asa worth, {count:,} jobs, two processes", taken, "its budget", budgets.WORTH_BYTES


def first_answers() -> Iterator[Row]:
    """Commands with nothing compiled yet, and with all compiled, against `import numpy`: CPU time."""
    python, asa = sys.executable, str(Path(sys.executable).with_name("asa"))
    numpy = cpu([python, "-c", "import numpy"])
    here, centre = "--backend local", "--backend simulated --option system=hpc2n"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "flow.toml").write_text(
            'name = "f"\n[[stage]]\nname = "a"\ncores = 1\nwalltime = "1min"\ncommand = "true"\n'
        )
        compiled = {"NUMBA_CACHE_DIR": str(place / "compiled"), "ASA_COMPILE": "no"}
        cpu([python, "-m", "asa.estimators.compile_all"], place, 1, compiled)
        for command in (
            f"run flow.toml --dry-run {here}",
            f"plan flow.toml {here}",
            f"run flow.toml {here}",
            f"predict --cores 1 --walltime 1min {here}",
            f"run flow.toml --dry-run {centre}",
            f"plan flow.toml {centre}",
            f"run flow.toml {centre}",
            f"predict --cores 1 --walltime 1min {centre}",
            "compare flow.toml",
        ):
            for what, variables in (
                ("nothing compiled", compiled | {"NUMBA_CACHE_DIR": tempfile.mkdtemp(dir=folder)}),
                ("all compiled", compiled),
            ):
                words = [asa, *command.split()]
                took = cpu(words, place, 1, variables | {"ASA_BANK": str(place / "bank")})
                yield f"asa {command}, {what}", took, "import numpy", numpy


def cpu(
    command: list[str], folder: Path | None = None, times: int = 5, variables: Mapping[str, str] | None = None
) -> float:
    """CPU time of the cheapest of some runs of a command, in seconds, with its modules compiled to bytecode."""
    return min(budgets.cpu_s(command, folder, variables) for _ in range(times))


def main() -> None:
    """Run all benchmarks, and print each row as it comes."""
    console = Console(width=150, soft_wrap=True, highlight=False)
    console.print("CPU time of hot paths, the least of some tries; that of a reference; how many times as fast\n")
    benches: tuple[Callable[[], Iterator[Row]], ...] = (
        schedules,
        growth,
        reading,
        run,
        graphs,
        estimator,
        waits,
        planning,
        planner,
        windows,
        imports,
        fans,
        tasks,
        banks,
        first_answers,
        memory,
    )
    for bench in benches:
        show = _megabytes if bench is memory else _show
        for what, ours, beside, theirs in bench():
            ratio = f"{theirs / ours:.3g}"
            console.print(f"{what:<60} {show(ours):>8}   {beside:<52} {show(theirs):>8} {ratio:>8}", markup=False)


def _megabytes(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:.0f} MB"


def _show(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


if __name__ == "__main__":
    main()
