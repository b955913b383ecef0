"""The folder of a run, as all backends have it whose jobs are shell scripts."""

from asa.backends.shell.marks import Kept, Mark, RunFolder

__all__ = ["Kept", "Mark", "RunFolder"]
