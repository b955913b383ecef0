"""What the command of a host's job printed itself, apart from what the host prints around it."""

from __future__ import annotations

import re

from asa.core.late import dataclass
from asa.core.patterns import pattern

# what the Snakemake in a job prints when a rule begins, once it has failed, and when the command alone has failed
_HEAD = pattern(r"^(?:local)?(?:rule|checkpoint) \w+:\n(?: {4}\w+:.*\n(?: {8}.*\n)*)*", re.MULTILINE)
_TRAILER = pattern(
    r"^(?:RuleException:$|\[[^]\n]+\]\nError in (?:rule|group|checkpoint) |Shutting down, this might take some time)",
    re.MULTILINE,
)
_OF_COMMAND = pattern(
    r"RuleException:\nCalledProcessError in .*\n(?:.*\n)*?.* "
    r"(?:returned non-zero exit (?P<status>status \d+)|died with <Signals\.(?P<signal>\w+): \d+>)\.$",
    re.MULTILINE,
)
_OF_CODE = pattern(r"RuleException:\n(?P<error>(?:.*\n)*?)(?=\[[^]\n]+\]\nError in )")


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command printed, and how it ended: as ``exit status 3``, empty if that is not known."""

    own: str
    end: str = ""


def printed(host: str, log: str) -> Printed | None:
    """Return what a job's command printed to a log; None if the host has printed nothing to tell it by.

    `host`: its name.
    `log`: of the job's errors, perhaps without its beginning.
    """
    if host != "Snakemake":
        return None
    text, *_ = _TRAILER.split(log, maxsplit=1)
    rest = log[len(text) :]
    *before, own = _HEAD.split(text)
    if not before and not rest:
        return None
    own, end = own.strip("\n"), ""
    if command := _OF_COMMAND.match(rest):
        end = f"exit {command['status']}" if command["status"] else f"signal {command['signal']}"
    elif code := _OF_CODE.match(rest):  # the rule is Python code, whose error Snakemake prints
        own = f"{own}\n{code['error']}".strip("\n")
    return Printed(own, end)
