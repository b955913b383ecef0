#!/bin/sh
# release.sh - build the packages that are published, into dist, and try them:
#   metadata by `twine check --strict`; the wheel and the source package each in an empty environment of this Python, of
#   `python3.13`, `python3.14` and $NEWER_PYTHON where there is one, and of the Python of a Debian tree (tests/slurm/tree.sh
#   makes one; needs root), with the first minute of the README in each; and once with nothing pinned, as users get it.
# It writes build/requirements-VERSION.txt, too: asa and all that it needs, with hashes, tried in an empty environment.
# It ends with 75 where packages cannot be fetched, which says nothing of these.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
place=$root/build/release
tree=${ASA_SLURM_TREES:-$HOME/.cache/asa}/slurm-26.05
pip="-m pip --disable-pip-version-check -q"
unfetched() { echo "$1: packages cannot be fetched" >&2; exit 75; }
rm -rf "$place" "$root/dist" "$root/build/lib" "$root"/build/bdist.* && mkdir -p "$place" # a module that is gone would stay in a wheel

version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/pyproject.toml")
for file in "asa/__init__.py:__version__ = \"$version\"" "CITATION.cff:version: $version" "recipe/recipe.yaml:  version: \"$version\"" \
  "CHANGELOG.md:## $version - "; do
  grep -qF -- "${file#*:}" "$root/${file%%:*}" || { echo "${file%%:*}: not of version $version" >&2; exit 1; }
done

echo "== packages of $version"
"$root/.venv/bin/python" -m venv "$place/tools"
# shellcheck disable=SC2086 # several words
"$place/tools/bin/python" $pip install -c "$root/constraints.txt" build twine || unfetched tools
"$place/tools/bin/python" -m build --outdir "$root/dist" "$root" >"$place/build.log" 2>&1 || { tail -n 20 "$place/build.log"; exit 1; }
"$place/tools/bin/twine" check --strict "$root"/dist/*
wheel=$(ls "$root"/dist/asa_client-"$version"-*.whl)
source=$root/dist/asa_client-$version.tar.gz

echo "== the conda recipe, as rattler-build reads it"
# shellcheck disable=SC2086 # several words
"$place/tools/bin/python" $pip install py-rattler-build || unfetched py-rattler-build
(cd "$root" && "$place/tools/bin/python" - "${PYTHON_MIN:-3.11}") <<'END'
import sys
import rattler_build
variants = rattler_build.VariantConfig.from_yaml(f"python_min: ['{sys.argv[1]}']")
[made] = rattler_build.Stage0Recipe.from_file("recipe/recipe.yaml").render(variants)
told = made.recipe.to_dict()
print(told["package"]["name"], told["package"]["version"], *told["requirements"]["run"], sep=", ")
END

echo "== versions with hashes"
hashed=$root/build/requirements-$version.txt
"$place/tools/bin/python" "$root/tools/hashed_constraints.py" "$wheel" "$source" --out "$hashed" || exit $?

# What is in the source package is what is in the repository, without what only this workplace has.
tar tzf "$source" | sed 's,^[^/]*/,,' | sort >"$place/names"
for name in LICENSE README.md CHANGELOG.md CITATION.cff docs/index.md docs/tutorial.md examples/reads/submit.sh tests/test_docs.py asa/workflow.schema.json; do
  grep -qx "$name" "$place/names" || { echo "$source: $name is missing" >&2; exit 1; }
done
# Files and folders to which the README links.
grep -o '](\([^):]*\))' "$root/README.md" | sed 's,](\([^)#]*\).*,\1,' | sort -u >"$place/links"
while read -r name; do
  grep -q "^$name\(/\|\$\)" "$place/names" || { echo "README.md: $name is not in the source package" >&2; exit 1; }
done <"$place/links"

cat >"$place/minute.sh" <<'END'
# The first minute of the README, by the `asa` in the folder given, at home nowhere.
set -eu
PATH=$1:/usr/bin:/bin
HOME=$(mktemp -d)
export PATH HOME COLUMNS=100
cd "$HOME"
[ "$(asa --version)" = "asa $2" ] || { echo "asa --version: $(asa --version), not $2" >&2; exit 1; }
asa list >listed
asa compare montage --system hpc2n --cores 112 --seeds 2 --jobs 1 >compared
grep -q "asa-plan" compared
asa plan montage --cores 112 --backend simulated --option system=hpc2n --bank none >planned
grep -q "^1\. " planned
printf '#!/bin/sh\n#SBATCH -n 1 -t 1\necho done >said\n' >one.sbatch
asa import scripts one.sbatch --out flow.toml >/dev/null 2>&1
asa check flow.toml >/dev/null
asa run flow.toml --backend local >/dev/null 2>&1
grep -q done said
cd / && rm -rf "$HOME"
END

# try PYTHON PACKAGE WHAT
try() {
  echo "== $3: $("$1" --version), $(basename "$2")"
  rm -rf "$place/venv" && "$1" -m venv "$place/venv"
  # shellcheck disable=SC2086 # several words
  "$place/venv/bin/python" $pip install -c "$root/constraints.txt" "$2" || unfetched "$3"
  "$place/venv/bin/python" -m pip check
  sh "$place/minute.sh" "$place/venv/bin" "$version"
}
for package in "$wheel" "$source"; do
  try "$root/.venv/bin/python" "$package" "this Python"
  for newer in python3.13 python3.14 ${NEWER_PYTHON:-}; do
    ! "$newer" -c "" 2>/dev/null || try "$newer" "$package" "a newer Python"
  done
done

echo "== this Python, with hashes"
rm -rf "$place/venv" && "$root/.venv/bin/python" -m venv "$place/venv"
# shellcheck disable=SC2086 # several words
"$place/venv/bin/python" $pip install --require-hashes --find-links "$root/dist" -r "$hashed" || unfetched "with hashes"
sh "$place/minute.sh" "$place/venv/bin" "$version"

# What a user gets today: the newest versions of all that it needs.
echo "== this Python, nothing pinned"
rm -rf "$place/venv" && "$root/.venv/bin/python" -m venv "$place/venv"
# shellcheck disable=SC2086 # several words
"$place/venv/bin/python" $pip install "$wheel" || unfetched "nothing pinned"
sh "$place/minute.sh" "$place/venv/bin" "$version"

if [ -x "$tree/usr/bin/python3" ] && [ "$(id -u)" = 0 ]; then
  # nothing is fetched from within the tree, which knows neither this machine's mirrors nor its proxies
  number=$(chroot "$tree" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  echo "== the tree's Python $number"
  # shellcheck disable=SC2086 # several words
  "$root/.venv/bin/python" $pip download --python-version "$number" --only-binary=:all: -c "$root/constraints.txt" -d "$place/wheels" \
    "$wheel" "setuptools>=77" wheel || unfetched tree
  cp "$source" "$place/wheels"
  exec unshare -m --propagation private /bin/sh -c '
    set -eu
    mkdir -p "$1/proc" "$1/dev" "$1/$2"
    mount --rbind /proc "$1/proc"; mount --rbind /dev "$1/dev"; mount --bind "$2" "$1/$2"
    for package in "$4" "$5"; do
      chroot "$1" sh -euc "cd $3; rm -rf venv; python3 -m venv venv
        venv/bin/python -m pip --disable-pip-version-check install -q --no-index --find-links wheels -c $2/constraints.txt $package
        sh minute.sh $3/venv/bin $6"
      echo "$(basename "$package"): it runs there"
    done
  ' sh "$tree" "$root" "$place" "$wheel" "$source" "$version"
fi
