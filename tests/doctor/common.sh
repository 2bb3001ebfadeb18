# Sourced by the tests of the doctor: starts jobs that fail, and checks the doctor's reports.
source "$(dirname "${BASH_SOURCE[0]}")/../launch/expect.sh"
# The launcher must see crashes, not reports of a sanitizer.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}handle_segv=0:handle_abort=0
cd "$work" || exit 1
mkdir tmp
export TMPDIR=$work/tmp  # a launcher that is killed leaves its folder there
unset OMP_NUM_THREADS FARANDOLE_STALL_SECONDS FARANDOLE_STALL_ABORT "${!SLURM_@}"
doctor=$bin/farandole-doctor
host=$(hostname)

# job CODE RANKS SCENARIO RANK [OPTION-OF-RUN...]: runs a job in the new folder run, and checks its exit code.
job() {
  local code=$1 ranks=$2 scenario=$3 root_cause=$4 got=0
  rm -rf run
  mkdir run
  FARANDOLE_RUN_DIR=$work/run timeout 300 "$bin/farandole" run -n "$ranks" "${@:5}" -- "$bin/doomed_program" run "$scenario" "$root_cause" >job.out 2>job.err || got=$?
  [[ $got == "$code" ]] || fail "the job $scenario $root_cause ended with $got, not $code: $(<job.err)"
}
# diagnosed [RUN]: calls the doctor; the text is in out, the JSON in out.json.
diagnosed() {
  expect 0 "$doctor" "${1:-run}" --format json
  cp out out.json
  python3 -m json.tool out.json >/dev/null || fail "no JSON: $(<out.json)"
  silent err
  expect 0 "$doctor" "${1:-run}"
  silent err
}
# verdict PATTERN: checks the first paragraph as one line.
verdict() {
  local text
  text=$(sed '/^$/,$d' out | tr '\n' ' ')
  grep -qE -- "$1" <<<"$text" || fail "the verdict lacks '$1': $text"
}
# field NAME VALUE: checks a value of the JSON, as Python prints it.
field() {
  local got
  got=$(python3 -c 'import json, sys; print(json.load(open("out.json"))[sys.argv[1]])' "$1")
  [[ $got == "$2" ]] || fail "$1 is $got, not $2, of: $last"
}
