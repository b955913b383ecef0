# Kills all processes of a session once nobody holds the pipe's other end. They are found in /proc, as `timeout` makes a
# process group of its own; the group is killed in any case.
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
