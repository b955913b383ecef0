# Sets `asa_temporary` to a folder for files of this job, in which nobody else can put others in their place.
asa_temporary=`asa_fixed "${TMPDIR:-/tmp}"` || asa_temporary=/tmp
