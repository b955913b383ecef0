#!/usr/bin/env bash
# Install Snakemake for tests/snakemake, and tests/slurm/test_snakemake.py, into a folder that every user can read; once.
#
#   PYTHON=.venv/bin/python tests/snakemake/install.sh [FOLDER [VERSION]]
#
# Next to it, in FOLDER-slurm and FOLDER-slurm-1, are Snakemake's own executor for Slurm, of version 2 and 1: the jobs of
# its users are compared with asa's.
#
# Whoever runs it needs a package index. With VERSION `oldest` it is the oldest that the plugin promises to work with.
# Else, where there is a tree with a newer Slurm (tests/slurm/tree.sh), also into the folder of that name in it, for its
# Python: its compute nodes see nothing else.
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$(realpath -m "${1:-${ASA_SNAKEMAKE:-/var/tmp/asa/snakemake}}")
version=${2:-9.27.1}
packages="snakemake==$version snakemake-interface-executor-plugins==9.4.0"
# The oldest that pyproject.toml allows.
[ "$version" != oldest ] || packages="snakemake==9.0.0 snakemake-interface-executor-plugins==9.3.2 snakemake-interface-common==1.17.4"
pip="${PYTHON:-python3} -m pip --disable-pip-version-check"
umask 022

put() { # into a folder, with further options of pip
  local into=$1; shift
  rm -rf "$into" && mkdir -p "$into"
  $pip install -q --no-warn-script-location --target "$into" "$@"
  chmod -R a+rX "$into"
}
install() { # likewise, Snakemake and what asa needs
  put "$@" $packages 'httpx>=0.27' 'networkx>=3.2' 'numpy>=1.26' 'pydantic>=2.9' 'rich>=13.7' 'typer>=0.16'
  printf '%s\n' "$packages" >"$1/.installed"
}
lacks() { [ "$(cat "$1/.installed" 2>/dev/null)" != "$packages" ]; }

if lacks "$folder"; then install "$folder"; fi

# Plug-ins alone: what they need is Snakemake's, or here.
beside() { # a folder, and packages, perhaps with further options of pip
  [ -e "$1/.installed" ] || { put "$1" --no-deps "${@:2}"; touch "$1/.installed"; }
}
if [ "$version" != oldest ]; then
  jobstep=snakemake-executor-plugin-slurm-jobstep==0.6.1
  needs='pandas python-dateutil six throttler tzdata'
  beside "$folder-slurm" snakemake-executor-plugin-slurm==2.8.0 $jobstep $needs
  beside "$folder-slurm-1" snakemake-executor-plugin-slurm==1.9.2 $jobstep $needs
fi

tree=${ASA_SLURM_TREES:-$HOME/.cache/asa}/slurm-26.05
if [ "$version" != oldest ] && [ -L "$tree/usr/bin/python3" ] && lacks "$tree$folder"; then
  python=$(readlink "$tree/usr/bin/python3")
  wheels=$(mktemp -d); trap 'rm -rf "$wheels"' EXIT
  # There is no wheel of this one, which is plain Python.
  $pip wheel -q --no-deps -w "$wheels" connection_pool
  # There is none of this one for a Python that new. It can do without its compiled part, which is this Python's.
  $pip wheel -q --no-deps -w "$wheels" immutables
  for made in "$wheels"/immutables-*.whl; do number=${made##*/immutables-}; mv "$made" "$wheels/immutables-${number%%-*}-py3-none-any.whl"; done
  install "$tree$folder" --python-version "${python#python}" --only-binary=:all: --find-links "$wheels"
fi
if [ "$version" != oldest ] && [ -L "$tree/usr/bin/python3" ]; then
  python=$(readlink "$tree/usr/bin/python3")
  beside "$tree$folder-slurm" --python-version "${python#python}" --only-binary=:all: \
    snakemake-executor-plugin-slurm==2.8.0 $jobstep $needs
fi
