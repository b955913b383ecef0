# Copies a pool's certificate to where nobody else can exchange it, as its workers call it by its name again and again:
# whose certificate it is decides who may have them run code. What was copied for workers that are no more is removed.
asa_hold "$kept" 9 && { [ -n "$trusted" ] || asa_owned "$asa_held/."; } || {
  printf 'asa: %s is not there, or belongs to another user: no worker begins\n' "$kept" >&2
  exit 87
}
node=$(uname -n)
for tls in "$scratch/tls-$node-"*; do
  if [ -d "$tls" ] && [ ! -d "/proc/${tls##*-}" ]; then rm -rf "$tls"; fi
done
tls=$scratch/tls-$node-$$
rm -rf "$tls"
(umask 077; mkdir "$tls" && cp "$asa_held"/*.pem "$tls") || exit 87
exec 9<&-
