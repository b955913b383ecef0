for asa_container in "${ASA_CONTAINER-}" apptainer singularity ''; do
  [ -z "$asa_container" ] || ! command -v "$asa_container" >/dev/null 2>&1 || break
done
[ -n "$asa_container" ] || asa_unready "neither apptainer nor singularity is in PATH on $(uname -n)"
ASA_CONTAINER_OPTIONS=${ASA_CONTAINER_OPTIONS-}
[ -d "${TMPDIR:-/tmp}" ] || TMPDIR=/tmp # it may be the login node's
asa_bind=--bind asa_bound=$asa_folder
# shellcheck disable=SC2089 # the runtime reads these quotes
case $asa_folder in # `--bind` would take it apart, and older runtimes know nothing else
  *[,:]*) asa_bind=--mount asa_bound="type=bind,\"source=$asa_folder\",\"destination=$asa_folder\"" ;;
esac
# shellcheck disable=SC2090 # likewise
export asa_container asa_folder asa_bind asa_bound ASA_CONTAINER_OPTIONS ${TMPDIR+TMPDIR}
if [ -n "$asa_image" ] && ! { [ -e "$asa_image" ] || { sleep 1; ls >/dev/null 2>&1; [ -e "$asa_image" ]; }; }; then
  asa_unready "there is no container image $asa_image"
fi
