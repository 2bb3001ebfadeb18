# Sourced by scripts: the models of export_models in a temporary folder, and a check of commands that are refused.
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
