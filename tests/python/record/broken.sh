#!/usr/bin/env bash
# However the recorder of farandole run --trace-torch is broken, the program ends as it would have without it, and one line says why.
source "$(dirname "${BASH_SOURCE[0]}")/../../launch/expect.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unset "${!SLURM_@}" "${!FARANDOLE_RUN_@}" MASTER_ADDR MASTER_PORT FARANDOLE_STALL_SECONDS FARANDOLE_STALL_ABORT FARANDOLE_LIBRARY
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python 2>/dev/null || { echo "skipped: no Python here has the PyTorch of tools/setup"; exit 77; }
program=(/usr/bin/python3 -W ignore "$here/broken.py")

# run RANKS OPTION... -- COMMAND...
run() { timeout -k 10 300 "$bin/farandole" run -n "$1" "${@:2}"; }
# ends_as NAME RANKS RUN COMMAND...: the recorded command ends as `train` or `guest` did without a recorder.
ends_as() {
  expect 0 run "$2" --run-dir "$3" --trace-torch -- "${@:4}"
  diff <(grep "^rank [0-$(($2 - 1))]:" "$work/$1") <(sort "$work/out") >"$work/differs" || fail "another output of: $last
$(cat "$work/differs"; tail -n 20 "$work/err")"
}
# times COUNT TEXT: the number of lines with it.
times() { [[ $(grep -cE -- "$2" "$work/err") == "$1" ]] || fail "not $1 times '$2' in err of: $last
$(tail -n 30 "$work/err")"; }
recorded() { zgrep -q "$2" "$1/timeline.json.gz" || fail "no $2 in the timeline of: $last"; }
# library FILE OPTION...: makes a library of the C on stdin.
library() { cc -shared -fPIC -w -o "$work/$1" -x c - -x none "${@:2}" || fail "no $1"; }

for rank in 0 1 2; do echo "rank $rank: trained 2.048000"; done >"$work/train"
case_libraries() {  # rank 0: missing; rank 1: wrong version; rank 2: a newer glibc
  grep -o '"fdl_[a-z_]*"' "$FARANDOLE_SOURCE/src/farandole/python/farandole/_core.py" | sort -u | tr -d '"' |
    sed 's/.*/int &(void) { return 999; }/' | library 1.so
  echo 'void newer(void) {}' | library libc.so.6 -nostdlib -Wl,-soname,libc.so.6 \
    -Wl,--version-script=<(echo 'GLIBC_2.99 { global: newer; };')
  echo 'void newer(void); void call(void) { newer(); }' | library 2.so -nostdlib "$work/libc.so.6"
  rm "$work/libc.so.6"
  local messages=('0.so.*No such file' 'version [0-9]+ .*1.so version 999' "2.so.*GLIBC_2.99' not found")
  for rank in 0 1 2; do
    expect 1 env FARANDOLE_LIBRARY="$work/$rank.so" PYTHONPATH="$FARANDOLE_SOURCE/src/farandole/python" /usr/bin/python3 -c 'import farandole._core'
    says err "${messages[$rank]}.*; install the two together\$"
  done
  ends_as train 3 "$work/run" bash -c 'export FARANDOLE_LIBRARY=$0/$RANK.so; exec "$@"' "$work" "${program[@]}"
  times 1 "^farandole: nothing is recorded: rank [0-2]: farandole .*$work/[0-2].so.*; install the two together\$"
}
case_library_of_one() {
  ends_as train 2 "$work/run-one" bash -c '[[ $RANK != 1 ]] || export FARANDOLE_LIBRARY=/none.so; exec "$@"' - "${program[@]}"
  times 1 '^farandole: nothing is recorded: rank 1: .*/none.so'
}
case_other_rank() {
  ends_as train 2 "$work/run-other" bash -c '[[ $RANK != 1 ]] || set -- "$1" -S "${@:2}"; exec "$@"' - "${program[@]}"
  times 1 '^farandole: nothing is recorded: not all ranks can record'
}
case_space() {
  FAILING_FOLDER=$work/full FAILING_WRITE="1 28 on" LD_PRELOAD=$bin/failing_writes.so ends_as train 2 "$work/full" "${program[@]}"
  times 1 '^farandole: nothing is recorded: .*No space left'
}
case_read_only() {
  ends_as train 2 /sys/farandole "${program[@]}"
  times 1 '^farandole: nothing is recorded: .*/sys/farandole'
}
case_mpi() {  # On one node, nothing needs it.
  OMPI_MCA_pml=none ends_as train 2 "$work/mpi" "${program[@]}"
  times 0 '^farandole: nothing is recorded'
  recorded "$work/mpi" backward
}
case_port() {  # Everybody but torch is refused.
  library refusing.so -ldl <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int connect(int descriptor, const struct sockaddr* address, socklen_t size) {
  Dl_info caller;
  if (!dladdr(__builtin_return_address(0), &caller) || strstr(caller.dli_fname, "torch"))
    return syscall(SYS_connect, descriptor, address, size);
  errno = ECONNREFUSED;
  return -1;
}
C
  FARANDOLE_STALL_SECONDS=2 ends_as train 2 "$work/port" env LD_PRELOAD="$work/refusing.so" "${program[@]}"
  times 1 '^farandole: nothing is recorded: .*(has not come|can be made)'
}
case_cupti() {  # On rank 0 with a driver and refusing; on rank 1 without one and ending the process.
  local functions=(cuptiActivity{RegisterCallbacks,RegisterTimestampCallback,Enable,Disable,EnableRuntimeApi,EnableDriverApi,FlushAll}
    cuptiActivityGetNextRecord cuptiActivityGetNumDroppedRecords cuptiGetResultString)
  { echo 'void abort(void);'; printf 'int %s(void) { abort(); }\n' "${functions[@]}"; } | library cupti-1.so
  printf 'int %s(void) { return 15; }\n' "${functions[@]}" | library cupti-0.so
  ends_as train 2 "$work/cupti" bash -c 'export FARANDOLE_CUPTI_LIBRARY=$0/cupti-$RANK.so
    [[ $RANK != 0 ]] || export LD_LIBRARY_PATH=$1:$LD_LIBRARY_PATH; exec "${@:2}"' "$work" "$bin/../tests/double" "${program[@]}"
  recorded "$work/cupti" backward
  ! grep -q cuptiActivityEnable "$bin/../lib/libfarandole_c.so" ||
    times 1 "the GPU's activity is not recorded: CUPTI says error 15"
}
case_guest() {  # Signals, fork and exec
  expect 0 run 2 -- "${program[@]}" guest
  sort "$work/out" >"$work/guest"
  for text in 'trained 2.048000 SIGTERM SIGUSR1 SIGUSR2 7 1' 'has executed 2.048000'; do says out "^rank 1: $text\$"; done
  ends_as guest 2 "$work/guest-run" "${program[@]}" guest
  recorded "$work/guest-run" backward
}
for name in ${*:-libraries library_of_one other_rank space read_only mpi port cupti guest}; do case_$name; done
exit $((failures > 0))
