#!/usr/bin/env bash
# farandole train and slurm/train.sbatch in real Slurm jobs on two hosts: a rank that is not in the MPI world, the end of the job, and
# the files of a run.
hosts=2 needs=farandole-train
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
source "$(dirname "${BASH_SOURCE[0]}")/batch.sh"

script "farandole train --profile mnist --data synthetic --run-dir $work/alone --steps 2"
batch 60 -N1 -n2 job.sbatch
is 64
says out 'a world of 1 rank, but SLURM_NTASKS says 2'
[[ ! -e alone/checkpoints ]] || fail "a run of one rank was started"

# A rank whose MPI library does not find the process manager. The ranks then do without MPI.
script "farandole run -- bash -c '[[ \$RANK != 1 ]] || unset \${!PMIX_@}; exec farandole train --model mlp --data synthetic --run-dir $work/mixed --steps 2'"
batch 60 -N2 --ntasks-per-node=1 job.sbatch
is 0
[[ -e mixed/checkpoints ]] || fail "ranks of which one has no MPI have not trained: $(<out)"

# The end of the job is near. If its environment does not have it, Slurm is asked.
training="farandole train --model mlp --data synthetic --epochs 1000000 --checkpoint-every never --run-dir $work/ending"
script "farandole run -- env -u SLURM_JOB_END_TIME $training --stop-before 1h"
batch 60 -N2 --ntasks-per-node=1 --time=30 job.sbatch
is 75
says out 'stop requested: saved at step'
script "farandole run -- env -u SLURM_JOB_END_TIME $training --stop-before 5min --steps 9"
batch 60 -N2 --ntasks-per-node=1 --time=30 job.sbatch
is 0
[[ -e ending/checkpoints/step-00000009.h5 ]] || fail "it stopped too early: $(ls ending/checkpoints)"
! grep -e '--stop-before has no effect' out || fail "Slurm was not asked"

batch 150 -N2 --ntasks-per-node=1 "$FARANDOLE_SOURCE/slurm/train.sbatch" --profile mnist --data synthetic --run-dir "$work/run" --steps 20
is 0
python3 - "$work/run" <<'PY' || fail "the run of slurm/train.sbatch, see above; its output: $(tail -n 20 out)"
import gzip, json, pathlib, sys
run = pathlib.Path(sys.argv[1])
info = json.loads((run / "run.json").read_text())
assert info["ranks"] == 2, info["ranks"]
hosts = [host["name"] if isinstance(host, dict) else host for host in info["hosts"]]
assert sorted(set(hosts)) == ["node1", "node2"], hosts
assert info["exit_code"] == 0, info["exit_code"]
trace = json.load(gzip.open(run / "timeline.json.gz"))
events = trace["traceEvents"] if isinstance(trace, dict) else trace
processes = {event["pid"]: event["args"] for event in events if event["ph"] == "M" and event["name"] == "process_name"}
with_spans = {event["pid"] for event in events if event["ph"] == "X"}
assert {(processes[pid]["rank"], processes[pid]["host"]) for pid in with_spans} == {(0, "node1"), (1, "node2")}, processes
assert list((run / "checkpoints").glob("step-*.h5")), "a checkpoint"
assert len(list((run / "logs").glob("rank-*.log"))) == 2, "a log of each rank"
PY
exit $((failures > 0))
