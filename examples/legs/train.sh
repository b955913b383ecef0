#!/bin/sh
# What a shell script needs to run in legs is marked with a number.
step=0
[ ! -e ckpt/step ] || step=$(cat ckpt/step)                              # 1: go on from what was saved
told=
trap 'told=1' USR1                                                       # 2: asa says that this leg is to end
mkdir -p ckpt
echo "leg ${ASA_LEG:--} goes on from step $step"
while [ "$step" -lt "${1:-60}" ]; do
  sleep 1 # the work of a step
  step=$((step + 1))
  echo "$step" >ckpt/.step && mv ckpt/.step ckpt/step
  [ -z "$told" ] || exit 85                                              # 3: not yet done
done
