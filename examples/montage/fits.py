"""Reads and writes FITS images as Montage uses them: one plane of floating-point numbers, and a header."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["Image", "Value", "read_image", "write_image"]

Image = npt.NDArray[np.float64]
Value = bool | int | float | str

_CARD, _BLOCK = 80, 2880
_SINGLE, _DOUBLE = ">f4", ">f8"
_KINDS = {-32: _SINGLE, -64: _DOUBLE}


def write_image(path: Path, image: Image, keys: Mapping[str, Value]) -> None:
    """Write an image in single precision, with additional keys in its header."""
    rows, columns = image.shape
    frame: dict[str, Value] = {"SIMPLE": True, "BITPIX": -32, "NAXIS": 2, "NAXIS1": columns, "NAXIS2": rows}
    cards = [_card(key, value) for key, value in {**frame, **keys}.items()]
    header = "".join([*cards, "END".ljust(_CARD)]).encode("ascii")
    path.write_bytes(_filled(header, b" ") + _filled(image.astype(_SINGLE).tobytes(), b"\0"))


def read_image(path: Path) -> tuple[Image, dict[str, Value]]:
    """Read an image and its header.

    Raises
    ------
    ValueError
        It is no such image, or incomplete.
    """
    data = path.read_bytes()
    header: dict[str, Value] = {}
    for start in range(0, len(data), _CARD):
        card = data[start : start + _CARD].decode("ascii")
        if card.rstrip() == "END":
            begin = -(-(start + _CARD) // _BLOCK) * _BLOCK
            break
        if card[8:10] == "= ":
            header[card[:8].rstrip()] = _value(card[10:])
    else:
        raise ValueError(f"{path} has no FITS header")
    kind, shape = _KINDS[int(header["BITPIX"])], (int(header["NAXIS2"]), int(header["NAXIS1"]))
    pixels = np.frombuffer(data, kind, shape[0] * shape[1], begin)
    return pixels.reshape(shape).astype(np.float64), header


def _card(key: str, value: Value) -> str:
    match value:
        case bool():
            text = f"{'T' if value else 'F':>20}"
        case str():
            text = f"'{value:<8}'"
        case int():
            text = f"{value:>20d}"
        case _:
            text = f"{value:>20.13G}"
    return f"{key:<8}= {text}".ljust(_CARD)


def _value(text: str) -> Value:
    text = text.strip()
    if text.startswith("'"):
        return text[1:].partition("'")[0].rstrip()
    text = text.partition("/")[0].strip()
    if text in {"T", "F"}:
        return text == "T"
    try:
        return int(text)
    except ValueError:
        return float(text)


def _filled(data: bytes, filler: bytes) -> bytes:
    return data + filler * (-len(data) % _BLOCK)
