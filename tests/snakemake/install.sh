#!/usr/bin/env bash
# Install Snakemake for tests/snakemake, and tests/slurm/test_snakemake.py, into a folder that every user can read; once.
#
#   PYTHON=.venv/bin/python tests/snakemake/install.sh [FOLDER [VERSION]]
#
# Whoever runs it needs a package index. With VERSION `oldest` it is the oldest that the plugin promises to work with.
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=${1:-${ASA_SNAKEMAKE:-/var/tmp/asa/snakemake}}
version=${2:-9.27.1}
packages="snakemake==$version snakemake-interface-executor-plugins==9.4.0"
# The oldest that pyproject.toml allows.
[ "$version" != oldest ] || packages="snakemake==9.0.0 snakemake-interface-executor-plugins==9.3.2 snakemake-interface-common==1.17.4"

if [ "$(cat "$folder/.installed" 2>/dev/null)" = "$packages" ]; then exit 0; fi
rm -rf "$folder" && mkdir -p "$folder"
umask 022
"${PYTHON:-python3}" -m pip install --disable-pip-version-check -q --no-warn-script-location --target "$folder" \
  $packages 'httpx>=0.27' 'networkx>=3.2' 'numpy>=1.26' 'pydantic>=2.9' 'rich>=13.7' 'typer>=0.16'
chmod -R a+rX "$folder"
printf '%s\n' "$packages" >"$folder/.installed"
