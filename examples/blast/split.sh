#!/bin/sh
# Deals the queries out to PARTS files, so that each has as many long ones as any other, and lists the tasks.
# Wants PARTS, and for blastn TASK and EVALUE.
set -eu
mkdir -p part hits
rm -f part/*.fa hits/*
# An empty file of queries is no error to blastn, so there is to be none.
queries=$(grep -c '^>' queries.fa)
[ "$queries" -ge "$PARTS" ] || { echo "$queries queries cannot be divided into $PARTS parts" >&2; exit 1; }
awk -v parts="$PARTS" '
  /^>/ { part = sprintf("part/%04d.fa", count++ % parts + 1) }
  { print >part }' queries.fa
for part in part/*.fa; do
  hits=hits/$(basename "$part" .fa)
  echo "blastn -task $TASK -db database/database -query $part -evalue $EVALUE -outfmt 6 -num_threads 1 -out $hits.draft" \
    "&& mv $hits.draft $hits.tsv && echo yes >$hits.done"
done >search.tasks
