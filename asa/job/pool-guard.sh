# Ends a session once nobody holds the pipe's other end; by /proc first, for `timeout` makes a group of its own.
group=$1
read -r _
for pass in 1 2 3; do
  for at in /proc/[0-9]*; do
    read -r fields <"$at/stat" || continue
    # shellcheck disable=SC2086 # words
    set -- ${fields##*) }
    [ "$4" = "$group" ] && [ "$1" != Z ] && [ "${at#/proc/}" != $$ ] && kill -KILL "${at#/proc/}"
  done
done
kill -KILL -- "-$group"
