# Whether a folder is this user's or root's, or of whoever makes this user's files there.
#
# Names may be swapped between two looks at them. So the folder is asked where the shell stands in it, and what this
# user makes there through a descriptor: `set -C` opens a new file, or what is no plain file, as a pipe of another user.
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
