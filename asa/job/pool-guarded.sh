# The guard is nobody's child, so that what is run waits for none that it does not know.
exec 3<&0 </dev/null
(trap '' HUP INT TERM; sh -c "$1" asa-guard $$ <&3 3<&- >/dev/null 2>&1 &)
exec 3<&-
exec sh -c "$2"
