"""Run the few tests that failed once more, alone: tests of real daemons wait for seconds, and a busy machine is slow.

    python tools/once_more.py

It reads pytest's record of the last run. More than ten failures are not due to a busy machine. Exit codes: 0 all of
them pass alone, and are named; 1 one fails again, or there are none or too many.
"""

import json
import subprocess
import sys
from pathlib import Path

MAX_FAILED = 10
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    """Run the tests that failed."""
    try:
        failed = sorted(json.loads(LAST_FAILED.read_text()))
    except (OSError, ValueError):
        failed = []
    if not 0 < len(failed) <= MAX_FAILED:
        sys.stderr.write(f"{len(failed)} tests failed; from 1 to {MAX_FAILED} are run once more\n")
        return 1
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *failed], check=False
    ).returncode
    if code == 0:
        sys.stdout.write("\nFailed beside other tests, passed alone. Look at why:\n")
        sys.stdout.writelines(f"  {name}\n" for name in failed)
    return int(code != 0)


if __name__ == "__main__":
    sys.exit(main())
