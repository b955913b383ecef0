"""An artificial piece of sky, a spiral galaxy among stars, and a survey's tiles of it.

Everything follows from the survey's parameters, so that a mosaic can be compared with the sky of its tiles.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from fits import Image

__all__ = ["NOISE", "Frame", "Survey"]

NOISE = 2.0  # standard deviation of a pixel in a tile
_CENTRE = (math.radians(210.8), math.radians(54.3))  # right ascension and declination
_STEP = math.radians(1 / 3600)  # one pixel: one second of arc
_PITCH = 0.8  # distance between tiles, as a share of a tile's side
_STARS = 1 / 1000  # per pixel
_BLUR = 1.6  # width of a star, in pixels


@dataclass(frozen=True, slots=True)
class Frame:
    """A grid of pixels on a plane that touches the sky at one point.

    Parameters
    ----------
    centre
        Right ascension and declination of that point, in radians.
    column, row
        Position of that point on the grid; the first pixel's middle is at 1.
    turn
        Angle by which the grid is rotated, in radians.
    step
        Side of a pixel, in radians.
    """

    centre: tuple[float, float]
    column: float
    row: float
    turn: float = 0.0
    step: float = _STEP

    def to_sky(self, column: Image, row: Image) -> tuple[Image, Image]:
        """Return the right ascension and declination of positions on the grid."""
        u, v = -self.step * (column - self.column), self.step * (row - self.row)
        east, north = _turned(u, v, self.turn)
        ra, dec = self.centre
        towards = math.cos(dec) - north * math.sin(dec)
        height = math.sin(dec) + north * math.cos(dec)
        return ra + np.arctan2(east, towards), np.arctan2(height, np.hypot(east, towards))

    def to_grid(self, ra: Image, dec: Image) -> tuple[Image, Image]:
        """Return the column and row of points of the sky."""
        ra0, dec0 = self.centre
        depth = math.sin(dec0) * np.sin(dec) + math.cos(dec0) * np.cos(dec) * np.cos(ra - ra0)
        east = np.cos(dec) * np.sin(ra - ra0) / depth
        north = (math.cos(dec0) * np.sin(dec) - math.sin(dec0) * np.cos(dec) * np.cos(ra - ra0)) / depth
        u, v = _turned(east, north, -self.turn)
        return self.column - u / self.step, self.row + v / self.step


@dataclass(frozen=True)
class Survey:
    """Overlapping square tiles of one sky.

    Parameters
    ----------
    tiles
        Number of tiles.
    size
        Side of each tile, in pixels.
    seed
        Seed of the sky and of the tiles.
    """

    tiles: int
    size: int
    seed: int = 1

    @classmethod
    def load(cls, path: Path) -> Survey:
        """Read the parameters of a survey from a file."""
        return cls(**json.loads(path.read_text()))

    def save(self, path: Path) -> None:
        """Write the survey's parameters to a file."""
        path.write_text(json.dumps(asdict(self)))

    @cached_property
    def frames(self) -> list[Frame]:
        """Return the tiles' grids: in rows, each slightly displaced and rotated."""
        rng = np.random.default_rng([self.seed, 1])
        columns, rows = self._shape
        whole = self._whole
        frames = []
        for number in range(self.tiles):
            row, column = divmod(number, columns)
            place = np.array([column - (columns - 1) / 2, row - (rows - 1) / 2]) * _PITCH + rng.normal(0, 0.01, 2)
            x, y = place * self.size
            ra, dec = whole.to_sky(np.array(x), np.array(y))
            middle = (self.size + 1) / 2
            turn = math.radians(rng.uniform(-3, 3))
            frames.append(Frame((float(ra), float(dec)), middle, middle, turn))
        return frames

    def tile_images(self) -> Iterator[Image]:
        """Yield the tiles: each has a sloping background of its own, and noise."""
        rng = np.random.default_rng([self.seed, 2])
        slope = np.linspace(-0.5, 0.5, self.size)
        for frame in self.frames:
            background = rng.uniform(50, 250) + rng.uniform(-60, 60) * slope + rng.uniform(-60, 60) * slope[:, None]
            yield self.truth(frame, (self.size, self.size)) + background + rng.normal(0, NOISE, (self.size, self.size))

    def truth(self, frame: Frame, shape: tuple[int, int]) -> Image:
        """Return the sky on a grid, without noise and background."""
        row, column = np.mgrid[1 : shape[0] + 1, 1 : shape[1] + 1].astype(np.float64)
        x, y = self._whole.to_grid(*frame.to_sky(column, row))
        image = _galaxy(x / self._radius, y / self._radius)
        self._add_stars(image, frame)
        return image

    def footprint(
        self, frame: Frame, shape: tuple[int, int], number: int, margin: float = 3.0
    ) -> npt.NDArray[np.bool_]:
        """Return which pixels of a grid are well inside a tile."""
        row, column = np.mgrid[1 : shape[0] + 1, 1 : shape[1] + 1].astype(np.float64)
        x, y = self.frames[number].to_grid(*frame.to_sky(column, row))
        low, high = 1 + margin, self.size - margin
        return (x > low) & (x < high) & (y > low) & (y < high)

    @property
    def _whole(self) -> Frame:
        return Frame(_CENTRE, 0.0, 0.0)

    @property
    def _shape(self) -> tuple[int, int]:
        columns = math.ceil(math.sqrt(1.25 * self.tiles))
        return columns, math.ceil(self.tiles / columns)

    @property
    def _radius(self) -> float:
        return 0.5 * self.size * (1 + _PITCH * (min(self._shape) - 1))

    @cached_property
    def _stars(self) -> tuple[Image, Image, Image]:
        """Return the right ascension, the declination and the brightness of the stars."""
        rng = np.random.default_rng([self.seed, 3])
        half = [0.5 * self.size * (1.2 + _PITCH * (count - 1)) for count in self._shape]
        count = int(4 * half[0] * half[1] * _STARS)
        ra, dec = self._whole.to_sky(rng.uniform(-half[0], half[0], count), rng.uniform(-half[1], half[1], count))
        return ra, dec, np.minimum(400 / (1 - rng.random(count)), 80_000)

    def _add_stars(self, image: Image, frame: Frame) -> None:
        rows, columns = image.shape
        reach = math.ceil(6 * _BLUR)
        ra, dec, flux = self._stars
        at_column, at_row = frame.to_grid(ra, dec)
        inside = (at_column > -reach) & (at_column < columns + reach) & (at_row > -reach) & (at_row < rows + reach)
        for x, y, light in zip(at_column[inside] - 1, at_row[inside] - 1, flux[inside], strict=True):
            left, right = max(int(x) - reach, 0), min(int(x) + reach, columns)
            low, high = max(int(y) - reach, 0), min(int(y) + reach, rows)
            across = np.exp(-0.5 * ((np.arange(left, right) - x) / _BLUR) ** 2)
            along = np.exp(-0.5 * ((np.arange(low, high) - y) / _BLUR) ** 2)
            image[low:high, left:right] += light / (2 * math.pi * _BLUR**2) * along[:, None] * across


def _turned(x: Image, y: Image, angle: float) -> tuple[Image, Image]:
    return x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)


def _galaxy(x: Image, y: Image) -> Image:
    """Return the light of a spiral galaxy of radius 1, seen from above and slightly tilted."""
    y = y / 0.75
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    arms = np.cos(angle - 3.5 * np.log(radius + 0.05)) ** 4
    disc: Image = 60 * np.exp(-radius / 0.45) * (0.35 + 1.3 * arms * (1 - np.exp(-((radius / 0.15) ** 2))))
    core: Image = 300 * np.exp(-radius / 0.06)
    return disc + core
