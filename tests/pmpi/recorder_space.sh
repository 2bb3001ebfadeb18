#!/usr/bin/env bash
# A recorder allocates 64 MiB. When its rank has ended, it takes only the space of its records, however the rank ended.
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/../launch/expect.sh"
cd "$work" || exit 1
unset FARANDOLE_RUN_DIR "${!SLURM_@}"
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
# at_most KIB FILE...: blocks on the disk.
at_most() {
  local most=$1 file kib
  shift
  for file in "$@"; do
    kib=$(du -k "$file" | cut -f1)
    ((kib <= most)) || fail "$file takes $kib KiB"
  done
}
traced=("$bin/farandole" run -n 3 --run-dir run --trace-mpi "$bin/calling_program" .)
recorders() { find "$1" -name '*.ftl' | grep -c . ; }

expect 0 "${traced[@]}"
[[ $(recorders run/recorder) == 3 ]] || fail "no recorders"
at_most 1000 run/recorder/*.ftl
expect 0 "$bin/farandole" timeline salvage run

# The launcher cuts that of a killed rank, and those of ranks that ended because of it.
expect 137 "${traced[@]}" killed
at_most 1000 run/recorder/*.ftl run/starts/0001/recorder/*.ftl
expect 0 "$bin/farandole" timeline salvage run
says out 'the rank ended without closing the file'

# Without a launcher, the next start cuts what it keeps.
rm -rf run
mkdir run
mpirun -q -n 2 "$bin/doomed_program" run kill 1 >out 2>err && fail "no rank was killed"
(($(du -k run/recorder/rank-0001.ftl | cut -f1) >= 1000)) || fail "the recorder of a killed rank is cut already"
expect 0 "${traced[@]}"
[[ $(recorders run/starts/0001/recorder) == 2 ]] || fail "the earlier start is not kept"
at_most 500 run/starts/0001/recorder/*.ftl
expect 0 "$bin/farandole" timeline salvage run/starts/0001
exit $((failures > 0))
