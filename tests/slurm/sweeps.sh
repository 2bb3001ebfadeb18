#!/usr/bin/env bash
# The other scripts of slurm/, data copied to the nodes, and a Slurm without PMIx.
hosts=2 cpus=4 gpus=2 needs=farandole-train
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
over_tcp
scripts=$FARANDOLE_SOURCE/slurm
training=(--model mlp --data synthetic --width 16 --steps 60 --epochs 100 --checkpoint-every never)

is_over() { [[ ! $(state) =~ PENDING|RUNNING|COMPLETING|REQUEUED ]]; }
ended() {  # JOB STATE OUTPUT
  job=$1
  until_true 90 is_over
  [[ $(state | sort -u) == "$2" ]] || fail "$3 is $(state): $(tail -n 8 "$3")"
}

array=$(SWEEP=$work/array sbatch --parsable -o array-%a.out --array=1-2,9 "$scripts/array-sweep.sbatch" "${training[@]}")
scaling=$(SWEEP=$work/scaling sbatch --parsable -o scaling.out -N2 --ntasks-per-node=2 "$scripts/scaling-sweep.sbatch" "${training[@]}")

# All tasks of a node see its GPUs, of which each uses the one with the number of its local rank; or each sees only its own.
sed 's/^  farandole train .*/  bash -c '"'"'echo "rank $RANK on $(hostname) sees $CUDA_VISIBLE_DEVICES and uses $LOCAL_RANK of $LOCAL_WORLD_SIZE"'"'"'/' "$scripts/train-gpu.sbatch" >gpu.sbatch
gpu=$(sbatch --parsable -o gpu.out -N2 --ntasks-per-node=2 --gpus-per-node=2 --cpus-per-task=1 gpu.sbatch)
sed -i /--gpus-per-node/d gpu.sbatch
own_gpu=$(sbatch --parsable -o own-gpu.out -N2 --ntasks-per-node=2 --gpus-per-task=1 --cpus-per-task=1 gpu.sbatch)

# A checkout whose path has a space, with arguments that have some, too.
mkdir -p "my site/slurm"
cp "$scripts/train.sbatch" "my site/slurm/"
ln -s "${bin%/bin}" "my site/build"
spaced=$(env -u FARANDOLE_BIN PATH="${PATH#"$bin":}" sbatch --parsable -o spaced.out "my site/slurm/train.sbatch" "${training[@]}" --run-dir "$work/my run")

# Without PMIx, mpirun starts the ranks. This srun only claims that it has none.
mkdir no-pmix
printf '#!/bin/bash\n[[ $* != --mpi=list ]] || { echo none; exit; }\nexec %s "$@"\n' "$(command -v srun)" >no-pmix/srun
chmod +x no-pmix/srun
mkdir -p data scratch
head -c 200000 /usr/share/common-licenses/GPL-3 >data/text
sed "s|^scratch=.*|scratch=$work/scratch|" "$scripts/train.sbatch" >scratch.sbatch
without=$(PATH=$work/no-pmix:$PATH sbatch --parsable -o without.out -N2 --ntasks-per-node=1 scratch.sbatch --model gpt --data "$work/data" \
  --layers 1 --width 16 --heads 2 --context 16 --steps 5 --checkpoint-every never --run-dir "$work/without")

# farandole submit
expect 0 farandole submit --nodes 2 --time 10 --print -- "train" "${training[@]}" --run-dir submitted
says out '^#SBATCH --nodes=2$'
[[ ! -e submitted ]] || fail "--print made a folder"
expect 0 farandole submit --gpus-per-node a100:3,1 --print -- "train" "${training[@]}" --run-dir submitted
says out '^#SBATCH --ntasks-per-node=4$'
expect 64 farandole submit --gpus-per-node all --print -- "train" "${training[@]}" --run-dir submitted
says err 'has no number of GPUs for one task each; give --ntasks-per-node as well$'
expect 64 farandole submit --nodes 99 -- "train" "${training[@]}" --run-dir submitted
says err '^farandole submit: Slurm would refuse this job: .*node'
expect 0 farandole submit --print -- "train" "${training[@]}" --run-dir 'per%j cent'
says out "^#SBATCH --output='?$work/per%%j cent/job.out'?\$"
expect 64 farandole submit --print -- "train" "${training[@]}" --run-dir 'back\slash'
says err 'contains a backslash'
expect 64 farandole submit -- "train" "${training[@]}"
says err '^farandole submit: --run-dir of the training is missing'
expect 64 farandole submit --nodes 2
[[ ! -e submitted ]] || fail "a refused job made a folder"
expect 0 env -u FARANDOLE_BIN PATH="${PATH#"$bin":}" "$bin/farandole" submit --nodes 2 --time 10 --job-name "two words" -- "train" "${training[@]}" --run-dir submitted
says out "^run directory  $work/submitted$"
submitted=$(sed -n 's/^job  *\([0-9]*\)$/\1/p' out)

ended "$spaced" COMPLETED spaced.out
[[ -s "my run/report.txt" ]] || fail "the job of a checkout with a space: $(<spaced.out)"
ended "$scaling" COMPLETED scaling.out
for ranks in 1 2 4; do grep -q "\"ranks\": $ranks," "scaling/ranks-000$ranks/run.json" || fail "$ranks ranks: $(ls scaling)"; done
grep -qE '^ +4 +' scaling/scaling.txt && [[ -s scaling/scaling.html ]] || fail "the report of the sweep: $(<scaling/scaling.txt)"

ended "${array}_1" COMPLETED array-1.out
ended "${array}_2" COMPLETED array-2.out
ended "${array}_9" FAILED array-9.out
grep -q 'no settings for array task 9' array-9.out || fail "array-9.out: $(<array-9.out)"
for task in 1 2; do
  python3 - $task <<'PYTHON' || fail "array task $task: $(tail -n 5 array-$task.out)"
import json, sys
run = json.load(open(f"array/task-{sys.argv[1]}/run.json"))
expected = {"1": (0.003, 64), "2": (0.01, 32)}[sys.argv[1]]
assert (run["config"]["lr"], run["config"]["batch"], run["exit_code"]) == (*expected, 0), run
PYTHON
done

ended "$gpu" COMPLETED gpu.out
ended "$own_gpu" COMPLETED own-gpu.out
for rank in 0 1 2 3; do
  seen="^rank $rank on node$((rank / 2 + 1)) sees"
  grep -q "$seen 0,1 and uses $((rank % 2)) of 2$" gpu.out || fail "GPUs of rank $rank: $(<gpu.out)"
  grep -q "$seen $((rank % 2)) and uses 0 of 1$" own-gpu.out || fail "the GPU of rank $rank: $(<own-gpu.out)"
done

ended "$submitted" COMPLETED submitted/job.out
grep -q '"ranks": 2' submitted/run.json || fail "the submitted run: $(tail -n 5 submitted/job.out)"
expect 0 farandole status submitted array/task-1
says out "^submitted  *finished  *60/60 "
expect 0 farandole status submitted --watch
says out "^submitted: finished, step 60 of 60"

ended "$without" COMPLETED without.out
grep -q '"starter": "mpirun"' without/launch/job.json || fail "without PMIx, the starter was: $(grep starter without/launch/job.json)"
[[ -z $(ls scratch) ]] || fail "data was left on the nodes: $(ls scratch)"
grep -qE "2 ranks on node1, node2" without.out && grep -q "on $work/data" without.out || fail "data copied to the nodes: $(head -n 3 without.out)"

# A task of an array that is requeued leaves the others alone. The number of one of them is also that of the array.
array=$(SWEEP=$work/requeued sbatch --parsable -o requeued-%a.out --array=1-2 "$scripts/array-sweep.sbatch" "${training[@]}" \
  --steps 100000000 --epochs 100000000)
both_train() { [[ -s requeued/task-1/metrics.jsonl && -s requeued/task-2/metrics.jsonl ]]; }
job=${array}_1
until_true 90 both_train
task=$(squeue -h -j "$array" -o '%A %K' | sed -n "s/^$array //p")
[[ $task == [12] ]] || fail "no task has the number of the array: $(squeue -h -j "$array" -o '%A %K')"
field() { scontrol show job "${array}_$1" | sed -n "s/.*$2=\([^ ]*\).*/\1/p"; }
scancel --batch --signal=USR1 "${array}_$task"
until_true 90 eval '[[ $(field $task Restarts) == 1 ]]'
[[ $(field $((3 - task)) Restarts) == 0 && $(field $((3 - task)) JobState) == RUNNING ]] ||
  fail "a requeue of task $task changed the other: $(scontrol show job "${array}_$((3 - task))")"
scancel "$array"
exit $((failures > 0))
