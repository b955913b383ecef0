"""Figures without a screen; matplotlib is loaded when the first is drawn."""

from __future__ import annotations

import os
import sys
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from asa.core import safe
from asa.core.files import in_words
from asa.errors import InputError, MissingExtraError
from asa.printable import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SETTINGS = "matplotlibrc"


def new_figure(width_in: float, height_in: float) -> Figure:
    """Make an empty figure that needs no screen."""
    try:
        _load()
        from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and optional
    except ImportError as error:
        raise MissingExtraError(
            "a figure needs matplotlib, which is not installed", hint="pip install 'asa-client[report]'"
        ) from error
    return Figure(figsize=(width_in, height_in), layout="constrained")


@cache
def _load() -> None:
    """Load matplotlib; ignore settings in the current folder if others may have put them there."""
    is_loaded = "matplotlib" in sys.modules
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and optional

    here = Path.cwd()
    if is_loaded or safe.is_safe(here):
        return
    mpl.rcdefaults()
    named = os.environ.get("MATPLOTLIBRC", "")
    own = [Path(named), Path(named, _SETTINGS)] if named else []
    for file in (*own, Path(mpl.get_configdir(), _SETTINGS)):
        if file.is_file():
            mpl.rc_file(file)
            break


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure; the suffix gives the format, such as ``.png`` or ``.svg``."""
    kind, drawn = Path(path).suffix[1:].lower(), BytesIO()
    is_svg = kind == "svg"
    try:
        figure.savefig(drawn, format=kind, dpi=150, metadata={"Date": None} if is_svg else None)
        data = drawn.getvalue()
        if is_svg:  # an SVG file contains the texts of the figure, in comments or directly
            data = printable(data.decode()).encode()
        with safe.writing(Path(path)) as file:
            file.write(data)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot be drawn: {error}", where=str(path), hint="Give a writable .png, .svg or .pdf."
        ) from error


def check_figure_path(path: Path, option: str = "--plot") -> None:
    """Refuse a path to which `save_figure` could not write, before any work."""
    supported = new_figure(1, 1).canvas.get_supported_filetypes()
    if path.suffix.lstrip(".").lower() not in supported:
        raise InputError(f"{path.suffix!r} is no kind of figure", where=option, hint="Name a .png, .svg or .pdf file.")
    if path.is_dir():
        raise InputError("is a folder", where=f"{option} {path}", hint="Name a file in it.")
    if not path.absolute().parent.is_dir():
        raise InputError("its folder does not exist", where=f"{option} {path}", hint="Make the folder first.")


def make_figure_folder(folder: Path, option: str = "--plot") -> None:
    """Make a folder for figures, and refuse one to which `save_figure` could not write, before any work."""
    with in_words("cannot be made a folder", f"{option} {folder}", "Name another."):
        folder.mkdir(parents=True, exist_ok=True)
    check_figure_path(folder / "figure.png", option)
