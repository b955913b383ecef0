# What a job's script writes down, in folders of its own user: new files, which nobody else can change.

# `echo` would read a backslash as more than itself.
say() {
  said=$*
  case $said in *"$run"*) said=${said%%"$run"*}$named${said#*"$run"} ;; esac
  printf 'asa: %s\n' "$said" >&2
}
give_up() { say "$*"; exit 87; }

owned() { [ -n "$trusted" ] || [ ! -e "$1" ] || asa_owned "$1"; }
enclose() { (umask go-w; mkdir -p "$1"); }
# A new file, for nobody else to change; what lies there is removed, and no link followed.
fresh() {
  if [ -e "$1" ] || [ -L "$1" ]; then rm -f "$1"; fi
  (umask "${2-go-w}"; set -C; cat >"$1")
}

# A file appears whole: it is written under another name, then renamed. `cat` tells of a full disk, `printf` may not.
drafted() { draft=${1%/*}/.${1##*/}.$job${SLURM_CLUSTER_NAME:+@$SLURM_CLUSTER_NAME}; }
prepare() { drafted "$1"; facts "$2" | fresh "$draft"; }
commit() { drafted "$1"; mv -f "$draft" "$1"; }
drop() { drafted "$1"; rm -f "$draft"; }
facts() {
  printf 'job=%s\nhost=%s\ntime=%s\n' "$job" "$(uname -n)" "$(date +%s)"
  [ -z "$ran_on" ] || printf 'nodes=%s\n' "$ran_on"
  [ -z "$kept" ] || printf 'cores=%s\n' "$kept"
  [ -n "$1" ] || return 0
  [ "$1" -eq 0 ] && how=completed || how=${word:-failed}
  printf 'code=%s\nsignals=%s\noutcome=%s\n' "$1" "$signals" "$how"
}
mark() { patiently write "$marks/$1" "" || give_up "cannot write into $marks"; }
write() { prepare "$1" "$2" && commit "$1"; }

# A full disk may have space again soon.
patiently() {
  until "$@"; do
    [ "$patience" -gt 0 ] && [ "$signals" -eq 0 ] || return 1
    patience=$((patience - 2))
    sleep 2 || :
  done
}

# Space is taken beforehand; afterwards only the time is written, over the one that is there, and the name changed.
reserve() { patiently prepare "$1" "$2" || give_up "cannot write into ${1%/*}"; }
settle() {
  drafted "$1"
  if [ -f "$draft" ] && [ ! -L "$draft" ]; then
    { facts "$2" | cat 1<>"$draft"; } 2>/dev/null || :
    patiently commit "$1"
  else
    patiently write "$1" "$2"
  fi
}

all_posted() {
  [ -n "$posted" ] || return 1
  ls "$posts" >/dev/null 2>&1 || : # makes NFS look at the server again
  for post in $posted; do
    [ -e "$posts/$post" ] || return 1
  done
}

# The completion marker of an array is written once those of all its elements are there: the last element sees them all.
post_whole() {
  [ -n "$whole" ] && [ ! -e "$posts/$whole" ] || return 0
  [ "`ls "$posts/$whole+" | wc -l`" -ge "$count" ] || return 0
  patiently write "$posts/$whole" ""
}

# Completion markers are written before the mark of the end, so that a node may fail in between.
finish() { # an exit code, a word
  word=${2-}
  [ -z "$inner" ] || leave "$1"
  code=$1
  if [ -n "$shares" ] && [ "$word" = part-done ]; then # its part is done, and the whole is not
    for post in $posted; do drop "$posts/$post"; done
    posted= code=0
  else
    [ "$code" -ne 0 ] || [ "$signals" -eq 0 ] || code=143
  fi
  if [ "$code" -eq 0 ]; then
    for post in $posted; do
      [ -e "$posts/$post" ] || settle "$posts/$post" "" ||
        give_up "it completed, but that cannot be written into $posts"
    done
    post_whole || give_up "it completed, but that cannot be written into $posts"
    settle "$marks/ended" 0 || give_up "it completed, but that cannot be written into $marks"
  else
    for post in $posted; do drop "$posts/$post"; done
    write "$marks/ended" "$code" || give_up "cannot write into $marks"
  fi
  exit "$code"
}
