"""Makes a survey's tiles of an artificial sky: FITS images that overlap, with noise and uneven backgrounds.

python examples/montage/make_sky.py FOLDER [--tiles 20] [--size 400] [--seed 1]

The tiles are in FOLDER/raw. FOLDER/sky.json describes the sky, for `check_mosaic.py`.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from fits import Value, write_image
from sky import Survey


def main() -> None:
    """Make the tiles."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiles", type=int, default=20)
    parser.add_argument("--size", type=int, default=400, help="side of a tile in pixels")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    survey = Survey(given.tiles, given.size, given.seed)
    raw = given.folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for number, (frame, image) in enumerate(zip(survey.frames, survey.tile_images(), strict=True), start=1):
        keys: dict[str, Value] = {
            "CTYPE1": "RA---TAN",
            "CTYPE2": "DEC--TAN",
            "CRVAL1": math.degrees(frame.centre[0]),
            "CRVAL2": math.degrees(frame.centre[1]),
            "CRPIX1": frame.column,
            "CRPIX2": frame.row,
            "CDELT1": -math.degrees(frame.step),
            "CDELT2": math.degrees(frame.step),
            "CROTA2": math.degrees(frame.turn),
            "EQUINOX": 2000.0,
        }
        write_image(raw / f"tile_{number:04d}.fits", image, keys)
    survey.save(given.folder / "sky.json")
    print(f"{given.tiles} tiles of {given.size} x {given.size} pixels in {raw}")


if __name__ == "__main__":
    main()
