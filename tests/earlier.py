"""Earlier releases of asa, from the history of the repository: with this Python's packages, and nothing installed."""

import io
import os
import subprocess
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
RELEASES = {"0.2.0": "9b0848b283abc8f02447e65bbd422013e9d45d18"}
"""The commits of releases."""
_INSIDE = ("backends", "workflows")  # stand at the top of the repository, and are installed inside asa


def missing(release):
    """Return why a release cannot be run here; empty if it can."""
    known = subprocess.run(
        ["git", "-C", str(ROOT), "cat-file", "-e", f"{RELEASES[release]}^{{commit}}"], capture_output=True, check=False
    )
    return f"{ROOT} has no history with asa {release}" if known.returncode else ""


def make(release, folder):
    """Put a release into a folder, as installing it would; return the folder, which `environment` is of."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", RELEASES[release]], capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    for name in _INSIDE:
        (folder / "asa" / name).symlink_to(folder / name)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    about = folder / f"asa_client-{release}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {release}\n")
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = (f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in groups.items())
    (about / "entry_points.txt").write_text("\n".join(lines))
    return folder


def environment(folder):
    """Return the variables with which this Python runs that release in place of this one."""
    return {"PYTHONPATH": f"{folder}{os.pathsep}{folder / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
