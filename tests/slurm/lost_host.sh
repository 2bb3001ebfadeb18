#!/usr/bin/env bash
# A job of two hosts loses one of them: with --min-ranks it goes on with fewer ranks on the other one; without, it says so and ends.
hosts=2 needs=farandole-train
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
over_tcp

trains() { [[ $(cat "$1/metrics.jsonl" 2>/dev/null | wc -l) -gt 20 ]]; }
is_over() { [[ ! $(state) =~ PENDING|RUNNING|COMPLETING ]]; }
has_both_hosts() { [[ $(sinfo -h -N -o %T | grep -cx idle) == 2 ]]; }
# lose RUN OPTION...: trains in a job whose second host is lost, until the job ends; its output is in out.$job.
lose() {
  local run=$1
  shift
  printf '#!/bin/bash\nexec farandole run --max-restarts 5 %s -- farandole train --model mlp --data synthetic --width 64 --steps 6000 --epochs 1000 --checkpoint-every 20steps --log-steps 1 --run-dir %s\n' \
    "$*" "$work/$run" >job.sbatch
  job=$(sbatch --parsable --no-kill --output="$work/out.%j" -N2 --ntasks-per-node=1 job.sbatch) || fail "sbatch"
  until_true 60 trains "$run"
  "$sandbox" kill node2
  until_true 150 is_over
  code=$(scontrol show job "$job" | sed -n 's/.*ExitCode=\([0-9]*\):.*/\1/p')
  "$sandbox" start node2
  until_true 60 has_both_hosts
}
says_in_output() { grep -qE -- "$1" "out.$job" || fail "the output lacks '$1': $(grep -v '^epoch' "out.$job" | tail -n 20)"; }

lose smaller --min-ranks 1
[[ $code == 0 ]] || fail "exit code $code: $(grep -v '^epoch' "out.$job" | tail -n 20)"
says_in_output '^farandole run: node2 is lost, and the remaining 1 host has room for 1 rank$'
says_in_output '^farandole run: restart 1 of 5$'
/usr/bin/python3 - <<'PYTHON' || fail "the run on one host"
import gzip, json
run = json.load(open("smaller/run.json"))
assert (run["ranks"], run["hosts"], run["restarts"], run["exit_code"]) == (1, ["node1"], 1, 0), run
first = json.load(open("smaller/starts/0001/run.json"))
assert (first["ranks"], first["hosts"]) == (2, ["node1", "node2"]), first
trace = json.load(gzip.open("smaller/timeline.json.gz"))
spans = {event["name"] for event in trace["traceEvents"] if event["ph"] == "X"}
assert trace["otherData"]["ranks"] == 1 and ("restart" in spans or run["lost_steps"] == 0), (trace["otherData"], spans)
steps = [line["step"] for line in map(json.loads, open("smaller/metrics.jsonl")) if "loss" in line]
assert steps == sorted(set(steps)) and steps[-1] == 6000, steps[-5:]
PYTHON

lose refused
[[ $code != 0 ]] || fail "it ended with 0 without a host"
says_in_output '^farandole run: the job is not started again: node2 is lost, and the remaining 1 host has room for 1 rank; --min-ranks 1 would allow that$'
! grep -q 'restart 1 of 5' "out.$job" || fail "it was started again"
exit $((failures > 0))
