"""How the client's CPU time grows with the graph: for every strategy, on chains, layers, sparse graphs and fans.

    python tools/growth.py                              everything, on a simulator: some minutes
    python tools/growth.py --on unaged                  where no job gains priority while a dependency keeps it back
    python tools/growth.py --on local --to 256          on this computer's queue, by `asa run`
    python tools/growth.py --on slurm --from 1000 --to 1000 --shapes layers    on Slurm's real daemons, by its commands
    python tools/growth.py --strategies chained --shapes layers --from 500 --to 2000

A row has the CPU seconds at each size, milliseconds a stage at the largest, and the exponent: the slope of the seconds'
logarithm over that of stages and edges, for the larger half of the sizes. 1 means that twice the graph takes twice as
long. A strategy may look at the whole graph after each event; then the exponent is 2 for chains, and less for wide
graphs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from asa.backends.simulated import SimulatedSite
from rich.console import Console
from rich.table import Table

from asa import WaitBank
from asa.errors import AsaError
from asa.runner import Run, run_all
from asa.strategies import load_strategy
from asa.workflow import Stage, Workflow

STRATEGIES = ("big-job", "per-stage", "chained", "asa", "asa-paper", "asa-naive", "asa-plan", "elastic")
SYSTEM = "hpc2n"
DEPTH = 5
MAX_BEFORE = 3


class TooLongError(Exception):
    """A run took more CPU time than allowed."""


def chain(stages: int) -> Workflow:
    """Make stages one after the other."""
    return Workflow("chain", [_stage(i, [i - 1] if i else []) for i in range(stages)])


def layers(stages: int) -> Workflow:
    """Make five layers; each stage follows all stages of the layer before."""
    width = -(-stages // DEPTH)
    before = [range((i // width - 1) * width, i // width * width) if i >= width else () for i in range(stages)]
    return Workflow("layers", [_stage(i, those) for i, those in enumerate(before)])


def sparse(stages: int) -> Workflow:
    """Make stages that each follow up to three earlier ones, chosen at random."""
    chance = random.Random(stages)
    before = [chance.sample(range(i), min(i, chance.randint(0, MAX_BEFORE))) for i in range(stages)]
    return Workflow("sparse", [_stage(i, those) for i, those in enumerate(before)])


def fan(stages: int) -> Workflow:
    """Make stages that may all run at once."""
    return Workflow("fan", [_stage(i, []) for i in range(stages)])


SHAPES: dict[str, Callable[[int], Workflow]] = {"chain": chain, "layers": layers, "sparse": sparse, "fan": fan}


def _stage(place: int, before: Sequence[int]) -> Stage:
    """Make a stage; widths and times vary, so that predictions differ."""
    after = tuple(f"s{other}" for other in before)
    return Stage(f"s{place}", cores=1 + place % 2, walltime_s=300, expected_run_s=60 + place % 7, after=after)


def size(flow: Workflow) -> int:
    """Return the number of stages and edges."""
    return len(flow.stages) + sum(len(stage.after) for stage in flow.stages.values())


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of log seconds over log sizes, by least squares; nan for fewer than two points."""
    points = [(math.log(n), math.log(s)) for n, s in zip(sizes, seconds, strict=True)]
    if len(points) < 2:
        return math.nan
    mean_x, mean_y = (sum(column) / len(points) for column in zip(*points, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


# ---------------------------------------------------------------------- where it runs


@cache
def _site(*, age_accrues: bool) -> SimulatedSite:
    site = SimulatedSite(SYSTEM, age_accrues=age_accrues)
    site.prepare([1])
    # compiles the code that is compiled at its first use
    run_all(site.open(1), [Run(chain(2), load_strategy("asa"), bank=WaitBank(seed=1))])
    return site


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def on_simulator(flow: Workflow, strategy: str, max_s: float, *, age_accrues: bool = True) -> float:
    """Return the CPU seconds of a run on a simulated machine, including those of the simulation.

    Raises
    ------
    TooLongError
        It takes longer than `max_s`.
    """
    world = _site(age_accrues=age_accrues).open(1)
    bank = WaitBank(seed=1, machine_cores=world.capabilities.max_cores)
    flow = Workflow(flow.name, flow.stages.values())
    with _at_most(max_s):
        begun_s = time.process_time()
        [result] = run_all(world, [Run(flow, load_strategy(strategy), bank=bank)])
        took_s = time.process_time() - begun_s
    assert result.outcome == "completed", result.reason
    return took_s


def on_local(flow: Workflow, strategy: str, max_s: float) -> float:
    """Return the CPU seconds of a whole `asa run` on this computer's queue; the jobs do nothing.

    Raises
    ------
    TooLongError
        It takes longer than `max_s`.
    """
    from local_queue import Queue

    with tempfile.TemporaryDirectory() as folder:
        queue = Queue(Path(folder), cores=8)
        try:
            settings = ("cores=8", f"spool={queue.spool.root.parent}")
            return _by_command(flow, strategy, max_s, Path(folder), "local", settings)
        finally:
            queue.close()


def on_slurm(flow: Workflow, strategy: str, max_s: float) -> float:
    """Return the CPU seconds of `asa run` on real Slurm daemons, including Slurm's commands; the jobs do nothing.

    Raises
    ------
    TooLongError
        It takes longer than `max_s`.
    """
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from slurm_testbed import Testbed

    os.umask(0)  # the cluster has another user, who must write here
    testbed = Testbed(Path(f"/tmp/growth{os.getpid()}"))
    testbed.start()
    try:
        settings = (f"prefix={' '.join(testbed.prefix)}", "partition=normal", "poll=1s", "max_poll=10s")
        return _by_command(flow, strategy, max_s, testbed.folder("growth"), "slurm-cli", settings)
    finally:
        testbed.stop()


def _by_command(
    flow: Workflow, strategy: str, max_s: float, folder: Path, backend: str, settings: Sequence[str]
) -> float:
    """Return the CPU seconds of a whole `asa run`, and of the commands that it calls."""
    (folder / "flow.toml").write_text(_text(flow))
    environment = {**os.environ, "ASA_BANK": f"{folder}/bank", "ASA_SITES": str(folder), "ASA_RUNS": f"{folder}/runs"}
    command = [sys.executable, "-c", _TIMED, str(max_s), "run", "flow.toml", "--quiet", "--strategy", strategy]
    command += ["--backend", backend, *(word for setting in settings for word in ("--set", setting))]
    begun_s = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == -signal.SIGPROF:
        raise TooLongError
    assert done.returncode == 0, done.stderr
    own_s, called_s = map(float, done.stderr.split()[-2:])
    told = f"{own_s:.1f} s its own, {called_s:.1f} s of what it called, {time.monotonic() - begun_s:.0f} s in all"
    sys.stderr.write(f"{flow.name} of {len(flow.stages)}, {strategy}, {backend}: {told}\n")
    return own_s + called_s


_TIMED = """
import resource, signal, sys, time
from asa.cli import main
signal.setitimer(signal.ITIMER_PROF, float(sys.argv.pop(1)))
try:
    main()
finally:
    called = resource.getrusage(resource.RUSAGE_CHILDREN)
    sys.stderr.write(f"\\n{time.process_time()} {called.ru_utime + called.ru_stime}")
"""


def _text(flow: Workflow) -> str:
    stages = (
        f'[[stage]]\nname = "{stage.name}"\ncores = {stage.cores}\nwalltime = "5min"\nexpected = "1s"\n'
        f'after = {json.dumps(stage.after)}\ncommand = "true"\n'
        for stage in flow.stages.values()
    )
    return f'name = "{flow.name}"\n' + "".join(stages)


PLACES = {
    "simulator": on_simulator,
    "unaged": partial(on_simulator, age_accrues=False),
    "local": on_local,
    "slurm": on_slurm,
}


# ---------------------------------------------------------------------- the table


def measured(
    shape: str, strategy: str, counts: Sequence[int], max_s: float, where: str = "simulator"
) -> Iterator[tuple[int, float]]:
    """Yield the stages and edges, and the CPU seconds, of ever larger graphs, until one takes too long."""
    for count in counts:
        flow = SHAPES[shape](count)
        try:
            yield size(flow), PLACES[where](flow, strategy, max_s)
        except TooLongError:
            return


def main() -> None:
    """Measure what the command line asks for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--from", dest="least", type=int, default=64, help="stages of the smallest graph")
    parser.add_argument("--to", dest="most", type=int, default=1024, help="stages of the largest graph")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU time of a run at most")
    parser.add_argument("--on", choices=list(PLACES), default="simulator")
    asked = parser.parse_args()
    if unknown := set(asked.shapes.split(",")) - SHAPES.keys():
        parser.error(f"there are no graphs {', '.join(sorted(unknown))}; take of {', '.join(SHAPES)}")
    if not (1 <= asked.least <= asked.most and asked.seconds > 0):
        parser.error("a graph has a stage or more, the largest is no smaller than the smallest, and a run takes time")
    try:
        for strategy in asked.strategies.split(","):
            load_strategy(strategy)
    except AsaError as error:
        parser.error(str(error))
    counts = [asked.least]
    while 2 * counts[-1] <= asked.most:
        counts.append(2 * counts[-1])
    table = Table(title=f"CPU seconds of a run ({asked.on}), by the number of stages", title_justify="left")
    for heading in ("Graph", "Strategy", *map(str, counts), "ms a stage", "Stages + edges", "Exponent"):
        table.add_column(heading, justify="left" if heading in {"Graph", "Strategy"} else "right")
    for shape in asked.shapes.split(","):
        for strategy in asked.strategies.split(","):
            found = list(measured(shape, strategy, counts, asked.seconds, asked.on))
            cells = [f"{seconds:.2f}" for _, seconds in found]
            if len(found) < len(counts):
                cells.append(f"> {asked.seconds:g}")
            cells += [""] * (len(counts) - len(cells))
            larger = found[-max(len(found) // 2 + 1, 2) :]
            slope = exponent([n for n, _ in larger], [s for _, s in larger])
            each_ms = 1000 * found[-1][1] / counts[len(found) - 1] if found else math.nan
            last = f"{found[-1][0]:,}" if found else ""
            table.add_row(shape, strategy, *cells, f"{each_ms:.1f}", last, f"{slope:.2f}")
            sys.stderr.write(f"{shape} {strategy}: {' '.join(cells)}\n")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
