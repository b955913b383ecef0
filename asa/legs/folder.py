"""The legs of a stage as its client sees them: their progress, and how the client closes legs whose jobs are gone."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from asa.core import safe
from asa.core.files import read_text
from asa.core.late import dataclass


@dataclass(frozen=True, slots=True)
class LegProgress:
    """Progress of a stage's legs.

    `shown`: the stage's progress when the latest leg began, in one line. Empty for none.
    `saves_s`: mean time in seconds that signalled legs took to save their state; None if none was signalled.
    """

    shown: str
    saves_s: float | None


class Legs:
    """The folder of a round of a stage's legs.

    `folder`: its path; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def close(self, leg: int) -> bool:
        """Record that a leg whose job is gone is over, so that the next may begin; False if that cannot be written.

        `leg`: its number, from 1.
        """
        try:
            safe.provide_folder(self.folder)
            with suppress(FileExistsError):
                (self.folder / f"over.{leg}").symlink_to("gone")
        except OSError:
            return False
        return True

    def how(self, leg: int) -> str:
        """Return how a leg ended: ``left``, ``done`` or ``gone``; empty if it is not recorded or not visible."""
        try:
            return (self.folder / f"over.{leg}").readlink().name.partition("-")[0]
        except OSError:
            return ""

    def standing(self) -> LegProgress | None:
        """Return the progress of the legs; None if none has begun, or the files cannot be read."""
        try:
            names = [path.name for path in self.folder.iterdir()]
            begun = max((int(name[3:]) for name in names if name.startswith("at.")), default=0)
            if not begun:
                return None
            _, _, shown = read_text(self.folder / f"at.{begun}", errors="replace").partition("\n")
            saves = [float(words[1]) for name in names if (words := self._said(name))[:1] == ["left"] and words[1:]]
        except (OSError, ValueError):
            return None
        return LegProgress(shown.partition("\n")[0].strip(), sum(saves) / len(saves) if saves else None)

    def _said(self, name: str) -> list[str]:
        return (self.folder / name).readlink().name.split("-") if name.startswith("over.") else []
