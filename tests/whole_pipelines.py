"""Real pipelines on data that are made up, so that results are checked: Montage, BLAST+, statistics of a long table.

    python tests/whole_pipelines.py                               # all three, small, on this computer
    python tests/whole_pipelines.py montage --size demo --strategies asa,chained
    python tests/whole_pipelines.py blast --backend simulated     # on a simulated centre, where nothing is computed
    python tests/whole_pipelines.py blast --backend slurm-cli --folder /shared/blast --set partition=short
    python tests/whole_pipelines.py montage blast --testbed       # on a throw-away cluster, another user on it

Each pipeline is a workflow file (montage/mosaic.toml, blast/search.toml, statistics/power.toml), which `asa run` takes
as well. Here its data are made, its commands run one after the other in a plain loop, and then by asa under each
strategy. Each result is held against what is known of the data, and against the loop's: byte for byte, but for the
mosaic of mProject. That program may give another value at a pixel or two of a tile's edge, depending on where it lies
in memory: of 150 runs on one tile, 109 gave one image and 41 another; without randomised addresses (`setarch -R`) all
gave the same, and so did those of mProjectPP, which the small size takes. Nothing that is compared has dates in it.

Stages are expected to run as long as in the loop, on as many cores as there really are: the cores of a throw-away
cluster are made up.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from asa.backend import Backend
from asa.core import plugins
from asa.core.parallel import available_cores
from asa.errors import AsaError
from asa.metrics import RunMetrics, measure
from asa.runner import RunFolder, drive
from asa.runner.begin import plan_run
from asa.runner.local_stages import with_local_stages
from asa.sites import open_facility
from asa.spec import load_workflow
from asa.studies.compare.study import Comparison, compare
from asa.studies.compare.table import render
from asa.units import format_duration
from asa.workflow import Stage, Workflow

EXAMPLES = Path(__file__).parents[1] / "examples"
STRATEGIES = "big-job,per-stage,chained,asa,asa-naive"
SIMULATED, SEEDS = "simulated", 3
NODES, CORES_PER_NODE = 16, 28  # of a throw-away cluster
_PIXELS = 1e-4  # of a mosaic may differ

sys.path += [str(EXAMPLES / "montage"), str(Path(__file__).parents[1] / "tools")]
from fits import read_image, write_image  # noqa: E402 - from an example's folder

__all__ = ["PIPELINES", "likeness", "new_work", "read_image", "run_by_asa", "run_in_a_loop", "write_image"]


# ---------------------------------------------------------------------- what there is to run


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is to do: options for who makes the data, and parameters of the workflow."""

    data: tuple[str, ...]
    parameters: Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A workflow with data and a check.

    Parameters
    ----------
    flow
        The workflow's file; what makes the data and what checks the result lie beside it.
    maker, checker
        Their names.
    known, results
        Files by their names: what is known of the data, and what the workflow makes; the first is checked.
    tools
        Programs that it needs.
    package
        Where Debian has them.
    sizes
        By name.
    extras
        Files that the workflow runs.
    """

    flow: Path
    maker: str
    checker: str
    known: str
    results: tuple[str, ...]
    tools: tuple[str, ...]
    package: str
    sizes: Mapping[str, Size]
    extras: tuple[str, ...] = ()

    def missing(self) -> str:
        """Return which of its programs are not installed here; empty if none."""
        absent = ", ".join(tool for tool in self.tools if shutil.which(tool) is None)
        return f"{absent} not found: apt install {self.package}" if absent else ""

    def make_data(self, folder: Path, size: str) -> str:
        """Make its data; returns what was made, in words."""
        told = self._python(self.maker, str(folder), *self.sizes[size].data)
        for name in self.extras:
            shutil.copy(self.flow.parent / name, folder)
        return told.stdout.strip()

    def load(self, size: str, width: int, **parameters: str | int) -> Workflow:
        """Read the workflow, for a size, with other parameters if wanted."""
        return load_workflow(self.flow, {**self.sizes[size].parameters, "width": width, **parameters})

    def check(self, data: Path, work: Path) -> str:
        """Hold a result against what is known of the data; returns the verdict, which begins with "good" if it is."""
        return self._python(self.checker, str(data / self.known), str(work / self.results[0])).stdout.strip()

    def _python(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(self.flow.parent / script), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)


PIPELINES = {
    "montage": Pipeline(
        flow=EXAMPLES / "montage" / "mosaic.toml",
        maker="make_sky.py",
        checker="check_mosaic.py",
        known="sky.json",
        results=("mosaic.fits", "mosaic.png"),
        tools=(
            *("mImgtbl", "mMakeHdr", "mOverlaps", "mProject", "mProjectPP", "mDiffFit", "mDiff", "mFitplane"),
            *("mConcatFit", "mBgModel", "mBackground", "mAdd", "mShrink", "mViewer"),
        ),
        package="montage montage-gridtools",
        sizes={
            "small": Size(("--tiles=6", "--size=100"), {"tiles": 6, "project": "mProjectPP"}),
            "demo": Size(("--tiles=20", "--size=400"), {"tiles": 20}),
        },
    ),
    "blast": Pipeline(
        flow=EXAMPLES / "blast" / "search.toml",
        maker="make_sequences.py",
        checker="check_hits.py",
        known="planted.tsv",
        results=("best.tsv", "hits.tsv"),
        tools=("makeblastdb", "blastn"),
        package="ncbi-blast+",
        sizes={
            "small": Size(("--megabases=1", "--queries=200"), {"parts": 4}),
            "demo": Size(("--megabases=50", "--queries=8000"), {"parts": 16}),
        },
    ),
    "statistics": Pipeline(
        flow=EXAMPLES / "statistics" / "power.toml",
        maker="make_power.py",
        checker="check_summary.py",
        known="truth.json",
        results=("summary.json",),
        tools=("python3",),
        package="python3",
        sizes={
            "small": Size(("--rows=20000",), {"parts": 4}),
            "demo": Size((), {"parts": 16}),
        },
        extras=("power.py",),
    ),
}


# ---------------------------------------------------------------------- running


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one way of running a pipeline."""

    way: str
    metrics: RunMetrics | None
    makespan_s: float
    verdict: str
    likeness: str = ""
    reason: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it ran, is right, and is what the loop made."""
        return not self.reason and self.verdict.startswith("good") and not self.likeness.startswith("DIFFERS")


def new_work(data: Path, work: Path) -> Path:
    """Make a folder to work in, with the data in it."""
    work.mkdir(parents=True)
    for item in data.iterdir():
        (work / item.name).symlink_to(item.absolute())
    return work


def run_in_a_loop(flow: Workflow, work: Path) -> dict[str, float]:
    """Run all commands of a workflow one after the other; returns how many seconds each stage took.

    Raises
    ------
    subprocess.CalledProcessError
        One of them failed.
    """
    lasted = {}
    for name in flow.order:
        stage, began_s = flow.stages[name], time.monotonic()
        for command in commands_of(stage, work):
            environment = {**os.environ, **dict(stage.environment)}
            shell = ["sh", "-c", "--", command]
            subprocess.run(shell, cwd=work, env=environment, check=True, capture_output=True)
        lasted[name] = time.monotonic() - began_s
    return lasted


def commands_of(stage: Stage, work: Path) -> list[str]:
    """Return what a stage runs."""
    if stage.tasks_file:
        return (work / stage.tasks_file).read_text().splitlines()
    return list(stage.tasks) or [stage.script or stage.command]


def expecting(flow: Workflow, lasted: Mapping[str, float]) -> Workflow:
    """Let a workflow expect run times like those of the loop, on as many cores as there really are."""
    real = available_cores()

    def told(stage: Stage) -> Stage:
        expected_s = lasted[stage.name] / min(stage.cores or 1, real)
        return replace(stage, expected_run_s=min(max(expected_s, 0.5), stage.walltime_s))

    return Workflow(flow.name, [told(stage) for stage in flow.stages.values()])


def run_by_asa(flow: Workflow, work: Path, strategy: str, backend: str, settings: Mapping[str, Any]) -> Result:
    """Run a workflow under a strategy, as `asa run` does; its result is not looked at yet."""
    with chdir(work), ExitStack() as held:
        opened = open_facility(backend, None, settings)
        look = opened.facility.connect(work / "look")
        held.callback(release, look)
        run_name = f"{flow.name}-{strategy}"
        plan = plan_run(flow, opened, look.capabilities, strategy=strategy, name=run_name, bank=work / "bank")

        def connect(run: RunFolder) -> Backend:
            world = with_local_stages(plan.backend, plan.stages, opened.facility).connect(run.path, sleep=run.sleep)
            held.callback(release, world)
            return world

        result = drive(RunFolder.create(work / "runs", plan), connect)
    metrics = measure(flow, result.records) if result.outcome == "completed" else None
    return Result(strategy, metrics, metrics.makespan_s if metrics else float("nan"), "", "", result.reason)


def release(backend: Backend) -> None:
    """Close a backend, if that is of any use to it."""
    if (close := getattr(backend, "close", None)) is not None:
        close()


# ---------------------------------------------------------------------- results


def likeness(pipeline: Pipeline, reference: Path, work: Path) -> str:
    """Compare results with the loop's; returns how alike they are, which begins with "DIFFERS" if they are not."""
    unlike = [name for name in pipeline.results if (reference / name).read_bytes() != (work / name).read_bytes()]
    if not unlike:
        return "the same bytes"
    if not unlike[0].endswith(".fits"):
        return f"DIFFERS: {', '.join(unlike)}"
    count, share = differing_pixels(reference / unlike[0], work / unlike[0])
    return f"the same but for {count} pixels" if share < _PIXELS else f"DIFFERS: {100 * share:.2g} % of the pixels"


def differing_pixels(one: Path, other: Path) -> tuple[int, float]:
    """Count the pixels in which two images differ; also tells which share of all that is."""
    (first, _), (second, _) = read_image(one), read_image(other)
    if first.shape != second.shape:
        return first.size, 1.0
    differ = ~np.isclose(first, second, rtol=1e-9, atol=1e-9, equal_nan=True)
    return int(differ.sum()), float(differ.mean())


def show(console: Console, title: str, results: Sequence[Result]) -> None:
    """Print what came of all ways."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("")
    for heading in ("Makespan s", "TWT s", "Core-h", "OH"):
        table.add_column(heading, justify="right")
    table.add_column("Beside the loop's result")
    for result in results:
        metrics = result.metrics
        numbers = ("", "", "")
        if metrics is not None:
            numbers = (f"{metrics.twt_s:.1f}", f"{metrics.core_hours:.3f}", f"{metrics.overhead_core_hours:.3f}")
        table.add_row(result.way, f"{result.makespan_s:.1f}", *numbers, result.likeness)
    console.print(table)
    for verdict in dict.fromkeys(result.verdict for result in results if result.verdict):
        ways = [result.way for result in results if result.verdict == verdict]
        colour = "green" if verdict.startswith("good") else "red"
        console.print(f"  {', '.join(ways)}: {verdict}", style=colour, soft_wrap=True)
    for result in results:
        if result.reason:
            console.print(f"  {result.way}: {result.reason}", style="red")
    console.print()


# ---------------------------------------------------------------------- where to run


@dataclass(frozen=True, slots=True)
class Place:
    """Where pipelines run: a backend, its settings, and a folder that its jobs see."""

    backend: str
    settings: Mapping[str, Any]
    folder: Path
    cluster: Any = None

    @contextmanager
    def competition(self, seed: int) -> Iterator[None]:
        """Have the other user's jobs in the queue, the same ones each time, if there is one."""
        if self.cluster is None:
            yield
            return
        from slurm_strategies import OtherUser  # which needs root and Slurm
        from slurm_testbed import until

        self.cluster.empty()
        other = OtherUser(self.cluster, seed)
        other.start()
        try:
            waiting = ("squeue", "-h", "-t", "PD", "-u", "root")
            until(lambda: self.cluster.run_as_root(*waiting, check=False).strip(), what="a full queue")
            yield
        finally:
            other.over.set()
            other.join()


@contextmanager
def place_of(given: argparse.Namespace) -> Iterator[Place]:
    """Find or make the place that was asked for."""
    settings = given.settings
    if not given.testbed:
        folder = given.folder or Path("out") / f"pipelines-{time.strftime('%Y%m%d-%H%M%S')}"
        yield Place(given.backend, settings, folder.absolute())
        return
    with testbed(given.release) as (cluster, reached):
        yield Place("slurm-rest", reached | settings, cluster.folder("pipelines"), cluster)


@contextmanager
def testbed(release: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Start a throw-away cluster; gives it, and the settings by which it is reached."""
    from portable_tools import bring
    from slurm_testbed import Testbed

    os.umask(0)  # the cluster's user is not this script's, and writes into its folders
    root = Path(tempfile.mkdtemp(prefix="asa-", dir="/tmp"))  # a socket's path is short
    root.chmod(0o755)
    # jobs of one priority go by their numbers: who asks early is early, also while it depends on another
    rule = "PriorityType=priority/basic"
    cluster = Testbed(root, release=release, nodes=NODES, cores_per_node=CORES_PER_NODE, conf=rule)
    try:
        cluster.start()
        pace = {"poll": "1s", "max_poll": "5s"}
        reached = {"url": f"unix://{cluster.socket}", "system": "testbed", "age_accrues": True, **pace}
        if cluster.tree:  # a Debian of its own, which has none of the programs
            tools = {tool for pipeline in PIPELINES.values() if not pipeline.missing() for tool in pipeline.tools}
            reached["environment"] = {"PATH": f"{bring(tools, cluster.folder('tools'))}:/usr/bin:/bin"}
        yield cluster, reached
    finally:
        cluster.stop()


# ---------------------------------------------------------------------- the study


def run_pipeline(console: Console, name: str, given: argparse.Namespace, place: Place) -> list[Result]:
    """Run a pipeline in every way."""
    pipeline, root = PIPELINES[name], place.folder / name
    data = root / "data"
    made = pipeline.make_data(data, given.size)
    console.print(f"[bold]{name}[/bold]: {made}", soft_wrap=True)
    width = given.width or (available_cores() if place.backend == "local" else CORES_PER_NODE)
    flow = pipeline.load(given.size, width)
    reference = new_work(data, root / "loop")
    lasted = run_in_a_loop(flow, reference)
    flow = expecting(flow, lasted)
    results = [Result("a plain loop", None, sum(lasted.values()), pipeline.check(data, reference))]
    for strategy in given.strategies.split(","):
        work = new_work(data, root / strategy)
        with place.competition(given.seed):
            result = run_by_asa(flow, work, strategy, place.backend, place.settings)
        if not result.reason:
            verdict = pipeline.check(data, work)
            result = replace(result, verdict=verdict, likeness=likeness(pipeline, reference, work))
        results.append(result)
    return results


def simulate(console: Console, name: str, given: argparse.Namespace) -> None:
    """Run a pipeline's stages as a model, on a simulated queue: nothing is computed."""
    settings = {"system": "hpc2n", **given.settings}
    site = plugins.load("asa.backends", SIMULATED)(**settings)
    runs = compare(
        Comparison(
            make_workflow=partial(PIPELINES[name].load, given.size),
            site=site,
            cores=(given.width or 112,),
            strategies=tuple(given.strategies.split(",")),
            seeds=tuple(range(given.seed, given.seed + SEEDS)),
        ),
        jobs=1,
    )
    console.print(render(runs, seeds=SEEDS))


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pipelines", nargs="*", metavar="PIPELINE", help=f"of {', '.join(PIPELINES)}; all if none")
    parser.add_argument("--backend", default="local", help="local, slurm-cli, slurm-rest or simulated")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="of it")
    parser.add_argument("--folder", type=Path, help="a new one that jobs see. [out/pipelines-...]")
    parser.add_argument("--strategies", default=STRATEGIES)
    parser.add_argument("--size", choices=("small", "demo"), default="small")
    parser.add_argument("--width", type=int, help="cores of the wide stages")
    parser.add_argument("--seed", type=int, default=1, help="of the queue")
    parser.add_argument("--testbed", action="store_true", help="start a cluster of real Slurm daemons; needs root")
    parser.add_argument("--release", default="22.05", help="of Slurm with --testbed; others than 22.05 from a tree")
    given = parser.parse_args(words)
    if unknown := [name for name in given.pipelines if name not in PIPELINES]:
        parser.error(f"there is no pipeline {unknown[0]!r}")
    if wrong := [setting for setting in given.settings if "=" not in setting]:
        parser.error(f"--set {wrong[0]}: is not KEY=VALUE")
    given.settings = dict(setting.split("=", 1) for setting in given.settings)
    given.pipelines = given.pipelines or list(PIPELINES)
    return given


def main() -> int:
    """Run what was asked for."""
    given, console = arguments(), Console(highlight=False)
    if given.backend == SIMULATED:
        for name in given.pipelines:
            simulate(console, name, given)
        return 0
    absent = {name: why for name in given.pipelines if (why := PIPELINES[name].missing())}
    for name, why in absent.items():
        console.print(f"{name} is not run: {why}")
    names = [name for name in given.pipelines if name not in absent]
    is_good = True
    if not names:
        return 0
    began_s = time.monotonic()
    with place_of(given) as place:
        where = place.backend if place.cluster is None else f"Slurm {place.cluster.version}, another user on it"
        for name in names:
            results = run_pipeline(console, name, given, place)
            show(console, f"{name} ({given.size}) on {where}", results)
            is_good &= all(result.is_good for result in results)
    console.print(f"All in {format_duration(time.monotonic() - began_s)}.", style="dim")
    return 0 if is_good else 1


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except AsaError as error:
        sys.exit(str(error))
