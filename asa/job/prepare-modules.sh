# `module` is a function that a login shell gets when it starts; the shell of a batch job often does not.
asa_load() {
  for asa_init in '' "${ASA_MODULES_INIT-}" "${LMOD_PKG:+$LMOD_PKG/init/sh}" "${MODULESHOME:+$MODULESHOME/init/sh}" \
    /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/sh \
    /usr/share/modules/init/sh; do
    # shellcheck disable=SC1090 # of the site's making
    if [ -n "$asa_init" ] && [ -r "$asa_init" ]; then . "$asa_init" >/dev/null; fi
    command -v module >/dev/null 2>&1 && break
  done
  command -v module >/dev/null 2>&1 ||
    asa_unready "there is no command module on $(uname -n): let ASA_MODULES_INIT be the path of the file that makes it"
  case `command -v module` in "${ASA_STAND_INS:-.}"/*) module load "$@"; return 0 ;; esac # which says that it does nothing
  for asa_module do
    asa_before=${LOADEDMODULES-}
    module load "$asa_module" || asa_unready "the module $asa_module cannot be loaded on $(uname -n)"
    case :${LOADEDMODULES-}: in *":$asa_module:"* | *":$asa_module/"*) continue ;; esac
    # older ones say that all went well, whatever became of it
    [ "$asa_before" != "${LOADEDMODULES-}" ] || asa_unready "the module $asa_module was not loaded on $(uname -n)"
  done
}
# shellcheck disable=SC2086 # names, which have no spaces
asa_load $asa_modules
