#!/usr/bin/env bash
# A profile names the run directory. The launcher gets it from the ranks and writes its records there.
source "$(dirname "$0")/common.sh"
printf '%s\n' model=mlp data=synthetic layers=1 width=8 epochs=1 run-dir=run >named.ini
train 2 --profile named.ini || fail "training"
[[ -s run/launch/job.json && -s run/launch/rank-0000.json && -s run/launch/rank-0001.json ]] || fail "no records: $(ls -R run)"
"$bin/farandole" doctor run >out 2>err || fail "doctor"
grep -q 'farandole run .* started 2 ranks' out || fail "the doctor does not know the launcher"
