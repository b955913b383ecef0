# The guard is not a child of what is run, which might wait for all its children.
exec 3<&0 </dev/null
(trap '' HUP INT TERM; sh -c "$1" asa-guard $$ <&3 3<&- >/dev/null 2>&1 &)
exec 3<&-
exec sh -c "$2"
