#!/usr/bin/env bash
# The scripts of slurm/ in real jobs: a run that was interrupted in any way is requeued and ends with the same parameters, bit for
# bit, as one that was not; a run that was cancelled, refused or requeued too often is not requeued.
hosts=4 cpus=16 needs=farandole-train
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
over_tcp
# same_data A B: all datasets of these checkpoints are equal, bit for bit.
same_data() {
  /usr/bin/python3 - "$1" "$2" <<'PYTHON'
import h5py, numpy, sys
a, b = (h5py.File(name) for name in sys.argv[1:])
names = []
a.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
assert len(names) > 10, names
for name in names:
    assert numpy.array_equal(a[name][()], b[name][()]), name
PYTHON
}

scripts=$FARANDOLE_SOURCE/slurm
# Training with these options takes some seconds.
training=(--model mlp --data synthetic --width 128 --steps 1500 --epochs 100 --checkpoint-every 400steps --log-steps 5)

declare -A jobs
hosts_of_others=(--exclude=node3,node4)  # Those are for on_three and lose_host.
# submit RUN SCRIPT SBATCH-OPTION...: the job trains in the run directory RUN, one rank on each host.
submit() {
  job=$(sbatch --parsable --output="$1.out" -N2 --ntasks-per-node=1 "${hosts_of_others[@]}" "${@:3}" "$2" "${training[@]}" --run-dir "$work/$1") || fail "sbatch $*"
  jobs[$1]=$job
  cp /dev/null "out.$job" && rm "out.$job" && ln -s "$1.out" "out.$job"
}
trains() { grep -qs '"step":5,' "$1/metrics.jsonl"; }
field() { scontrol show job "$job" | sed -n "s/.* $1=\([^ ]*\).*/\1/p"; }
is_over() { local now; now=$(state); [[ $now && ! $now =~ PENDING|RUNNING|COMPLETING|REQUEUED ]]; }
# ends RUN STATE RESTARTS EXIT-CODE: waits for the end of the run's job.
ends() {
  job=${jobs[$1]}
  until_true 150 is_over
  [[ "$(state) $(field Restarts) $(field ExitCode)" == "$2 $3 $4:0" ]] ||
    fail "$1: $(state), $(field Restarts) restarts, exit code $(field ExitCode); expected $2 $3 $4: $(grep -v ^epoch "$1.out" | tail -n 8)"
}
says_in() { grep -qE -- "$2" "$1" || fail "$1 lacks '$2': $(grep -vE '^(epoch|step)' "$1" | tail -n 8)"; }
is_whole() {  # RUN: it has finished, with the parameters of an uninterrupted run, and has its reports
  local last=checkpoints/step-00001500.h5
  grep -q '"exit_code": 0' "$1/run.json" || fail "$1 has not finished: $(tail -n 5 "$1/run.json")"
  same_data "reference/$last" "$1/$last" || fail "the parameters of $1"
  grep -q 'Where the time goes' "$1/report.txt" || fail "report.txt of $1: $(head -n 5 "$1/report.txt")"
  [[ -s $1/report.html && -s $1/logs/rank-0001.log ]] || fail "files of $1: $(ls "$1" "$1/logs")"
}

# agree RUN STATE SLURM-STATE: farandole status, squeue and sacct say so. Without Slurm, the run directory tells the state too,
# unless a fourth argument says what else it tells (a regular expression).
agree() {
  local got squeue sacct alone
  job=${jobs[$1]}
  got=$("$bin/farandole" status "$1" --format json | python3 -c 'import json, sys; run = json.load(sys.stdin)["runs"][0]; print(run["state"], run["slurm_state"])')
  alone=$(PATH=/proc/nonexistent "$bin/farandole" status "$1" --format json | sed -n 's/.*"state": "\(.*\)",.*/\1/p')
  squeue=$(squeue -h -t all -j "$job" -o %T)
  sacct=$(sacct -c -n -P -j "$job" -o state | tail -n 1)
  [[ $3 == PENDING || $3 == RUNNING ]] && sacct=$3  # It only knows jobs that have ended.
  [[ "$got $squeue $sacct $alone" =~ ^"$2 $3 $3 $3 "${4:-$2}$ ]] || fail "$1 is $got, squeue $squeue, sacct $sacct, without Slurm $alone; expected $2 $3"
}

# On three nodes, the order of additions must not depend on buckets either, which each start plans anew.
on_three() {
  salloc -Q --nodelist=node1,node2,node4 --ntasks-per-node=1 "$bin/farandole" run -n 3 -- "$bin/farandole" train --model mlp --data synthetic \
    --width 300 --steps 60 --epochs 3 --checkpoint-every 20steps "$@" >three.out 2>&1 || fail "three nodes: $(tail -n 3 three.out)"
}
continue_on_three() {
  on_three --run-dir three
  cp -r three three-cut && rm three-cut/checkpoints/step-0000006*
  on_three --run-dir three-cut --resume auto
  says_in three.out '^continuing from step [24]'
  same_data three/checkpoints/step-00000060.h5 three-cut/checkpoints/step-00000060.h5 || fail "the parameters on three nodes"
}

# A host loses power. The job continues on another one, because Slurm 22.05 sometimes starts no step of a job on a host that has
# just come back.
lose_host() {
  hosts_of_others=(--exclude=node1)  # It gets node2 and node3.
  submit lost "$scripts/train.sbatch"
  until_true 60 trains lost
  "$sandbox" kill node3
  until_true 60 eval '[[ $(field Restarts) == 1 ]]'
  ends lost COMPLETED 1 0
}

# These two mostly wait for Slurm, as the jobs below do.
both=()
for part in continue_on_three lose_host; do
  ($part; exit $((failures > 0))) &
  both+=($!)
done

# Without a warning from Slurm, with a limit, and with mpirun.
sed '/--signal/d' "$scripts/train.sbatch" >silent.sbatch
sed 's/^requeues=20/requeues=0/' "$scripts/train.sbatch" >never.sbatch
sed 's/ run --report/ run --starter mpirun --report/' "$scripts/train.sbatch" >mpirun.sbatch
grep -q -- '--starter mpirun' mpirun.sbatch || fail "mpirun.sbatch is the same script"
# A requeue also ends the program that asks for it, sometimes before this program has its answer. Here it always does.
mkdir programs
printf '#!/bin/bash\n%s "$@" || exit\n[[ $1 != requeue ]] || kill -TERM $$\n' "$(command -v scontrol)" >programs/scontrol
chmod +x programs/scontrol
sed "s|^exec |export PATH=$work/programs:\$PATH\n&|" "$scripts/train.sbatch" >unanswered.sbatch
grep -q "^export PATH=$work/programs" unanswered.sbatch || fail "unanswered.sbatch is the same script"

# Slurm looks at time limits twice a minute; the other jobs run in the meantime.
submit limit silent.sbatch --time=5
until_true 60 trains limit
"$sandbox" exec node2 pkill -STOP -f "^[^ ]*farandole-train .*$work/limit\$" || fail "no rank to hold"  # Slurm continues it.
scontrol update JobId="$job" EndTime=now+2 || fail "no new limit"
submit warned "$scripts/train.sbatch"
until_true 60 trains warned
scancel --batch --signal=USR1 "$job"
submit reference "$scripts/train.sbatch"
short=("${training[@]}")
training+=(--steps 1000000 --epochs 1000000) # These two end only because they are told to.
submit never never.sbatch
submit cancelled "$scripts/train.sbatch"
submit dropped "$scripts/train.sbatch"
training=("${short[@]}")
for run in never cancelled dropped; do until_true 60 trains $run; done
agree never running RUNNING
scancel --batch --signal=USR1 "${jobs[never]}"
scancel "${jobs[cancelled]}"
# A requeued job is cancelled before it starts again.
scancel --batch --signal=USR1 "${jobs[dropped]}"
job=${jobs[dropped]}
until_true 60 eval '[[ $(state) == PENDING ]]'
scancel "$job"
until_true 60 eval '[[ $(state) == CANCELLED ]]'
agree dropped stopped CANCELLED waiting
timeout 15 "$bin/farandole" status dropped --watch >watched || fail "farandole status --watch of a cancelled job"
ends cancelled CANCELLED 0 75
agree cancelled stopped CANCELLED
says_in cancelled.out 'saved at step'
says_in cancelled.out 'not requeued, because Slurm has ended it'
ends never FAILED 0 75
agree never stopped FAILED
says_in never.out 'the job is not requeued: Slurm has started it again 0 times \(--requeue 0\)'
says_in never/report.txt '^The run stopped on request'

submit requeued "$scripts/train.sbatch"
submit mpirun mpirun.sbatch
until_true 60 trains requeued
scontrol requeue "${jobs[requeued]}"
until_true 60 trains mpirun
scancel --batch --signal=USR1 "${jobs[mpirun]}"
job=${jobs[mpirun]}
until_true 60 eval '[[ $(state) == PENDING ]]'
agree mpirun waiting PENDING
submit unanswered unanswered.sbatch
until_true 60 trains unanswered
scancel --batch --signal=USR1 "${jobs[unanswered]}"
submit one mpirun.sbatch -N1 --ntasks-per-node=2
training+=(--optimizer wrong)
submit refused "$scripts/train.sbatch"
unset 'training[-1]' 'training[-1]'
ends refused FAILED 0 64
agree refused failed FAILED
says_in refused.out "optimizer cannot be 'wrong'"
ends one COMPLETED 0 0
ends reference COMPLETED 0 0
ends warned COMPLETED 1 0
says_in warned.out 'is requeued and continues from its checkpoint \(restart 1 of 20\)'
ends mpirun COMPLETED 1 0
ends requeued COMPLETED 1 0
ends unanswered COMPLETED 1 0
for run in warned mpirun unanswered; do ! grep 'could not be requeued' $run.out || fail "$run was requeued"; done
job=${jobs[limit]}
until_true 60 eval '[[ $(field Restarts) == 1 ]]'
scontrol update JobId="$job" TimeLimit=10
ends limit COMPLETED 1 0
says_in limit.out 'DUE TO TIME LIMIT'
says_in limit.out 'saved at step'
for run in reference warned mpirun requeued unanswered limit one; do is_whole $run; agree $run finished COMPLETED; done

for part in "${both[@]}"; do wait "$part" || fail "see above"; done
is_whole lost
exit $((failures > 0))
