"""Compares a mosaic with the sky of which its tiles were taken.

python examples/montage/check_mosaic.py SKY.json MOSAIC.fits

Montage makes the tiles' backgrounds agree with each other, but cannot know the plane below all of them, so a plane is
subtracted first. Only the tiles' noise may remain, and no tile may be missing. Exit code 1 if that is not so.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from fits import read_image
from sky import NOISE, Frame, Survey

BLOCKS = 8  # blocks along each side, whose levels are compared with the sky's
MAX_OFF, MIN_PIXELS = 1.5, 100  # of a block


def main() -> int:
    """Compare, and print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sky", type=Path)
    parser.add_argument("mosaic", type=Path)
    given = parser.parse_args()
    survey = Survey.load(given.sky)
    image, header = read_image(given.mosaic)
    centre = (math.radians(float(header["CRVAL1"])), math.radians(float(header["CRVAL2"])))
    turn, step = math.radians(float(header.get("CROTA2", 0.0))), math.radians(float(header["CDELT2"]))
    frame = Frame(centre, float(header["CRPIX1"]), float(header["CRPIX2"]), turn, step)

    is_seen = np.isfinite(image) & (image != 0)
    tiles = [survey.footprint(frame, image.shape, number) for number in range(survey.tiles)]
    missing = [number for number, tile in enumerate(tiles, start=1) if not tile.any() or is_seen[tile].mean() < 0.999]
    left = image - survey.truth(frame, image.shape)
    row, column = np.nonzero(is_seen)
    plane = np.stack([np.ones(row.size), column, row], axis=1)
    left[is_seen] -= plane @ np.linalg.lstsq(plane, left[is_seen], rcond=None)[0]
    noise = 1.4826 * float(np.median(np.abs(left[is_seen])))
    block = (row * BLOCKS // image.shape[0]) * BLOCKS + column * BLOCKS // image.shape[1]
    numbers, counts = np.unique(block, return_counts=True)
    whole = numbers[counts >= MIN_PIXELS]
    levels = [abs(float(np.median(left[is_seen][block == number]))) for number in whole]

    is_good = not missing and noise < 1.5 * NOISE and max(levels) < MAX_OFF
    holes = f"tiles {', '.join(map(str, missing))} are missing" if missing else "no tile is missing"
    print(
        f"{'good' if is_good else 'BAD'}: {image.shape[1]} x {image.shape[0]} pixels; {holes}; off the sky by "
        f"{noise:.2f} (a tile's noise is {NOISE:g}), none of {BLOCKS} x {BLOCKS} blocks by more than {max(levels):.2f}"
    )
    return 0 if is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())
