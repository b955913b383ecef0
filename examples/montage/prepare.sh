#!/bin/sh
# What the stages work from: the tables of images and of pairs that overlap, and a list of tasks for each wide stage.
# Wants TILES, how many images raw/ should have, and PROJECT, the program that projects one.
set -eu
LC_ALL=C
export LC_ALL
mkdir -p projected difference fit corrected

# Sorted: from a folder, mImgtbl numbers images as the folder lists them, and two tables would number them differently.
{
  echo '| fname                          |'
  echo '| char                           |'
  for image in raw/*.fits; do printf '  %-32s\n' "${image#raw/}"; done
} >images.tbl
mImgtbl -t images.tbl raw raw.tbl | tee raw.said
grep -q " count=$TILES,.* badfits=0" raw.said || { echo "there are not $TILES good images in raw/" >&2; exit 1; }
mMakeHdr raw.tbl region.hdr
mOverlaps raw.tbl pairs.tbl

awk 'NR > 2 { print $1 }' images.tbl >images
while read -r image; do echo "$PROJECT raw/$image projected/$image region.hdr"; done <images >project.tasks
# By the literal name in its table mBackground looks an image up: hence not projected/$image.
while read -r image; do
  echo "cd projected && mBackground -t $image ../corrected/$image ../projected.tbl ../corrections.tbl"
done <images >background.tasks

# Of two images that do not overlap after all, mDiffFit says "ERROR" and exits with 0.
awk 'NR > 2 {
  said = $5; sub(/fits$/, "txt", said)
  printf "mDiffFit -s fit/%s projected/%s projected/%s difference/%s region.hdr", said, $3, $4, $5
  printf " && grep -q '\''stat=\"OK\"'\'' fit/%s\n", said
}' pairs.tbl >difference.tasks
awk '
  NR == 1 { print "| cntr1 | cntr2 | stat                             |" }
  NR == 2 { print "| int   | int   | char                             |" }
  NR > 2 { sub(/fits$/, "txt", $5); printf "%8d%8d  %-32s\n", $1, $2, $5 }' pairs.tbl >fits_to_read.tbl
