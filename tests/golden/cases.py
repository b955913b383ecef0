"""Every command that computes a result, at a small size and a fixed seed; its output is kept in `printed`.

    python tests/golden/cases.py --check [NAME ...]     compare: 1 if something differs
    python tests/golden/cases.py --write [NAME ...]     keep what is printed now, if figures are meant to change

Numbers are compared to nine digits, for processors differ in the last ones; times that a clock measured are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DATA = HERE / "data"
LOG = "{data}/small.swf.gz"
_DIGITS = 1e-9
_LONGEST_S = 300.0
_MEASURED = frozenset({"us_per_job", "decision_s", "worst_decision_s", "seconds", "age_s"})  # by this machine's clock

_SMALL = "--jobs 1 --json"
_TWO = "--system hpc2n --seeds 2 --seed 5 --history 300"
_SITE = "--backend simulated --set system=hpc2n --bank {data}/bank"
_OF_LOG = f"--trace {LOG} --json --jobs 1"
_ONE = f"--trace {LOG} --seeds 1 --seed 5 --history 300 --strategies per-stage,asa"  # for what is slow to warm up

CASES: dict[str, str] = {
    # ways of asking, on a simulated queue
    "compare-montage": f"compare montage {_TWO} --cores 28,112 {_SMALL}",
    "compare-blast-no-age": f"compare blast {_TWO} --cores 56 --no-age-accrues {_SMALL}",
    "compare-shapes": f"compare montage {_TWO} --cores 112 --widths 28,56,112 {_SMALL}",
    "compare-uppmax": f"compare statistics --system uppmax --seeds 1 --cores 160 --history 200 {_SMALL}",
    "compare-tuned": f"compare blast {_TWO} --cores 28 --estimator asa-tuned {_SMALL}",
    "compare-log": f"compare montage --trace {LOG} --cores 32 --seeds 2 --history 300 {_SMALL}",
    "compare-openccs": f"compare blast {_ONE} --cores 16 --backend openccs {_SMALL}",
    "compare-bbsched": f"compare blast {_ONE} --cores 16 --backend bbsched {_SMALL}",
    "compare-dras": f"compare blast {_ONE} --cores 16 --backend dras {_SMALL}",
    "compare-dmr": (
        f"compare montage --trace {LOG} --seeds 2 --seed 5 --history 300 --cores 16 --backend dmr "
        f"--strategies big-job,per-stage,elastic {_SMALL}"
    ),
    "experiment-strategies": (
        f"experiment strategies {_OF_LOG} --workflows statistics --cores 32 --starts 2 --history 300"
    ),
    "experiment-elastic": (
        f"experiment strategies {_OF_LOG} --workflows montage --cores 16 --starts 1 --history 300 --age not "
        "--strategies asa-plan:grow=yes,elastic"
    ),
    "compare-pool": f"compare montage {_TWO} --cores 28,112 --strategies per-stage,pool {_SMALL}",
    "campaign-paper": f"campaign paper --seeds 1 --seed 3 --history 100 --mode sequential {_SMALL}",
    "campaign-paper-together": f"campaign paper --seeds 1 --seed 3 --history 100 --mode concurrent {_SMALL}",
    "campaign-schedulers": (
        "campaign schedulers --systems uppmax --schedulers easy,openccs --strategies asa,asa-plan --workflows blast "
        f"--seeds 1 --history 100 --window 30min {_SMALL}"
    ),
    # forecasts
    "evaluate": f"evaluate {LOG} --limit 120 {_SMALL}",
    "evaluate-queue": f"evaluate {LOG} --limit 300 --queue {_SMALL}",
    "predict": "predict --cores 8 --walltime 2h --bank {data}/bank --system site --within 1h --json",
    "advise": "advise {data}/flow.toml --bank {data}/runbank --output json",
    "advise-shape": (
        "advise --shape --cores 4,8,16 --expected 4=3h,8=100min --scaling amdahl --now 8 --bank {data}/bank "
        "--system site --output json"
    ),
    # plans
    "plan": "plan montage --cores 28 --backend simulated --set system=hpc2n --bank none --output json",
    "plan-bank": f"plan {{data}}/flow.toml {_SITE} --at-most 1.1 --output json",
    "dry-run": f"run {{data}}/flow.toml --dry-run {_SITE} --output json",
    # schedulers
    **{
        f"simulate-{name.replace(':', '-').replace('=', '-')}": f"simulate {LOG} --scheduler {name} --json"
        for name in ("easy", "fcfs", "conservative", "openccs", "bbsched", "dras", "dmr", "multifactor")
    },
    "simulate-pyss": f"simulate {LOG} --preset pyss --json",
    "simulate-cqsim": f"simulate {LOG} --preset cqsim --json",
    "ccs-plan": f"ccs plan --trace {LOG} --jobs 300 --output json",
    "ccs-drift": f"ccs drift {LOG} --json",
    "bbsched-compare": (
        "bbsched compare --workloads cori-s4 --methods baseline,bbsched --windows 10 --solver exact "
        "--seeds 1 --days 31 --processes 1 --json"
    ),
    "bbsched-gd": "bbsched gd --workload cori-s4 --window 10 --jobs 400 --json",
    "dras-evaluate": f"dras evaluate {LOG} --train-days 10 --validate-days 3 --rivals fcfs-easy,sjf,random --json",
    "dmr-study": "dmr study --jobs 50 --seeds 2 --json",
    "workload-fit": f"workload fit {LOG} --json",
    "pool-model": "tools/against_jobqueue.py model --rounds 1",
    # what was written by the version of that day is read
    "status": "status {data}/runs/flow --output json",
    "bank": "bank show --bank {data}/bank --json",
}


def arguments(name: str, place: Path) -> list[str]:
    """Write the command line of a case, and its input files into a folder."""
    data = shutil.copytree(DATA, place / "data", symlinks=True)
    return shlex.split(CASES[name].format(data=data))


def printed(name: str) -> Any:
    """Run a case, and give what it prints as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        environment = {
            "PATH": os.environ["PATH"], "HOME": folder, "LC_ALL": "C.UTF-8", "TZ": "UTC",
            "ASA_BANK": f"{folder}/bank", "ASA_RUNS": f"{folder}/runs", "ASA_SITES": folder,
        }  # fmt: skip
        first, *others = arguments(name, place)
        is_tool = first.startswith("tools/")
        asa = str(Path(sys.executable).with_name("asa"))
        done = subprocess.run(
            [*((sys.executable, str(HERE.parents[1] / first)) if is_tool else (asa, first)), *others],
            cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
            timeout=_LONGEST_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        text = done.stdout.replace(folder, "PLACE").replace(str(HERE), "HERE")
        return text.splitlines() if is_tool else json.loads(text)


def kept(name: str) -> Path:
    """Name the file that keeps the output of a case."""
    return HERE / "printed" / f"{name}.json"


def differences(was: Any, now: Any, where: str = "") -> Iterator[str]:
    """Yield the differences between the present output and the kept one."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in (key for key in dict.fromkeys([*was, *now]) if key not in _MEASURED):
            if key not in was or key not in now:
                yield f"{where}.{key}: {'is new' if key not in was else 'is gone'}"
            else:
                yield from differences(was[key], now[key], f"{where}.{key}")
    elif isinstance(was, list) and isinstance(now, list):
        if len(was) != len(now):
            yield f"{where}: {len(was)} entries, now {len(now)}"
        for number, (one, other) in enumerate(zip(was, now, strict=False)):
            yield from differences(one, other, f"{where}[{number}]")
    elif isinstance(was, float) or isinstance(now, float):
        both = [one for one in (was, now) if isinstance(one, int | float)]
        if len(both) < 2 or not math.isclose(was, now, rel_tol=_DIGITS, abs_tol=_DIGITS):
            yield f"{where}: {was} became {now}"
    elif was != now:
        yield f"{where}: {was!r} became {now!r}"


def main() -> int:
    """Compare, or keep anew."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    ways = parser.add_mutually_exclusive_group(required=True)
    ways.add_argument("--check", action="store_true")
    ways.add_argument("--write", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    n_bad = 0
    for name in options.names or CASES:
        begun_s = time.monotonic()
        try:
            now = printed(name)
        except (AssertionError, subprocess.TimeoutExpired, ValueError) as error:
            sys.stdout.write(f"{name}: {error}\n")
            n_bad += 1
            continue
        if options.write:
            kept(name).parent.mkdir(exist_ok=True)
            kept(name).write_text(json.dumps(now, separators=(",", ":")) + "\n")
            found = []
        else:
            found = list(differences(json.loads(kept(name).read_text()), now))
        n_bad += bool(found)
        size = kept(name).stat().st_size
        sys.stdout.write(f"{name}: {time.monotonic() - begun_s:.1f} s, {size} bytes, {len(found)} differences\n")
        sys.stdout.writelines(f"    {one}\n" for one in found[:5])
        sys.stdout.flush()
    return int(n_bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
