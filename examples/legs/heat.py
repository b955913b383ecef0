"""Heat in a plate under a flame that moves, over many walltimes; what it needs to run in legs is marked with a #.

    python heat.py [STEPS] [SIZE]

It goes on from the newest `ckpt/STEP.state`, and leaves `ckpt/result.npy`.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

told: list[bool] = []
signal.signal(signal.SIGUSR1, lambda *_: told.append(True))  # 1: asa says that this leg is to end

steps, size = [*map(int, sys.argv[1:]), *(20_000, 200)[len(sys.argv) - 1 :]]
place = Path("ckpt")
place.mkdir(exist_ok=True)


def save(name: str, done: int, plate: np.ndarray) -> None:
    """Write a file completely or not at all, since a leg may be killed while it writes."""
    half = place / f"{name}.part"
    with half.open("wb") as file:
        np.save(file, plate)
        file.flush()
        os.fsync(file.fileno())
    half.replace(place / f"{done}.{name}")
    for old in place.glob(f"*.{name}"):
        if old.name != f"{done}.{name}":
            old.unlink(missing_ok=True)


def newest() -> tuple[int, np.ndarray]:
    """Return the number of the last saved step, and the plate."""
    saved = sorted((int(path.name.partition(".")[0]), path) for path in place.glob("*.state"))
    if saved:  # 2: go on from what was saved
        return saved[-1][0], np.load(saved[-1][1])
    plate = np.random.default_rng(1).random((size, size))
    return 0, plate


done, plate = newest()
print(f"leg {os.environ.get('ASA_LEG', '-')} goes on from step {done}", flush=True)
while done < steps:
    inner = plate[1:-1, 1:-1]
    plate[1:-1, 1:-1] = inner + 0.1 * (
        plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:] - 4 * inner
    )
    plate[1 + done % (size - 2), size // 2] += 0.01
    done += 1
    if done % 5000 == 0 or told:
        save("state", done, plate)  # 3: now and then, and after a signal
    if told:
        sys.exit(85)  # 4: not yet done
np.save(place / "result.npy", plate)  # 5: done, with exit code 0
