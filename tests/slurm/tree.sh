#!/bin/bash
# tree.sh RELEASE [FOLDER] - a Debian tree in FOLDER/slurm-RELEASE with Slurm of that release, for testbed.sh's TB_CHROOT, and
# the Python of that Debian, for tools/quick_elsewhere.sh. FOLDER is $ASA_SLURM_TREES, else ~/.cache/asa. Needs root and
# debootstrap; takes two to three minutes, once.
#   24.11  Debian 13 (trixie), Python 3.13
#   26.05  Debian testing (forky), Python 3.14, and Apptainer, where unstable (sid) lends it; as that suite moves on, its Slurm will one day be another
set -eu
release=${1:?usage: tree.sh RELEASE [FOLDER]}
done=${2:-${ASA_SLURM_TREES:-$HOME/.cache/asa}}/slurm-$release
case $release in
  24.11) suite=trixie ;;
  26.05) suite=forky ;;
  *) echo "tree: which Debian has Slurm $release is not known here" >&2; exit 1 ;;
esac
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v '^ *[#]' | grep -v security | grep -oE 'https?://[^ ]+/debian/?' | head -n 1)
apptainer() { # DIR: of sid, for testing has none; a tree is whole without it
  timeout 180 unshare -m --propagation private /bin/sh -c '
    mount --rbind /proc "$1/proc"; mount --rbind /dev "$1/dev"
    chroot "$1" sh -c "echo deb $2 sid main >/etc/apt/sid.list
      set -- -o Dir::Etc::sourcelist=/etc/apt/sid.list -o Dir::Etc::sourceparts=-
      apt-get update \"\$@\" && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \"\$@\" apptainer
      rm -rf /var/cache/apt/archives /var/lib/apt/lists/*"' sh "$1" "$mirror" >/tmp/tree-apptainer.log 2>&1 || true
  [ -e "$1/usr/bin/apptainer" ] || echo "tree: no Apptainer: see /tmp/tree-apptainer.log" >&2
}
if [ -x "$done/usr/sbin/slurmrestd" ] && [ -x "$done/usr/bin/python3" ]; then
  [ "$release" != 26.05 ] || [ -e "$done/usr/bin/apptainer" ] || apptainer "$done"
fi
[ -x "$done/usr/sbin/slurmrestd" ] && [ -x "$done/usr/bin/python3" ] && { echo "tree: $done is ready"; exit 0; }
dir=$done.making # becomes DIR when it is whole
rm -rf "$dir"
[ -n "$mirror" ] || { echo "tree: no Debian mirror in apt's sources" >&2; exit 1; }
command -v debootstrap >/dev/null || apt-get install -y --no-install-recommends debootstrap
mkdir -p "$dir"
script=/usr/share/debootstrap/scripts/$suite
[ -e "$script" ] || script=${script%/*}/sid # a debootstrap that is older than the suite: sid's ways are its own
debootstrap --variant=minbase "$suite" "$dir" "$mirror" "$script"
printf '#!/bin/sh\nexit 101\n' > "$dir/usr/sbin/policy-rc.d"; chmod +x "$dir/usr/sbin/policy-rc.d"
cp /etc/resolv.conf "$dir/etc/" 2>/dev/null || true
# a mirror's copy of a suite in motion may be older than its release file allows
echo 'Acquire::Check-Valid-Until "false";' > "$dir/etc/apt/apt.conf.d/90suite"
# mounts live in a private namespace of this one command: nothing to unmount
unshare -m --propagation private /bin/sh -c '
  set -e
  mount --rbind /proc "$1/proc"; mount --rbind /dev "$1/dev"
  for f in /etc/apt/apt.conf.d/*proxy* /etc/apt/apt.conf; do [ -e "$f" ] && cp "$f" "$1/etc/apt/apt.conf.d/" || :; done
  chroot "$1" sh -c "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends slurmctld slurmd slurmrestd \
    slurm-client munge slurmdbd slurm-wlm-mysql-plugin mariadb-server slurm-wlm-basic-plugins slurm-wlm-jwt-plugin python3-venv"' sh "$dir"
rm -rf "$dir/var/cache/apt/archives" "$dir"/var/lib/apt/lists/*
made=$(chroot "$dir" slurmrestd -V)
case $made in
  *" $release."*) ;;
  *) echo "tree: Debian $suite has $made by now, not $release" >&2; exit 1 ;;
esac
echo "tree: $made"
[ "$release" != 26.05 ] || apptainer "$dir"
rm -rf "$done" # one that lacks something
mv "$dir" "$done"
