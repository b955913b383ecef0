"""Makes odd input of valid input: bytes, lines, words, numbers, values of JSON, nesting and encodings are changed.

What is made depends on the random numbers given alone, so that a seed gives the same on any machine.
"""

import json
import re

CANARY = "asa-fuzz-canary"
"""A word that no sample has: where it shows up in a command, text of a file got there."""

MAX_INPUT_BYTES = 1 << 20

NUMBERS = (
    *("0", "-1", "1", "2", "-0", "00", "1e3", "1e999", "-1e999", "nan", "inf", "-inf", "NaN", "Infinity", "1.5", ".5"),
    *("2147483647", "2147483648", "4294967295", "-2147483649", "9007199254740993", "9223372036854775807"),
    *("18446744073709551615", "-9223372036854775809", "1" + "0" * 30, "9" * 400, "9" * 5000, "1e308", "1e-320"),
    *("0x10", "1_0", "\uff11", "\u0661", "\u00b2", "+1", " 1", "1.0", "253402300800", "1700000000", "true", "null"),
)
TEXTS = (
    *(
        "",
        " ",
        ".",
        "..",
        "/",
        "-",
        "--",
        "~",
        "~nosuch/x",
        "none",
        "*",
        "%s%n",
        "{}",
        "{{x}}",
        "[bold]x[/]",
        "a" * 300,
    ),
    *("\u00e9", "\U0001f4a5", "\u202e", "\x1b[2J", "\ufeff", "\ud800", "\x00", "\x7f", "\u2028", "\x85", "\x1c", "\r"),
    *(f"$(touch {CANARY})", f"`touch {CANARY}`", f"; touch {CANARY}", f"| touch {CANARY}", f"\ntouch {CANARY}\n"),
    *(f"--{CANARY}", f"-o{CANARY}", f"'{CANARY}", f'"{CANARY}', f"../{CANARY}", "/dev/zero", "/proc/self/mem"),
    *("[", "]", "{", "}", "(", ")", ",", "=", "|", ":", ";", "<", ">", "&", "#", '"', "'", "\\", "\t", "\n", "\r\n"),
    *(
        "n[1-999999999]",
        "n[0-9,",
        "n[9-1]",
        "1-99999999%1",
        "0-0:0",
        "1d",
        "99999999999d",
        "-1h",
        "UNLIMITED",
        "Unknown",
    ),
    *("2026-99-99", "9999-12-31T23:59:59", "0001-01-01", "1970-01-01T00:00:00Z", "now", "a,b,,c", "x=1", "1:2:3:4"),
)
VALUES = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, 1.5, -0.0, 1e308, float("nan"), float("inf"), "", " "),
    *([], {}, [[]], [None], {"": None}, "0", "nan", [1, "1"], {"set": True, "infinite": True, "number": 0}),
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_WORD = re.compile(rb"[A-Za-z_][\w.-]*")
_FIELD = re.compile(rb"[^|,;:=\s\"'\[\]{}]+")
_MAX_TREE_BYTES = 1 << 17
_DEEP = (20, 90, 101, 1000, 100_000)


def _encoded(text):
    return text.encode("utf-8", "surrogatepass")


class Mutator:
    """Changes samples of one kind of input; `words` are those that mean something in it."""

    def __init__(self, draw, words=()):
        self._draw = draw
        self._words = [*map(_encoded, words)]
        self._ways = (
            *(self._flipped, self._cut, self._removed, self._repeated, self._inserted),
            *(self._number, self._number, self._number, self._word, self._word, self._field, self._field),
            *(self._line, self._line, self._shuffled, self._tree, self._tree, self._tree, self._tree),
            *(self._spliced, self._spliced, self._swapped, self._tail),
        )
        self._rare = (self._long, self._deep, self._recoded, self._mostly_nothing, self._doubled)

    def mutate(self, data, others):
        """Return a changed sample; parts of it may come from `others`."""
        draw = self._draw
        for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
            way = draw.choice(self._rare if draw.random() < 0.04 else self._ways)
            data = way(data, others)[:MAX_INPUT_BYTES]
        return data

    # ------------------------------------------------------------------ pieces

    def _text(self):
        draw = self._draw
        kind = draw.random()
        if kind < 0.3:
            return _encoded(draw.choice(NUMBERS))
        if kind < 0.6 and self._words:
            return draw.choice(self._words)
        return _encoded(draw.choice(TEXTS))

    def _span(self, data):
        start = self._draw.randrange(len(data) + 1)
        size = min(len(data) - start, int(self._draw.expovariate(1 / 12)) + 1)
        return start, start + size

    def _one(self, pattern, data):
        """Find a match of a pattern near a random position."""
        if not data:
            return None
        return pattern.search(data, self._draw.randrange(len(data))) or pattern.search(data)

    def _replaced(self, data, match, text):
        return data if match is None else data[: match.start()] + text + data[match.end() :]

    # ------------------------------------------------------------------ bytes

    def _flipped(self, data, _):
        if not data:
            return b"\0"
        at = self._draw.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << self._draw.randrange(8)]) + data[at + 1 :]

    def _cut(self, data, _):
        return data[: self._draw.randrange(len(data) + 1)]

    def _tail(self, data, _):
        return data[self._draw.randrange(len(data) + 1) :]

    def _removed(self, data, _):
        start, end = self._span(data)
        return data[:start] + data[end:]

    def _repeated(self, data, _):
        start, end = self._span(data)
        return data[:end] + data[start:end] * self._draw.choice((1, 1, 2, 50)) + data[end:]

    def _inserted(self, data, _):
        at = self._draw.randrange(len(data) + 1)
        return data[:at] + (self._text() if self._draw.random() < 0.8 else self._draw.randbytes(4)) + data[at:]

    def _swapped(self, data, _):
        (a, b), (c, d) = sorted((self._span(data), self._span(data)))
        return data if b > c else data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]

    def _spliced(self, data, others):
        other = self._draw.choice(others)
        start, at = self._draw.randrange(len(other) + 1), self._draw.randrange(len(data) + 1)
        piece = other[start : start + self._draw.choice((8, 40, 200, 2000))]
        return data[:at] + piece + data[at + self._draw.choice((0, len(piece))) :]

    # ------------------------------------------------------------------ words and lines

    def _number(self, data, _):
        return self._replaced(data, self._one(_NUMBER, data), _encoded(self._draw.choice(NUMBERS)))

    def _word(self, data, _):
        return self._replaced(data, self._one(_WORD, data), self._text())

    def _field(self, data, _):
        return self._replaced(data, self._one(_FIELD, data), self._text())

    def _line(self, data, others):
        lines = data.split(b"\n")
        at = self._draw.randrange(len(lines))
        way = self._draw.randrange(4)
        if way == 0:
            del lines[at]
        elif way == 1:
            lines.insert(self._draw.randrange(len(lines) + 1), lines[at])
        elif way == 2:
            lines.insert(at, self._draw.choice(self._draw.choice(others).split(b"\n")))
        else:
            lines[at] = self._text()
        return b"\n".join(lines)

    def _shuffled(self, data, _):
        lines = data.split(b"\n")
        one, other = self._draw.randrange(len(lines)), self._draw.randrange(len(lines))
        lines[one], lines[other] = lines[other], lines[one]
        return b"\n".join(lines)

    # ------------------------------------------------------------------ whole files

    def _long(self, data, _):
        at = self._draw.randrange(len(data) + 1)
        piece = self._draw.choice((b"a", b"1", b" ", b"\n", b",", b"[", b'"', b"\\", b"\0", b"#", self._text() or b"-"))
        return data[:at] + piece * (self._draw.choice((1000, 70_000, 300_000)) // len(piece) + 1) + data[at:]

    def _deep(self, data, _):
        at = self._draw.randrange(len(data) + 1)
        opening = self._draw.choice((b"[", b"{", b'{"a":', b"(", b"$(", b"a.", b"[[", b"`", b"${", b"n["))
        return data[:at] + opening * self._draw.choice(_DEEP) + data[at:]

    def _recoded(self, data, _):
        text = data.decode("utf-8", "replace")
        way = self._draw.choice(("utf-16", "utf-32", "latin-1", "utf-8-sig", "utf-7", "crlf", "cr"))
        if way in {"crlf", "cr"}:
            return data.replace(b"\n", b"\r\n" if way == "crlf" else b"\r")
        return text.encode(way, "replace")

    def _mostly_nothing(self, data, _):
        return self._draw.choice((b"", b"\n", b"\0", b"{}", b"[]", b"null", b"0", b'""', b"\xff\xfe", b" ", data[:1]))

    def _doubled(self, data, _):
        return data + data

    # ------------------------------------------------------------------ values of JSON

    def _tree(self, data, _):
        """Change one value of a document in JSON or, of a file of such lines, of one line."""
        if len(data) > _MAX_TREE_BYTES:
            return self._number(data, _)
        try:
            document, before, after = json.loads(data), b"", b""
        except (ValueError, RecursionError):
            start = data.rfind(b"\n", 0, self._draw.randrange(len(data) + 1)) + 1
            end = data.find(b"\n", start)
            end = len(data) if end < 0 else end
            try:
                document, before, after = json.loads(data[start:end]), data[:start], data[end:]
            except (ValueError, RecursionError):
                return self._field(data, _)
        changed = self._changed(document)
        try:
            text = json.dumps(changed, ensure_ascii=self._draw.random() < 0.5, separators=(",", ":"))
        except (ValueError, RecursionError):
            return data
        return before + text.encode("utf-8", "surrogatepass") + after

    def _changed(self, document):
        nodes, spots = [document], []
        while nodes and len(spots) < 20_000:
            node = nodes.pop()
            for key, value in (
                node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
            ):
                spots.append((node, key))
                nodes.append(value)
        if not spots:
            return self._value(document)
        node, key = self._draw.choice(spots)
        way = self._draw.randrange(8)
        if way == 0:
            del node[key]
        elif way == 1 and isinstance(node, dict):
            node[self._draw.choice((*node, "", "kind", "x"))] = node.pop(key)
        elif way == 2:
            other, key_of_other = self._draw.choice(spots)
            if key_of_other in other if isinstance(other, dict) else key_of_other < len(other):
                node[key] = json.loads(json.dumps(other[key_of_other]))
        elif way == 3 and isinstance(node, list):
            node.insert(key, self._value(node[key]))
        elif way == 4 and isinstance(node[key], list) and node[key]:
            node[key] = node[key] * self._draw.choice((2, 2, 100))
        else:
            node[key] = self._value(node[key])
        return document

    def _value(self, was):
        draw = self._draw
        if draw.random() < 0.4 and type(was) in {int, float} and abs(was) < 1e300:
            return draw.choice((-was, was + 1, was - 1, was * 1000, was // 7, str(was)[:4000], -1))
        if draw.random() < 0.4:
            return self._text().decode("utf-8", "replace")
        return json.loads(json.dumps(draw.choice(VALUES)))
