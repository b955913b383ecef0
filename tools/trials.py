"""Random trials of what asa promises, on real daemons: each stage runs once, and runs progress and end as they should.

Each trial draws a workflow, a cluster with another user, and faults, by its seed. Payloads leave marks that do not
depend on asa, and the verdict follows from these marks and from Slurm. Trials rotate over all requested combinations:

    python tools/trials.py --seeds 0-49 --version 22.05 --link rest --strategy asa-plan --jobs 3
    python tools/trials.py --seeds 0-349                 # every strategy, both releases, both links, this machine
    python tools/trials.py --seeds 7000-7184             # with scripts, SIGTERM, --fail-fast and more, as draw.py says
    python tools/trials.py --seeds 8000-8049 --strategy asa-plan    # with stages of several shapes, too
    python tools/trials.py --seeds 20000-20049 --link cli           # with stages that are submitted together
    python tools/trials.py --seeds 40000-40049 --version 22.05      # of stages that go to two clusters
    python tools/trials.py --seeds 9000-9499 --world hostile        # where a site does all to a client that sites do
    python tools/trials.py --seeds 9000-9049 --world absence,codes  # some of that, by its names in draw.WORLD
    python tools/trials.py --seeds 30000-30049              # where asa tick alone goes on with a third of the runs
    python tools/trials.py --seeds 40-60 --driven ticks     # all of them

`invalid`: a fault was outside of what is promised; `broken`: a promise was broken, and the evidence is kept below
--keep. It needs root, for its own clusters and small disks, and Slurm installed, as tests/slurm does.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# the tests start the daemons, and have replacements for them
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from slurm_testbed import RELEASES, missing
from trial.draw import SITES, STRATEGIES, WORLD, Trial, draw
from trial.faults import ENDS, suffer
from trial.hostile import show_late
from trial.operator import Operator
from trial.place import Cluster, Pair, Place
from trial.verdict import Verdict, judge

ASA = str(Path(sys.executable).with_name("asa"))
PLACES: list[Place] = []  # places of the trials that are running
POOLED = (("22.05", "cli"), ("", "local"))
"""Where jobs find this Python: another release has a tree of its own, and the REST daemon's user none of root's."""
SETTLES_S = 25.0  # time in which cancelled jobs leave the queue
COMPLETES_S = 180.0  # time in which Slurm notes the end of a job whose daemon missed the request to report it


def unable(trial: Trial) -> str:
    """Return why a trial cannot be made here; empty if it can."""
    if os.geteuid() != 0:
        return "small disks of its own need root"
    return missing(trial.version) if trial.version else ""


def try_one(trial: Trial, keep: Path | None = None) -> Verdict:
    """Make a trial in a place of its own, and judge it."""
    root = Path(f"/tmp/at{os.getpid() % 100000}-{trial.name.replace('.', '')}")
    place = (Pair if trial.is_pair else Cluster if trial.version else Place)(trial, root, ASA)
    began_s = time.monotonic()
    PLACES.append(place)
    try:
        try:
            place.start()
        except Exception as error:  # noqa: BLE001 - after any error, no trial was made
            return Verdict(trial, invalid=[f"its place did not start: {error}"])
        operator = Operator(trial, place)
        faults = [threading.Thread(target=suffer, args=(fault, operator), daemon=True) for fault in trial.faults]
        for fault in faults:
            fault.start()
        waited_for = [one for one, fault in zip(faults, trial.faults, strict=True) if fault.kind != ENDS]
        threading.Thread(
            target=lambda: ([one.join() for one in waited_for], operator.faults_over.set()), daemon=True
        ).start()
        if any(step.late_s for step in trial.steps):
            threading.Thread(target=show_late, args=(operator,), daemon=True).start()
        operator.operate()
        for fault in faults:
            fault.join()
        left = _settled(place)
        verdict = judge(operator, place.marks, left)
        verdict.took_s = time.monotonic() - began_s
        if keep is not None and verdict.word != "clean":
            _keep(keep / trial.name, operator, verdict)
        return verdict
    finally:
        PLACES.remove(place)
        place.stop()


def _settled(place: Place) -> list[str]:
    began_s = time.monotonic()
    if isinstance(place, Cluster):
        place.mend()
    while left := place.left():
        is_completing = isinstance(place, Cluster) and set(left) <= set(place.jobs("COMPLETING"))
        if time.monotonic() - began_s >= (COMPLETES_S if is_completing else SETTLES_S):
            break
        time.sleep(0.5)
    return left


def _keep(folder: Path, operator: Operator, verdict: Verdict) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    given = [f"*{step.name}.out" for step in operator.trial.steps if step.late_s]  # outputs that appear and disappear
    shutil.copytree(operator.place.work, folder / "work", ignore=shutil.ignore_patterns("home", *given))
    if operator.run is not None:
        shutil.copytree(operator.run, folder / "run", symlinks=True)
    for name, text in operator.place.told().items():
        (folder / name).write_text(text)
    lines = [*verdict.broken, *verdict.invalid, *verdict.noted, "", *map(str, operator.trial.faults), ""]
    lines += [f"{when_s:.2f} {what}: {more}" for when_s, what, more in operator.events]
    (folder / "verdict.txt").write_text("\n".join(lines) + "\n")
    (folder / "trial.json").write_text(json.dumps(operator.trial.told(), indent=1))
    (folder / "passes.json").write_text(json.dumps(operator.passes, indent=1))


# ---------------------------------------------------------------------- the command


def chosen(options: Any) -> list[Trial]:
    """Return the requested trials: each seed has one of the strategies and sites, in turn."""
    sites = [
        (version, link)
        for version, link in SITES
        if options.link in ("all", link) and (options.version == "all" or version in ("", options.version))
    ]
    if options.version != "all" and options.link == "all":
        sites = [site for site in sites if site[0]]
    strategies = STRATEGIES if options.strategy == "all" else tuple(options.strategy.split(","))
    world = worlds(options.world)
    pooled = () if world else POOLED  # its jobs are root's, as are strangers' jobs
    ways = [(site, strategy) for site in sites for strategy in strategies if strategy != "pool" or site in pooled]
    if not ways:
        raise SystemExit("trials.py: there is no such version with such a link")
    trials, ticks = [], {"as drawn": None, "ticks": True, "clients": False}[options.driven]
    for part in options.seeds.split(","):
        first, _, last = part.partition("-")
        for seed in range(int(first), int(last or first) + 1):
            (version, link), strategy = ways[seed % len(ways)]
            trials.append(draw(seed, version, link, strategy, world, ticks=ticks))
    return trials


def worlds(asked: str) -> tuple[str, ...]:
    """Read the names of a hostile world: `hostile` for all."""
    names = tuple(WORLD) if asked == "hostile" else tuple(name for name in asked.split(",") if name)
    if unknown := [name for name in names if name not in WORLD]:
        raise SystemExit(
            f"trials.py: there is no world {unknown[0]!r}; there are {', '.join(WORLD)}, and hostile for all"
        )
    return names


def matrix(verdicts: list[Verdict]) -> str:
    """Format the results of the trials, by strategy and site, with reasons."""
    cells: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        trial = verdict.trial
        cells[trial.strategy.partition(":")[0], f"{trial.version} {trial.link}".strip()].append(verdict)
    sites = sorted({site for _, site in cells})
    lines = ["clean/invalid/broken".ljust(22) + "".join(site.rjust(13) for site in [*sites, "all"])]
    for strategy in [*STRATEGIES, "asa-naive-hold", "all"]:
        row = [
            [
                one
                for key, many in cells.items()
                if strategy in (key[0], "all") and site in (key[1], "all")
                for one in many
            ]
            for site in [*sites, "all"]
        ]
        if row[-1]:
            counts = [
                "/".join(str(sum(one.word == word for one in many)) for word in ("clean", "invalid", "broken"))
                for many in row
            ]
            lines.append(strategy.ljust(22) + "".join(count.rjust(13) for count in counts))
    fired = Counter(kind for verdict in verdicts for kind in verdict.fired)
    lines += ["", "faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(fired.items()))]
    for verdict in sorted(verdicts, key=lambda one: one.trial.seed):
        if verdict.word != "clean":
            lines += [
                "",
                f"{verdict.word}: {verdict.trial.again}",
                *(f"    {why}" for why in (verdict.broken or verdict.invalid)[:4]),
            ]
            lines += [f"    with {fault}" for fault in verdict.trial.faults]
    return "\n".join(lines)


def tell(text: str) -> None:
    """Print, and flush for a file that somebody watches."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _leave(number: int, *_: object) -> None:
    """Clean up after an interrupt; verdicts from then on are meaningless."""
    tell(f"{signal.Signals(number).name}: {len(PLACES)} trials are given up")
    for place in PLACES[:]:
        place.stop()
    os._exit(130)


def main() -> int:
    """Make the trials, print the results; exit code 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", default="0-34", help="as 3 or 0-49 or 1,5,8-9")
    parser.add_argument("--version", default="all", choices=("all", *RELEASES))
    parser.add_argument("--link", default="all", choices=("all", "cli", "rest", "local"))
    parser.add_argument("--strategy", default="all", help=", ".join(STRATEGIES))
    parser.add_argument("--world", default="", help=f"hostile, or some of {','.join(WORLD)}")
    parser.add_argument(
        "--driven", default="as drawn", choices=("as drawn", "ticks", "clients"), help="who goes on with the runs"
    )
    parser.add_argument("--jobs", type=int, default=3, help="trials at once")
    parser.add_argument("--keep", type=Path, default=Path("out/trials"), help="where evidence is kept")
    options = parser.parse_args()
    os.umask(0)  # the cluster has another user, who writes into its folders
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # clients inherit ignored signals
    verdicts: list[Verdict] = []
    trials = chosen(options)

    def one(trial: Trial) -> None:
        reason = unable(trial)
        try:
            verdict = Verdict(trial, invalid=[reason]) if reason else try_one(trial, options.keep)
        except Exception:  # noqa: BLE001 - others go on
            verdict = Verdict(trial, invalid=[f"the trial itself went wrong: {traceback.format_exc()}"])
        verdicts.append(verdict)
        why = "; ".join((verdict.broken or verdict.invalid or verdict.noted)[:1])
        took = f"{verdict.outcome}, {verdict.took_s:.0f} s, {' '.join(verdict.fired) or 'no fault'}"
        tell(f"{len(verdicts)}/{len(trials)} {trial.name}: {verdict.word} ({took}) {why}")

    with ThreadPoolExecutor(options.jobs) as at_once:
        for done in [at_once.submit(one, trial) for trial in trials]:
            done.result()
    tell("\n" + matrix(verdicts))
    return int(any(verdict.word == "broken" for verdict in verdicts))


if __name__ == "__main__":
    raise SystemExit(main())
