"""Programs of this computer in a folder from which other Linuxes can run them: with their libraries and loader."""

import re
import shutil
import subprocess
from pathlib import Path

_LIBRARY = re.compile(r"^\s*(?:\S+ => )?(/\S+)", re.MULTILINE)


def bring(names, folder):
    """Put programs and all that they load into a folder; returns the folder that belongs into PATH."""
    programs, libraries, path = (folder / part for part in ("programs", "libraries", "bin"))
    for part in (programs, libraries, path):
        part.mkdir()
    for name in names:
        program = shutil.which(name)
        shutil.copy(program, programs / name)
        told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in map(Path, _LIBRARY.findall(told)):
            if not (libraries / library.name).exists():
                shutil.copy(library, libraries)
        [loader] = libraries.glob("ld-linux*")
        wrapper = path / name
        wrapper.write_text(f'#!/bin/sh\nexec {loader} --library-path {libraries} {programs / name} "$@"\n')
    for file in folder.rglob("*"):
        file.chmod(0o755)
    return path
