#!/usr/bin/env bash
# Install Toil for tests/toil, with what asa needs, into a virtual environment that every user can read; once.
#
#   tests/toil/install.sh [FOLDER]
#
# Whoever runs it needs a package index. It is made with the system's own Python (PYTHON), which jobs of other users see.
set -euo pipefail

folder=$(realpath -m "${1:-${ASA_TOIL:-/var/tmp/asa/toil}}")
packages="toil[cwl,wdl]==9.6.0"
umask 022

[ "$(cat "$folder/.installed" 2>/dev/null || :)" != "$packages" ] || exit 0
rm -rf "$folder"
"${PYTHON:-/usr/bin/python3}" -m venv "$folder"
"$folder/bin/python" -m pip --disable-pip-version-check install -q "$packages" \
  'httpx>=0.27' 'networkx>=3.2' 'numpy>=1.26' 'pydantic>=2.9' 'rich>=13.7' 'typer>=0.16'
chmod -R a+rX "$folder"
printf '%s\n' "$packages" >"$folder/.installed"
