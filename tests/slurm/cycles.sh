#!/usr/bin/env bash
# Ten times, Slurm's warning reaches a job at a random moment, also while it starts. The job is requeued each time that it had begun
# to train, and ends with the parameters of a run that was never interrupted.
hosts=2 cpus=4 needs=farandole-train
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
over_tcp
RANDOM=${FARANDOLE_TEST_SEED:-$(date +%s)} seed=$RANDOM
steps=15000
submit() {  # RUN
  job=$(sbatch --parsable --output="$1.out" -N2 --ntasks-per-node=1 "$FARANDOLE_SOURCE/slurm/train.sbatch" --model mlp --data synthetic \
    --width 128 --steps $steps --epochs 1000 --checkpoint-every never --log-steps 100 --run-dir "$work/$1") || fail "sbatch"
  ln -s "$1.out" "out.$job"
}
is() { [[ $(state) =~ $1 ]]; }

submit run
signals=0
for ((cycle = 0; cycle < 10; cycle++)); do
  until_true 90 is 'RUNNING|COMPLETED|FAILED'
  sleep "$((RANDOM % 5)).$((RANDOM % 10))"  # The random moment.
  is RUNNING || break
  scancel --batch --signal=USR1 "$job" && signals=$((signals + 1))
  # A signal that came before the launcher or before the ranks were ready changes nothing.
  for ((i = 0; i < 40; i++)); do is PENDING && break; sleep 0.2; done
done
until_true 300 is '^(COMPLETED|FAILED|CANCELLED|TIMEOUT)$'
restarts=$(scontrol show job "$job" | sed -n 's/.* Restarts=\([0-9]*\).*/\1/p')
[[ $(state) == COMPLETED ]] || fail "the job is $(state) after $restarts restarts (seed $seed): $(grep -vE '^(epoch|step)' run.out | tail -n 20)"
((signals >= 5 && restarts >= 3)) || fail "only $signals signals and $restarts restarts (seed $seed)"
submit reference
until_true 200 is '^(COMPLETED|FAILED)$'
/usr/bin/python3 - {run,reference}/checkpoints/step-000$steps.h5 <<'PYTHON' || fail "the parameters after $restarts restarts (seed $seed)"
import h5py, numpy, sys
a, b = (h5py.File(name)["/model"] for name in sys.argv[1:])
assert len(a) >= 4
for name in a:
    assert numpy.array_equal(a[name][()], b[name][()]), name
PYTHON
echo "$signals signals, $restarts requeues, seed $seed"
exit $((failures > 0))
