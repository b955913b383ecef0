"""Gives generated input to all that asa reads, and planted files to every command, and says what is not borne.

    python tools/fuzz.py --seconds 600 --jobs 2        # every reader, for ten minutes in all
    python tools/fuzz.py --inputs 100000 --readers journal,squeue --seed 7
    python tools/fuzz.py --again build/fuzz/squeue/ValueError-read-1a2b3c4d    # one input again, with its traceback
    python tools/fuzz.py --plants 200                  # as root: what another user lays in the way of every command

Input is made of valid samples (`tests/fuzz/readers.py`) by changing bytes, lines, words, numbers, values and encodings;
what reaches a new line of asa is changed further. A reader may refuse input with an error of asa's own, in words. It
may not fail otherwise, take more than 10 s of CPU time or 1 GiB of memory, start a program, or write outside of its
folder. What is not borne is kept below --keep, with as little input as shows the fault. The exit code is 1 if
there is any. The same seed and number of inputs give the same input. Input that was once a fault is in
tests/data/fuzz, and `tests/test_fuzz.py` reads it again, with a sample of new input.
"""

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fuzz.readers import READERS, content
from fuzz.worker import Trier, Watched, file_name


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readers", default="", help="only these, separated by commas")
    parser.add_argument("--inputs", type=int, default=1 << 60, help="for each reader")
    parser.add_argument("--seconds", type=float, default=120.0, help="for all readers together")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--again", type=Path, help="a file with input, in a folder with the name of its reader")
    parser.add_argument("--plants", type=int, help="number of trials with another user's files")
    asked = parser.parse_args()
    if asked.again is not None:
        return again(asked.again)
    if asked.plants is not None:
        from fuzz.plants import run_plants

        return run_plants(seed=asked.seed, count=asked.plants, keep=asked.keep)
    import forked

    forked._import_all()  # once, before any process begins
    names = [name.strip() for name in asked.readers.split(",")] if asked.readers else list(READERS)
    if unknown := [name for name in names if name not in READERS]:
        parser.error(f"no reader {', '.join(unknown)}; there are {', '.join(READERS)}")
    return 1 if run(names, asked) else 0


def run(names: list[str], asked: argparse.Namespace) -> int:
    """Run readers, each in a process, some at a time; print a line for each, and return the number of findings."""
    share_s = asked.seconds * asked.jobs / len(names)
    left, running, total, faults = list(names), [], 0, 0
    sys.stdout.write(f"{'reader':18}{'inputs':>9}{'refused':>9}{'kept':>6}{'lines':>7}{'findings':>10}\n")
    while left or running:
        while left and len(running) < asked.jobs:
            name = left.pop(0)
            running.append(Watched(name, seed=asked.seed, inputs=asked.inputs, until_s=time.monotonic() + share_s))
        time.sleep(0.2)
        for watched in [one for one in running if one.poll()]:
            running.remove(watched)
            counts, found = watched.counts, watched.findings()
            inputs, refused, kept, lines, _ = counts
            total, faults = total + inputs, faults + len(found)
            sys.stdout.write(f"{watched.name:18}{inputs:9}{refused:9}{kept:6}{lines:7}{len(found):10}\n")
            for finding in found:
                folder = asked.keep / watched.name.replace(" ", "-")
                folder.mkdir(parents=True, exist_ok=True)
                (folder / file_name(finding)).write_bytes(finding.data)
                sys.stdout.write(f"    {finding.why} {finding.where}: {folder / file_name(finding)}\n")
                last = finding.detail.strip().splitlines()[-1:] or [""]
                sys.stdout.write(f"        {last[0][:200]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"seed {asked.seed}: {total} inputs, {faults} findings\n")
    return faults


def again(file: Path) -> int:
    """Give one input to its reader, and print what comes of it."""
    import tempfile

    name = file.absolute().parent.name.replace("-", " ")
    data = content(file)
    with tempfile.TemporaryDirectory(prefix="asa-fuzz-") as scratch:
        refused, finding = Trier(READERS[name], scratch).try_one(data)
        said = f"{finding.why}\n{finding.detail}" if finding else "refused in words" if refused else "read"
    sys.stdout.write(f"{said}\n")
    return int(finding is not None)


if __name__ == "__main__":
    sys.exit(main())
