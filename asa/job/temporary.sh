# Sets `asa_temporary` to a folder for files of this job, in which nobody else can put others in their place.
asa_temporary=${TMPDIR:-/tmp}
case `ls -ldL "$asa_temporary/" 2>/dev/null` in
  d????????[tT]*) ;;
  d????-??-*) [ -O "$asa_temporary" ] || asa_temporary=/tmp ;;
  *) asa_temporary=/tmp ;;
esac
