# A folder for a bag that no later job needs: it is removed with its job.
asa_bag=`mktemp -d "$asa_temporary/asa-XXXXXXXX"` || asa_end unable 87
asa_passing=$asa_bag
trap 'rm -rf "$asa_passing"' EXIT
