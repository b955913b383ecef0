# A payload: sh step.sh UNIT CODE ...
#
# It leaves a line in `did` as it begins and as it ends, and exits with CODE; run again, with the next, or the last.
unit=$1
shift
while [ $# -gt 1 ] && ! mkdir "times/$unit.$#" 2>/dev/null; do shift; done
echo "begins $unit" >>did
sleep 0.05
echo "ends $unit $1" >>did
exit "$1"
