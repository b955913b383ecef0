#!/bin/sh
# quick_elsewhere.sh wheel|oldest|tree [DIR] - the quick tests against the built wheel, in an environment of its own:
#   wheel   with the pinned versions
#   oldest  with the oldest versions that pyproject.toml allows
#   tree    with the Python of a Debian tree in DIR (tests/slurm/tree.sh makes one); needs root
# WHEEL names the wheel if it is made already. It ends with 75 where packages cannot be fetched, which says nothing of these tests.
set -eu
unfetched() { echo "$1: packages cannot be fetched" >&2; exit 75; }
way=${1:?usage: quick_elsewhere.sh wheel|oldest|tree [DIR]}
root=$(cd "$(dirname "$0")/.." && pwd)
place=$root/build/$way
rm -rf "$place" && mkdir -p "$place"
wheel=${WHEEL:-}
if [ -z "$wheel" ]; then
  rm -rf "$root/build/lib" "$root"/build/bdist.* # a module that is gone would stay in a wheel
  "$root/.venv/bin/python" -m pip --disable-pip-version-check wheel -q --no-deps -w "$place" "$root"
  wheel=$(ls "$place"/asa_client-*.whl)
fi
versions=$root/constraints.txt
if [ "$way" = oldest ]; then
  versions=$place/oldest.txt
  "$root/.venv/bin/python" - "$root/pyproject.toml" >"$versions" <<'PY'
import itertools, sys, tomllib

project = tomllib.load(open(sys.argv[1], "rb"))["project"]
groups = [project["dependencies"], *(project["optional-dependencies"][name] for name in ("report", "pool", "boost", "test"))]
print(*(one.replace(">=", "==") for one in itertools.chain(*groups) if ">=" in one), sep="\n")
PY
fi
# Some old library warns of what a newer Python has given up: that is not for us to mend.
quick="-q -n 2 -m quick -p no:cacheprovider -W default --rootdir $root -c $root/pyproject.toml $root/tests"
if [ "$way" = tree ]; then
  tree=${2:?usage: quick_elsewhere.sh tree DIR}
  # nothing is fetched from within the tree, which knows neither this machine's mirrors nor its proxies
  version=$(chroot "$tree" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  "$root/.venv/bin/python" -m pip --disable-pip-version-check download -q --python-version "$version" --only-binary=:all: \
    -c "$versions" -d "$place/wheels" "$wheel[test]" || unfetched "$way"
  exec unshare -m --propagation private /bin/sh -c '
    set -eu
    mkdir -p "$1/proc" "$1/dev" "$1/$2"
    mount --rbind /proc "$1/proc"; mount --rbind /dev "$1/dev"; mount --bind "$2" "$1/$2"
    exec chroot "$1" sh -euc "cd $3; python3 -m venv venv
      venv/bin/python -m pip --disable-pip-version-check install -q --no-index --find-links wheels -c $4 asa-client[test]
      exec venv/bin/python -m pytest $5"
  ' sh "$tree" "$root" "$place" "$versions" "$quick"
fi
"$root/.venv/bin/python" -m venv "$place/venv"
"$place/venv/bin/python" -m pip --disable-pip-version-check install -q -c "$versions" "$wheel[test]" || unfetched "$way"
cd "$place"
# shellcheck disable=SC2086 # several words
exec venv/bin/python -m pytest $quick
