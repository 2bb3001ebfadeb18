# Sourced by the tests of the watchdog. Starts jobs of stall_program and reports failures.
set -uo pipefail
bin=${FARANDOLE_BIN:?the folder of the built programs}
work=$(mktemp -d)
job=
trap '[[ -z $job ]] || kill -KILL -- "-$job" 2>/dev/null; rm -rf "$work"' EXIT
unset OMP_NUM_THREADS FARANDOLE_STALL_SECONDS FARANDOLE_STALL_ABORT
failures=0
launcher=(mpirun -q)

fail() {
  echo "FAILED: $what: $*" >&2
  sed 's/^/  /' err >&2
  failures=$((failures + 1))
}
# Waits until the command succeeds, up to four minutes, because the machine may be busy.
until_true() {
  for ((i = 0; i < 4800; i++)); do
    "$@" 2>/dev/null && return
    sleep 0.05
  done
  fail "in vain: $*"
  return 1
}
has() { grep -qE -- "$1" err; }
all_have() { for ((r = 0; r < ranks; r++)); do [[ -s pid.$r ]] || return 1; done; }
# start RANKS SCENARIO RANK [NAME=VALUE...]: in a folder of its own, until all ranks run.
start() {
  ranks=$1 scenario=$2 root_cause=$3
  what="$scenario of rank $root_cause among $ranks${4:+, ${*:4}}, ${launcher[0]##*/}"
  rm -rf "$work/job"
  mkdir "$work/job"
  cd "$work/job" || exit 1
  env "${@:4}" setsid timeout 110 "${launcher[@]}" -n "$ranks" "$bin/stall_program" . "$scenario" "$root_cause" >out 2>err &
  job=$!
  until_true all_have
}
# ends CODE...: checks that the job ends with one of these exit codes.
ends() {
  local code=0
  wait "$job"
  code=$?
  job=
  [[ " $* " == *" $code "* ]] || fail "exit code $code, not $*"
  for ((r = 0; r < ranks; r++)); do
    until_true gone "$(<"pid.$r")" || kill -KILL "$(<"pid.$r")"
  done
}
gone() { [[ ! -e /proc/$1 || $(sed 's/.*) //' "/proc/$1/stat") == Z* ]]; }
