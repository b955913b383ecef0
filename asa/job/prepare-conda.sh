asa_find_conda() { # finds who knows environments
  for asa_exe in "${CONDA_EXE-}" "${MAMBA_EXE-}" conda mamba micromamba; do
    [ -n "$asa_exe" ] && command -v "$asa_exe" >/dev/null 2>&1 && return
  done
  return 1
}
asa_activate() {
  if [ -n "$asa_looks_only" ]; then # its own set-up would run
    [ -d "$1/bin" ] || asa_unready "there is no conda environment in the folder $1"
  elif asa_find_conda; then
    case ${asa_exe##*/} in
      micromamba*) asa_text=$("$asa_exe" shell activate --shell posix "$1") ;;
      *) asa_text=$("$asa_exe" shell.posix activate "$1") ;;
    esac || asa_unready "the conda environment $1 cannot be activated on $(uname -n)"
    eval "$asa_text"
  elif [ -d "$1/bin" ] && case $1 in */*) ;; *) false ;; esac; then # a folder will do without anybody who knows it
    CONDA_PREFIX=$(cd "$1" && pwd) PATH=$CONDA_PREFIX/bin:$PATH
    export CONDA_PREFIX PATH
    # shellcheck disable=SC1090 # of packages' making
    for asa_text in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do [ ! -r "$asa_text" ] || . "$asa_text"; done
  else
    asa_unready "neither conda, mamba nor micromamba is in PATH on $(uname -n), which knows the environment $1"
  fi
}
asa_is_own() { # nor has another user made a link to it
  [ -e "$1" ] || return 0
  asa_owned "$1" || return 1
  [ -L "$1" ] || return 0
  case " 0 $(id -u) $(ls -lLdn "$1" | awk '{ print $3 }') " in
    *" $(ls -ldn "$1" | awk '{ print $3 }') "*) ;;
    *) return 1 ;;
  esac
}
asa_is_listed() { # among what the user trusted as this was written
  asa_real=$(cd -P -- "$1" 2>/dev/null && pwd -P) || return 1
  while IFS= read -r asa_text; do
    [ -n "$asa_text" ] || continue
    case $asa_real/ in "$asa_text"/*) return 0 ;; esac
  done <<END
$asa_trusted
END
  return 1
}
asa_refuse() { # what is another user's
  asa_unready "$1 belongs to another user: nothing in it is run. $2; or, if you trust whoever made it, list its folder" \
    "in ~/.config/asa/trusted, or name it: conda = '.${asa_prefix#"$asa_folder"}'"
}
asa_made_of() { # a file, whose content names the folder
  [ -s "$1" ] || asa_unready "there is no file $1 of a conda environment"
  asa_name=conda/$(cksum <"$1" | awk '{ print $1 "-" $2 }')
  asa_prefix=$asa_folder/.asa/$asa_name
  if asa_is_listed "$asa_prefix"; then
    asa_prefix=$asa_real # which nobody else can lead elsewhere by now
  else
    if ! asa_is_own "$asa_folder/.asa" && [ ! -d "$asa_folder/$asa_own/$asa_name/bin" ]; then
      asa_refuse "$asa_folder/.asa" "Make your own: conda env create -f '$1' -p '$asa_folder/$asa_own/$asa_name'"
    fi
    asa_is_own "$asa_folder/.asa" || asa_prefix=$asa_folder/$asa_own/$asa_name
    for asa_place in "${asa_prefix%"/$asa_name"}" "${asa_prefix%/*}" "$asa_prefix"; do
      asa_is_own "$asa_place" || asa_refuse "$asa_place" "Move it away, and make the environment anew"
    done
  fi
  [ -d "$asa_prefix/bin" ] ||
    asa_unready "of $1 no environment was made yet. Where there is a network: conda env create -f '$1' -p '$asa_prefix'"
  asa_activate "$asa_prefix"
}
case $asa_conda in *.yml | *.yaml) asa_made_of "$asa_conda" ;; *) asa_activate "$asa_conda" ;; esac
