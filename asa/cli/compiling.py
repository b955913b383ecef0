"""Messages of commands about code that is compiled at its first use, or for the next command."""

from __future__ import annotations

import sys
from pathlib import Path

BEING_COMPILED = "is being compiled in the background, once (half a minute of one core), for later commands"


def say_what_takes_long() -> None:
    """Report that a kernel is being compiled, so that the user knows why nothing happens for a while."""
    sys.stderr.write("asa: compiling what is used for the first time, which takes up to a minute, once\n")
    sys.stderr.flush()


def compile_if_lacking(why: str, bank: Path | None, *, quiet: bool) -> str:
    """If this command runs without compiled code, begin to compile it for the next one.

    That is reported in a line, unless it is the reason why the estimator was chosen: then in that reason.

    `why`: this reason, as a clause. Returns it as it is to be shown.
    """
    from asa.estimators.choice import NOT_COMPILED
    from asa.estimators.readiness import compile_later, is_short

    is_cut = is_short(bank)
    if not is_cut and why != NOT_COMPILED:
        return why
    is_begun = compile_later()
    if is_begun and why == NOT_COMPILED:
        why, is_begun = f"what simulates the visible queue {BEING_COMPILED}", False
    if quiet:
        return why
    what = []
    if is_cut:
        from asa.estimators.bank import max_records

        what.append(f"of the bank only the latest {max_records():,} waits are used this time")
    if is_begun:
        what.append(f"what would do better {BEING_COMPILED}")
    if what:
        sys.stderr.write(f"Note: {'; '.join(what)}.\n")
    return why
