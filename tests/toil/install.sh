#!/usr/bin/env bash
# Install Toil for tests/toil, and tests/slurm/test_toil.py, into a virtual environment that every user can read, with
# what asa needs; once.
#
#   tests/toil/install.sh [FOLDER]
#
# Whoever runs it needs a package index. It is made with the system's own Python (PYTHON), which jobs of other users see.
# Where there is a tree with a newer Slurm (tests/slurm/tree.sh), also into the folder of that name in it, for its Python:
# its compute nodes see nothing else.
set -euo pipefail

folder=$(realpath -m "${1:-${ASA_TOIL:-/var/tmp/asa/toil}}")
toil="toil[cwl,wdl]==9.6.0"
needs=('httpx>=0.27' 'networkx>=3.2' 'numpy>=1.26' 'pydantic>=2.9' 'rich>=13.7' 'typer>=0.16')
pip=("$folder/bin/python" -m pip --disable-pip-version-check)
umask 022

lacks() { [ "$(cat "$1/.installed" 2>/dev/null || :)" != "$toil" ]; }
is_whole() { chmod -R a+rX "$1"; printf '%s\n' "$toil" >"$1/.installed"; }

if lacks "$folder"; then
  rm -rf "$folder"
  "${PYTHON:-/usr/bin/python3}" -m venv "$folder"
  "${pip[@]}" install -q "$toil" "${needs[@]}"
  is_whole "$folder"
fi

tree=${ASA_SLURM_TREES:-$HOME/.cache/asa}/slurm-26.05
if [ -L "$tree/usr/bin/python3" ] && lacks "$tree$folder"; then
  python=$(readlink "$tree/usr/bin/python3")
  wheels=$(mktemp -d); trap 'rm -rf "$wheels"' EXIT
  # Of some packages there is no wheel: those of plain Python that are made here serve there, too.
  "${pip[@]}" wheel -q -w "$wheels" "$toil"
  rm -rf "$tree$folder"
  chroot "$tree" /usr/bin/python3 -m venv --without-pip "$folder"
  "${pip[@]}" install -q --no-warn-script-location --target "$tree$folder/lib/$python/site-packages" \
    --python-version "${python#python}" --only-binary=:all: --find-links "$wheels" "$toil" "${needs[@]}"
  # Their first line is this environment's Python, which has the same path there.
  mv "$tree$folder/lib/$python/site-packages/bin"/* "$tree$folder/bin/"
  # pip compiles for the Python that runs it, and users of this one may not write here.
  chroot "$tree" "$folder/bin/python" -m compileall -q "$folder/lib" 2>/dev/null || :
  is_whole "$tree$folder"
fi
