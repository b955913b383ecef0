r"""Makes text of any origin harmless to a terminal or a page.

Text from batch systems, files and other users' runs may hold characters that move the cursor, hide or colour other
text, or reverse its direction. Everything that is shown passes through here: errors as they become text
(`asa.errors.AsaError`), the command line's output (`asa.cli.terminal`), and pages (`asa.report.page`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LONE_BYTE = 0xDC00  # plus the byte: how Python represents a byte of a file's name that is not UTF-8
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 except newline and tab, DEL, C1
# direction characters, and separators of lines and paragraphs
_DIRECTION = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f"
_OF_NAMES = "\udc80-\udc9f"  # C1 as single bytes in names
_ACTS = re.compile(f"[{_CONTROL}{_DIRECTION}{_OF_NAMES}]")
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
# only codes that hide nothing
_OF_COLOURS = re.compile(r"[0134]?|2[234]|3[0-79]|9[0-7]|38;5;\d{1,3}|38;2;\d{1,3};\d{1,3};\d{1,3}")
_BEGUN = re.compile(r"\x1b(\[[0-9;]{0,20})?\Z")
_END = "\x1b[0m"
_BREAKS = str.maketrans({"\n": "\\n", "\t": "\\t"})


def printable(text: str) -> str:
    r"""Escape control and direction characters; newlines, tabs and all other characters stay.

    Examples
    --------
    >>> print(printable("node\x1b[2J \u202egnp.exe"))
    node\x1b[2J \u202egnp.exe
    """
    return _ACTS.sub(_escaped, text)


def printable_in_colours(text: str) -> tuple[str, str]:
    r"""Escape as `printable` does, but keep colours and bold letters, which end with the text.

    Returns the text, and an incomplete sequence at its end that may become a colour together with the next text.

    Examples
    --------
    >>> printable_in_colours("\x1b[31mred\x1b[2J and \x1b[")
    ('\x1b[31mred\\x1b[2J and \x1b[0m', '\x1b[')
    """
    begun = _BEGUN.search(text)
    whole = text[: begun.start()] if begun else text
    colours = [match for match in _COLOUR.finditer(whole) if _colours(match[0][2:-1])]
    parts, at = [], 0
    for match in colours:
        parts += [printable(whole[at : match.start()]), match[0]]
        at = match.end()
    parts.append(printable(whole[at:]))
    if colours and colours[-1][0] != _END:
        parts.append(_END)
    return "".join(parts), begun[0] if begun else ""


def on_one_line(text: str) -> str:
    r"""Escape newlines and tabs as well, for text that must stay on its line.

    Examples
    --------
    >>> print(on_one_line("failed\nSubject: paid"))
    failed\nSubject: paid
    """
    return printable(text).translate(_BREAKS)


def printable_json(document: str) -> str:
    r"""Escape such characters in a JSON document as JSON does; its values stay the same.

    Examples
    --------
    >>> print(printable_json('"a\x7fb"'))
    "a\u007fb"
    """
    return _ACTS.sub(lambda match: f"\\u{ord(match[0]):04x}", document)


def acts(text: str) -> bool:
    """Whether `printable` would escape characters of a text."""
    return _ACTS.search(text) is not None


def _colours(codes: str) -> bool:
    """Whether a sequence only sets colours of letters, bold, italics or underlining."""
    return re.fullmatch(f"(?:{_OF_COLOURS.pattern})(?:;(?:{_OF_COLOURS.pattern}))*", codes) is not None


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    code -= _LONE_BYTE if code >= _LONE_BYTE else 0
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def first_of(texts: Sequence[str]) -> str:
    """Return texts in one, of many the first.

    Examples
    --------
    >>> first_of(["align A", "align B"]), first_of([f"align {name}" for name in "ABCDE"])
    ('align A; align B', 'align A; align B; align C; and 2 more')
    """
    return "; ".join(texts if len(texts) < 4 else [*texts[:3], f"and {len(texts) - 3} more"])
