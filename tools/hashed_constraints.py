"""Write the packages that a release needs, with versions and SHA-256, for `pip install --require-hashes -r`.

`tools/release.sh` runs `python tools/hashed_constraints.py --out FILE dist/*`. pip reports what it would install for
each Python and kind of machine, with the versions of constraints.txt; nothing is installed. The file contains no
address. The exit code is 75 if pip cannot report that.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
EXTRAS = ("report", "pool", "boost")
_GLIBCS = ("_2_28", "_2_27", "_2_26", "_2_24", "_2_17", "2014")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="the wheel and the source package")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--constraints", type=Path, default=ROOT / "constraints.txt")
    parser.add_argument("--pythons", nargs="+", default=PYTHONS)
    parser.add_argument("--machines", nargs="+", default=MACHINES)
    given = parser.parse_args()
    wheel = next(path for path in given.files if path.suffix == ".whl")
    reports = [report(wheel, given.constraints, *at) for at in targets(given.pythons, given.machines)]
    given.out.write_text(document(reports, given.files, given.constraints.read_text()))


def targets(pythons, machines):
    """Yield each Python on each kind of machine."""
    return [(python, machine) for python in pythons for machine in machines]


def report(wheel, constraints, python, machine):
    """Have pip report what it would install; exit if it cannot."""
    platforms = [f"--platform=manylinux{glibc}_{machine}" for glibc in _GLIBCS]
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [
                sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--dry-run",
                "--ignore-installed", "--report", "-", "--only-binary=:all:", f"--python-version={python}", *platforms,
                f"--target={place}", "-c", str(constraints), f"{wheel}[{','.join(EXTRAS)}]",
            ],
            stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        sys.stderr.write(f"Python {python} on {machine}: pip finds no set of packages\n")
        sys.exit(75)
    return json.loads(done.stdout)


def document(reports, files, constraints):
    """Write the file: for each package all files that any report would install; for asa itself, the given files."""
    pinned = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", constraints, re.MULTILINE))
    pinned = {_plain(name): version for name, version in pinned.items()}
    own = re.match(r"(.+?)-(\d[^-]*)-", next(path for path in files if path.suffix == ".whl").name)
    found = {(_plain(own[1]), own[2]): {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}}
    for one in reports:
        for package in one["install"]:
            name, version = _plain(package["metadata"]["name"]), package["metadata"]["version"]
            if name == _plain(own[1]):
                continue
            if pinned.get(name) != version:
                sys.exit(f"{name} {version} is not of constraints.txt, which has {pinned.get(name)}: add it there")
            digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
            found.setdefault((name, version), set()).add(digest)
    lines = [
        f"# {own[1]} {own[2]} and all that it needs, with {', '.join(EXTRAS)}, as it was tested,",
        "# and the SHA-256 of each file. pip install --require-hashes -r THIS_FILE",
    ]
    for (name, version), digests in sorted(found.items()):
        lines.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{one}" for one in sorted(digests))]))
    return "\n".join(lines) + "\n"


def _plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
