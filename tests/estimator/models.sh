# Sourced by scripts: the models of export_models in a temporary folder, and checks of fits and of commands that are refused.
source "$(dirname "${BASH_SOURCE[0]}")/../trainer/common.sh"
need_h5py
export PATH=$bin:$PATH
"$bin/export_models" || fail "models"

check() {  # CODE PATTERN COMMAND...
  local code=$1 pattern=$2 got=0
  shift 2
  timeout 300 farandole "$@" >out 2>err || got=$?
  [[ $got == "$code" ]] || fail "exit code $got, not $code: $*"
  grep -qE -- "$pattern" err || fail "stderr lacks '$pattern': $*"
  [[ $(grep -c . err) == 1 ]] || fail "stderr is not one line: $*"
}
# many RANKS COMMAND-LINE...: fits whose start is of no interest share one
many() {
  local ranks=$1
  shift
  timeout 400 farandole run -n "$ranks" -- "$bin/many_fits" "$@" >out 2>err
}
# refuse CODE PATTERN OPTION...: a fit for all_refused, in which each fit ends with one line
patterns=() refusals=()
refuse() {
  patterns+=("$1 .*$2")
  refusals+=("refused ${*:3}")
}
all_refused() {  # RANKS
  many "$1" "${refusals[@]}" || fail "fits that are refused"
  mapfile -t lines <err
  [[ ${#lines[@]} == "${#patterns[@]}" ]] || fail "not one line for each refusal"
  for ((i = 0; i < ${#patterns[@]}; i++)); do
    grep -qE -- "^${patterns[i]}" <<<"${lines[i]}" || fail "not '${patterns[i]}' but '${lines[i]}': ${refusals[i]}"
  done
  patterns=() refusals=()
}
# killed FOLDER COMMAND...: kills the command once there is a checkpoint in the folder
source "$FARANDOLE_SOURCE/tests/estimator/alive.sh"
killed() {
  "${@:2}" >out 2>err &
  local pid=$! deadline=$((SECONDS + 100))
  until [[ -n $(ls "$1"/checkpoints/step-*.h5 2>/dev/null) ]] || ((SECONDS > deadline)); do sleep 0.01; done
  kill -KILL $pid
  wait $pid 2>/dev/null
  deadline=$((SECONDS + 60))
  while alive && ((SECONDS < deadline)); do sleep 0.05; done
}
