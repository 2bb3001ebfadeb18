#!/usr/bin/env bash
# The examples of share/farandole/examples: one function on one process and on many; the recipe of Horovod.
source "$(dirname "$0")/../trainer/common.sh"

for np in 1 2; do
  timeout 300 "$bin/example_launch" $np >out 2>err || fail "launch $np"
  grep -qE "^accuracy on $np ranks: (8|9)[0-9.]* %$" out || fail "launch $np learns nothing"
done
timeout 300 "$bin/farandole" run -n 2 -- "$bin/example_recipe" >out 2>err || fail "recipe"
[[ $(wc -l <out) == 4 && -s recipe.pt ]] || fail "recipe: rank 0 alone prints and saves"
awk '{ loss[NR] = $4 } END { exit !(loss[4] < 0.8 * loss[1]) }' out || fail "recipe learns nothing"
