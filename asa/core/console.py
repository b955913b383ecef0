"""Consoles for coloured text and tables, on which text of others can do no harm.

Colours and cursor moves are control characters themselves. So text is checked here, before it is coloured; the streams
below (`asa.cli.terminal`) check text that reaches them in other ways.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console as RichConsole  # noqa: TID251 - the base of our console
from rich.console import ConsoleOptions, RenderableType
from rich.file_proxy import FileProxy
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Span, Text

from asa.printable import acts, printable

_render, _write, _measure = RichConsole.render, FileProxy.write, Text.__rich_measure__


def _render_checked(
    console: RichConsole, renderable: RenderableType, options: ConsoleOptions | None = None
) -> Iterable[Segment]:
    """Render as rich does, with every text checked: before it is broken into lines, and when it is written."""
    checked = _checked(renderable) if isinstance(renderable, Text) else renderable
    for segment in _render(console, checked, options):
        is_sound = segment.control or not acts(segment.text)
        yield segment if is_sound else Segment(printable(segment.text), segment.style)


def _measured(text: Text, console: RichConsole, options: ConsoleOptions) -> Measurement:
    return _measure(_checked(text), console, options)


def _write_checked(proxy: FileProxy, text: str) -> int:
    return _write(proxy, printable(text))


def _checked(text: Text) -> Text:
    """Escape control characters in a text; each part keeps its style."""
    if not acts(text.plain):
        return text
    whole = text.blank_copy()
    indices = [index for index, letter in enumerate(text.plain) if acts(letter)]
    for part in text.divide(sorted({*indices, *(index + 1 for index in indices)})):
        plain = printable(part.plain)
        whole.append_text(
            Text(plain, part.style, spans=[Span(0, len(plain), span.style) for span in part.spans])
            if plain != part.plain
            else part
        )
    return whole


class Console(RichConsole):
    """A console for any text, which it checks; square brackets in it are no markup, ``:cat:`` is no picture."""

    render = _render_checked

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, **given})

    def render_str(self, text: str, **how: Any) -> Text:
        """Make a text to print, with control characters shown; rich would drop some of them."""
        return super().render_str(printable(text), **how)

    @property
    def file(self) -> IO[str]:
        """The file to which it writes, without a checked stream's check; also while a live display redirects it."""
        file = super().file
        past: IO[str] = getattr(file, "rich_proxied_file", file)
        return past

    @file.setter
    def file(self, new: IO[str]) -> None:
        self._file = new


def check_others() -> None:
    """Make the consoles of other packages check text as well, such as typer's for help and errors.

    Text that is written to a stream during a live display is checked, too, where rich would look for colours. Widths
    are measured as text is shown.
    """
    Text.__rich_measure__ = _measured  # type: ignore[method-assign, assignment]
    RichConsole.render = _render_checked  # type: ignore[method-assign, assignment]
    FileProxy.write = _write_checked  # type: ignore[method-assign, assignment]
