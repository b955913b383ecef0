asa_shell=$(set +o) asa_why='its setup ended the shell, by exit or an error'
eval "$asa_setup"
# Changes of set-up to the shell itself would also affect what follows.
# shellcheck disable=SC2181 # in a condition `set -e` of the set-up would not hold
[ "$?" -eq 0 ] || asa_unready "the last line of its setup failed"
eval "$asa_shell"
unset IFS
cd "$asa_folder" || asa_unready "$asa_folder is gone"
