"""Notes which lines of asa are reached for the first time, as input that reaches new ones is changed further."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_HOMES = tuple(f"{ROOT / name}/" for name in ("asa", "backends", "workflows"))
_PATIENCE = 300  # calls of a function without a new line, after which only some of its calls are followed
_ONE_OF = 32
_STEPS = 2000  # lines of one call without a new one, after which the rest of the call is not followed


class Lines:
    """A context in which this thread is followed; `found` tells whether a line was new in it.

    With `sys.monitoring` (Python 3.12 and later) a line costs something once; before, functions all of whose lines were
    seen are not followed any more.
    """

    def __init__(self):
        self.found = False
        self.count = 0
        self._left, self._idle = {}, {}
        self._monitoring = getattr(sys, "monitoring", None)

    @property
    def is_cheap(self):
        """Whether to follow costs next to nothing."""
        return self._monitoring is not None

    def __enter__(self):
        self.found = False
        if self._monitoring is None:
            sys.settrace(self._called)
            return
        tool, lines = self._monitoring.COVERAGE_ID, self._monitoring.events.LINE
        self._monitoring.use_tool_id(tool, "fuzz")
        self._monitoring.register_callback(tool, lines, self._line_of)
        self._monitoring.set_events(tool, lines)

    def __exit__(self, *_):
        if self._monitoring is None:
            sys.settrace(None)
        else:
            self._monitoring.set_events(self._monitoring.COVERAGE_ID, 0)
            self._monitoring.free_tool_id(self._monitoring.COVERAGE_ID)

    def _line_of(self, code, _):
        if code.co_filename.startswith(_HOMES):
            self.found = True
            self.count += 1
        return self._monitoring.DISABLE

    def _called(self, frame, event, _):
        code = frame.f_code
        left = self._left.get(code)
        if left is None:
            is_ours = code.co_filename.startswith(_HOMES)
            left = self._left[code] = {line for *_, line in code.co_lines() if line} if is_ours else set()
            self._idle[code] = 0
        if not left:
            return None
        self._idle[code] += 1
        if self._idle[code] > _PATIENCE and self._idle[code] % _ONE_OF:
            return None
        idle, seen, steps = self._idle, self.__dict__, 0

        def line(frame, event, _):
            nonlocal steps
            if frame.f_lineno in left:
                left.discard(frame.f_lineno)
                seen["found"] = True
                seen["count"] += 1
                idle[code] = steps = 0
            elif (steps := steps + 1) > _STEPS:
                frame.f_trace_lines = False
            return line

        return line(frame, event, None)
