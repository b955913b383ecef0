# Whether a folder belongs to this user or root, or to the owner that this user's new files get there. Names may be
# swapped between two looks. So the folder is examined as the shell's current one, and a new file through its
# descriptor: `set -C` opens only a new file, or a special one, such as another user's pipe.
asa_owned() {
  [ ! -O "$1" ] || return 0
  (
    trap '' HUP INT TERM USR1 USR2
    cd -P -- "$1" || exit 1
    asa_owner=`ls -ldn . | awk '{ print $3 }'`
    [ "$asa_owner" != 0 ] || exit 0
    asa_probe=`mktemp -u ./.owner.XXXXXXXXXX` && [ -n "$asa_probe" ] || exit 1
    umask 077
    set -C
    asa_made=`{ ls -lLdn /dev/fd/9 | awk '{ print $1, $3 }'; } 9>"$asa_probe"`
    rm -f "$asa_probe"
    case $asa_owner:$asa_made in [0-9]*:-*" $asa_owner") ;; *) exit 1 ;; esac
  ) 2>/dev/null
}
