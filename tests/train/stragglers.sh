#!/usr/bin/env bash
# Real runs with a delayed rank or node: the analyzer names rank, host, phase and pattern, in JSON and in text, and the doctor
# agrees. With a number N, each run is repeated N times.
source "$(dirname "$0")/../trainer/common.sh"
repeats=${1:-1}

# trained RANKS FAULT STEPS [NODE]: trains in the new folder run; the reports are report.json and out.
trained() {
  rm -rf run
  FARANDOLE_RUN_DIR=$work/run timeout 300 "$bin/farandole" run -n "$1" -- ${wrapper:-} "$bin/straggling" "${@:2}" >out 2>err || fail "$*: exit code $?"
  "$bin/farandole" analyze run --format json -o report.json >out 2>err || fail "analyze, after $*"
  "$bin/farandole" doctor run >out 2>err || fail "doctor, after $*"
  grep -q '^The run ended normally' out || fail "the doctor, after $*"
  "$bin/farandole" analyze run >out 2>err || fail "analyze, after $*"
}

# named PATTERN PHASE RANKS: these ranks are named, and no other rank is late in most steps. One rank may be slower on this
# machine anyway. Therefore the delay of a rank is larger than that, or the ranks are delayed in turn.
named() {
  /usr/bin/python3 - "$@" <<'PYTHON' || fail "not named: $*"
import json, sys
pattern, phase, ranks = sys.argv[1], sys.argv[2], {int(rank) for rank in sys.argv[3].split()}
run = json.load(open("report.json"))["runs"][0]
found = {late["rank"]: late for late in run["stragglers"]}
for rank in ranks:
    host = next(one["host"] for one in run["by_rank"] if one["rank"] == rank)
    late = found.get(rank)
    assert late and (late["pattern"], late["phase"], late["host"]) == (pattern, phase, host), (rank, run["stragglers"], run["step_ms"])
always = {rank for rank, late in found.items() if late["pattern"] == "chronic"}
assert always <= ranks, (always, run["stragglers"], run["step_ms"])
PYTHON
}
# Checks the verdict or, if another loss is larger, a finding; line breaks do not matter.
says() { tr -s ' \n' ' ' <out | grep -qE -- "$1" || fail "no '$1'"; }

while ((repeats-- > 0)); do
  trained 2 backward 12
  named chronic backward 1
  says '[Rr]ank 1 \([^)]*\) is [0-9.]+ ms late in most steps, delayed in backward'

  trained 2 data 20
  named chronic data 1
  says '[Rr]ank 1 \([^)]*\) is [0-9.]+ ms late in most steps, delayed in data'

  trained 3 pause 24
  named one-off forward 1
  says '[Rr]ank 1 \([^)]*\) is [0-9.]+ ms late in [0-9]+ of 22 steps?, delayed in forward'

  if [[ -n ${1:-} ]]; then  # a machine with other work to do may hide 5 %
    trained 2 slow 200
    named chronic backward 1
    says '[Rr]ank 1 \([^)]*\) is [0-9.]+ ms late in most steps, delayed in backward'
  fi

  trained 2 turns 24
  named rotating backward "0 1"
done
