# A folder for a bag that nobody is to go on with: it is gone with its job.
asa_bag=`mktemp -d "$asa_temporary/asa-XXXXXXXX"` || asa_end unable 87
asa_passing=$asa_bag
trap 'rm -rf "$asa_passing"' EXIT
