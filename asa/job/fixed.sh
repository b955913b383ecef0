# Prints a folder's path without links, if nobody else can replace what is in it, the folder itself or one above it:
# each is this user's or root's, and others may not write in it, or it has the sticky bit.
asa_fixed() { # a folder
  (
    cd -P -- "$1" || exit 1
    asa_place=`pwd -P` asa_above=.
    case $asa_place in *'
'*) exit 1 ;; esac
    asa_rest=$asa_place
    set -- . # and the folders above it
    while [ -n "${asa_rest#/}" ]; do
      asa_rest=${asa_rest%/*} asa_above=$asa_above/..
      set -- "$@" "$asa_above"
    done
    ls -ldn "$@" | awk -v user="`id -u`" -v count="$#" '
      ($3 == 0 || $3 == user) && ($1 ~ /^d....-..-/ || $1 ~ /^d........[tT]/) { fixed++ }
      END { exit fixed != count }' && printf '%s\n' "$asa_place"
  ) 2>/dev/null
}
