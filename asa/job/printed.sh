# Lets what is printed be found where its user wants it, as a second name of the run's own file: that stays as it is, and
# whoever can change the other folder cannot change it. Names are made as Slurm makes them.
asa_number=${SLURM_JOB_ID:-${ASA_JOB_ID:-$$}}
asa_number=${asa_number%%@*} asa_of_step=
case ${ASA_IN_POOL:+pool}`readlink "/proc/$$/fd/1"` in pool* | *.step-[0-9]*.out) asa_of_step=-$ASA_STAGE ;; esac
unset ASA_IN_POOL
asa_file_of() { # a pattern; sets `asa_file`
  asa_rest=$1 asa_file= asa_job=$asa_number
  # stages, or elements, that share a job print into a file each
  case $1 in *%x* | *%[0-9]x*) ;; *) asa_job=$asa_job$asa_of_step ;; esac
  [ -n "$asa_is_alone" ] || case $1 in *%a* | *%[0-9]a*) ;; *) asa_job=${asa_job}_${SLURM_ARRAY_TASK_ID-} ;; esac
  while :; do
    case $asa_rest in *%*) ;; *) break ;; esac
    asa_file=$asa_file${asa_rest%%\%*} asa_rest=${asa_rest#*%} asa_width=
    while :; do
      case $asa_rest in [0-9]*) ;; *) break ;; esac
      asa_width=$asa_width${asa_rest%"${asa_rest#?}"} asa_rest=${asa_rest#?}
    done
    asa_in_array=
    [ -z "$asa_is_element" ] || asa_in_array=${SLURM_ARRAY_TASK_ID-}
    case $asa_rest in
      A*) asa_value=${asa_in_array:+${SLURM_ARRAY_JOB_ID-}} asa_value=${asa_value:-$asa_job} ;;
      a*) asa_value=${asa_in_array:-4294967294} ;;
      b*) asa_value=$((${asa_in_array:-4294967294} % 10)) ;;
      J* | j*) asa_value=$asa_job ;;
      N*) asa_value=${SLURMD_NODENAME:-`uname -n`} asa_value=${asa_value%%.*} ;;
      n* | t*) asa_value=0 ;;
      s*) asa_value='batch' ;;
      u*) asa_value=`id -un` ;;
      x*) asa_value=$ASA_STAGE ;;
      %*) asa_value=% ;;
      *) asa_file=$asa_file%$asa_width; continue ;;
    esac
    asa_rest=${asa_rest#?}
    case $asa_width in '' | ? | ??) ;; *) asa_width=10 ;; esac
    [ "${asa_width:-0}" -le 10 ] || asa_width=10
    case $asa_value in *[!0-9]*) asa_width= ;; esac
    [ "${asa_width:-0}" -eq 0 ] || asa_value=`printf "%0${asa_width}d" "$asa_value"`
    asa_file=$asa_file$asa_value
  done
  asa_file=$asa_file$asa_rest
  case $asa_file in /*) ;; *) asa_file=./$asa_file ;; esac
}
# The second name replaces what had it, and goes through no link. On another file system it is a link to the run's file.
# If others print into that file, too, or it is no plain file, this job prints into one of its own, which is appended in
# the end.
asa_print_to() { # a file, and 1 or 2: which of the streams
  if [ -c "$1" ]; then # as /dev/null
    if ! (: >"$1") 2>/dev/null; then asa_lose "$1" 'that device cannot be written to'; return; fi
    case $2 in 1) exec >"$1" ;; 2) exec 2>"$1" ;; esac
    return
  fi
  asa_into=${1%/*}/
  [ ! -d "$1" ] || { asa_lose "$1" 'that is a folder'; return; }
  if [ ! -d "$asa_into" ]; then
    case $asa_into in
      *'$'* | */'~'*) asa_lose "$1" "it is meant as it is written, and there is no such folder"; return ;;
    esac
    mkdir -p -- "$asa_into" 2>/dev/null || { asa_lose "$1" 'its folder cannot be made'; return; }
  fi
  # under a number that stays the same while errors of a command go elsewhere
  case $2 in 1) exec 6>&1 ;; 2) exec 7>&2 ;; esac
  asa_own=/proc/$$/fd/$(($2 + 5))
  [ ! "$1" -ef "$asa_own" ] || return 0
  asa_new=`mktemp -u "$asa_into.asa-XXXXXXXX"` || asa_new=
  if [ -n "$asa_is_alone" ] && [ -f "$asa_own" ] && [ -O "$asa_own" ]; then
    chmod go-w "$asa_own" 2>/dev/null || :
    ln -L "$asa_own" "$asa_new" 2>/dev/null || ln -s "`readlink "$asa_own"`" "$asa_new" 2>/dev/null || :
    case $2 in 1) exec 6>&- ;; 2) exec 7>&- ;; esac
  elif (umask go-w; set -C; : >"$asa_new") 2>/dev/null; then
    asa_added="$asa_added $2"
    trap asa_add EXIT
    case $2 in 1) exec 8<"$asa_new" ;; 2) exec 9<"$asa_new" ;; esac
    case $2 in 1) exec >>"$asa_new" ;; 2) exec 2>>"$asa_new" ;; esac
  fi
  mv -f -- "$asa_new" "$1" 2>/dev/null || { asa_lose "$1" 'its folder cannot be written to'; rm -f "$asa_new"; }
}
asa_lose() { printf 'asa: %s is not made, as %s: asa logs shows what this stage prints\n' "$1" "$2" >&2; }
asa_add() {
  for asa_stream in $asa_added; do
    case $asa_stream in
      1) cat <&8 >&6 ;;
      2) cat <&9 >&7 ;;
    esac
  done
}
asa_added= asa_at_end=asa_add asa_printed= asa_file=
[ -z "$asa_stdout" ] || asa_file_of "$asa_stdout"
asa_printed=$asa_file
[ -z "$asa_stderr" ] || asa_file_of "$asa_stderr"
if [ "$asa_file" != "$asa_printed" ] && [ -n "$asa_printed" ]; then asa_print_to "$asa_printed" 1; fi
asa_print_to "$asa_file" 2
# Output and errors in one file are both written as errors, since Slurm's messages about the job go there.
[ "$asa_file" != "$asa_printed" ] || exec >&2
