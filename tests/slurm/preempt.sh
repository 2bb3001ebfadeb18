#!/usr/bin/env bash
# Jobs that Slurm preempts save a checkpoint, are requeued and finish as if nothing had happened: with PreemptMode=CANCEL after a
# grace time and without one, where farandole run requeues them, and with PreemptMode=REQUEUE, where Slurm does.
hosts=2 needs=farandole-train
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
over_tcp
export OMP_NUM_THREADS=1  # The result depends on it, bit by bit.
cat >>"$SLURM_CONF" <<'CONF'
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=graceful Nodes=node1 PriorityTier=1 PreemptMode=CANCEL GraceTime=60
PartitionName=abrupt Nodes=node1 PriorityTier=1 PreemptMode=CANCEL
PartitionName=again Nodes=node2 PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL PriorityTier=9 PreemptMode=OFF
CONF
scontrol reconfigure || fail "preemption cannot be configured"

training=(--model mlp --data synthetic --width 32 --steps 8000 --epochs 1000 --checkpoint-every never --log-steps 5)
farandole run -n 1 -- farandole train "${training[@]}" --run-dir reference >reference.out 2>&1 || fail "the reference: $(tail -n 5 reference.out)"
declare -A jobs
for run in graceful abrupt again; do
  jobs[$run]=$(sbatch --parsable --output=$run.out -p $run -n1 "$FARANDOLE_SOURCE/slurm/train.sbatch" "${training[@]}" --run-dir "$work/$run") || fail "sbatch $run"
  ln -s $run.out "out.${jobs[$run]}"
done
trains() { grep -qs '"step":5,' "$run/metrics.jsonl"; }
restarts() { scontrol show job "$job" | sed -n 's/.* Restarts=\([0-9]*\).*/\1/p'; }
has_restarted() { [[ $(restarts) -gt 0 ]]; }
is_completed() { [[ $(state) == COMPLETED ]]; }
for run in graceful abrupt again; do job=${jobs[$run]}; until_true 60 trains; done
printf '#!/bin/bash\n' | sbatch --output=urgent.out -p urgent -N2 --exclusive >urgent.id || fail "sbatch urgent"

for run in graceful abrupt again; do
  job=${jobs[$run]}
  until_true 60 has_restarted
  until_true 120 is_completed
  [[ $(restarts) == 1 ]] || fail "$run: $(restarts) restarts"
  grep -q '^stop requested: saved at step' $run.out && grep -q '^continuing from step' $run.out ||
    fail "$run does not continue: $(grep -v '^step' $run.out)"
  [[ $(farandole status $run --format json | grep -c '"state": "finished"') == 1 ]] || fail "status of $run"
  "$FARANDOLE_SOURCE/tests/trainer/checkpoints/equal_arrays" {reference,$run}/checkpoints/step-00008000.h5 || fail "the parameters of $run"
done
for run in graceful abrupt; do
  grep -q 'is requeued and continues from its checkpoint (restart 1 of 20)' $run.out || fail "$run was not requeued: $(<$run.out)"
done
grep -q 'Slurm has requeued job' again.out || fail "again: $(<again.out)"
exit $((failures > 0))
