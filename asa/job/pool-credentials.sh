# Copies a pool's certificate to where nobody else can replace it: workers read it by its name again and again, and who
# has made it can have them run code. Copies for workers that have ended are removed.
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
