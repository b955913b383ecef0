# Which shell runs what else is shell text, and what undoes that a program in the background ignores SIGINT and SIGQUIT.
asa_sh='sh' asa_env=
[ -z "${BASH_VERSION-}" ] || asa_sh='bash --posix' # which keeps what sh may drop, as functions that bash exported
! env --default-signal=INT,QUIT true 2>/dev/null || asa_env='env --default-signal=INT,QUIT'
