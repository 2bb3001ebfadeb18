#!/usr/bin/env bash
# farandole submit of programs that are not farandole train: checked before Slurm sees them, requeued if they have saved.
hosts=2 needs=own_training
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
over_tcp

# What is wrong is said before Slurm is asked: without Slurm, too.
mkdir only && for tool in bash env farandole; do ln -s "$(command -v $tool)" only/; done
refused() {  # PATTERN ARGUMENT...
  expect 64 env PATH="$work/only" "$bin/farandole" submit "${@:2}"
  says err "^farandole submit: $1"
  [[ $(wc -l <err) == 1 && ! -e run ]] || fail "more than one line, or a folder: $last"
}
refused 'no program to submit' -N2
refused "cannot find an executable program './nothing'" -N2 --run-dir run -- ./nothing
echo 'not a program' >data.txt
refused "'./data.txt' is not executable; make it so with chmod \+x ./data.txt" -N2 --run-dir run ./data.txt
refused '--run-dir is missing; name the folder for the files of the job' -N2 -- bash -c true
refused 'the batch script calls farandole run itself' --run-dir run -- farandole run -n 2 -- bash
refused "no profile 'mnits'; did you mean mnist" --nodes 2 -- farandole train --profile mnits --data synthetic --run-dir run
refused "--optimizer cannot be 'sdg'" -- "$bin/farandole" train --data synthetic --run-dir run --optimizer sdg
refused "--data is missing" --run-dir run -- train --profile mnist
refused "unknown option --epoch; did you mean --epochs" -- farandole fit --run-dir run --epoch 3
refused "--torch-backend cannot be 'nccl'; it is farandole" --run-dir run --torch-backend nccl -- "$bin/own_training"
refused "no features given" -- fit --run-dir run --table t.csv --model net.pt
refused "--run-dir of farandole run is other, and --run-dir of the training is run" --run-dir other -- train --data synthetic --run-dir run

# A program with farandole::Run saves when it is told to, ends with 75, and goes on when Slurm starts the same command again.
expect 0 farandole submit -N2 -np 4 -t 10 --run-dir 'my run' -- "$bin/own_training" seen='two words' pause_ms=100
job=$(sed -n 's/^job  *\([0-9]*\)$/\1/p' out)
ln -s "my run/job.out" "out.$job"
grep -qx '#SBATCH --ntasks=4' "my run/job.sbatch" && ! grep -q -- --ntasks-per-node "my run/job.sbatch" || fail "the script: $(<"my run/job.sbatch")"
farandole status --watch 'my run' >watched 2>&1 &
watch=$!
trained() { grep -q '"step":[1-9][0-9]' "my run/metrics.jsonl" 2>/dev/null; }
until_true 60 trained
seen_running() { grep -qE 'running, step [0-9]+' watched; }
until_true 60 seen_running  # 120 steps take 12 s, and status looks once a second
scancel --batch --signal=USR1 "$job"
is_completed() { [[ $(state) == COMPLETED ]]; }

# Meanwhile a fit, whose run directory is named by its own options.
"$bin/export_models" && { echo x,y,z; for ((i = 0; i < 200; i++)); do echo "$((i % 7)),$((i % 5)),$((i % 7 + i % 5))"; done; } >line.csv
expect 0 farandole submit -n2 --time=10 -- farandole fit --table line.csv --features x,y --label z --model line.pt --loss mse --store runs --run line
says out "^run directory  $work/runs/line$"
fit=$(sed -n 's/^job  *\([0-9]*\)$/\1/p' out)
ln -s runs/line/job.out "out.$fit"

until_true 120 is_completed
[[ $(scontrol show job "$job" | sed -n 's/.* Restarts=\([0-9]*\).*/\1/p') == 1 ]] || fail "not requeued once: $(<"my run/job.out")"
said=$(<"my run/job.out")
saved=$(sed -nE 's/.*stop requested: saved at step ([0-9]+).*/\1/p' <<<"$said")
[[ -n $saved ]] && grep -qx "continues at step $saved" <<<"$said" && grep -q '^bits ' <<<"$said" || fail "it did not continue where it had saved: $said"
[[ $(ls "two words".*.[0-3] | wc -l) == 8 ]] || fail "not four ranks in each of two starts: $(ls)"
watch_ended() { ! kill -0 $watch 2>/dev/null; }
until_true 30 watch_ended
grep -qE 'running, step [0-9]+' watched && grep -q 'run: finished, step 120' watched || fail "status --watch: $(<watched)"
grep -q 'is requeued and continues from its checkpoint (restart 1 of 20)' "my run/job.out" || fail "no word of the requeue: $(<"my run/job.out")"
job=$fit
until_true 120 is_completed
[[ -s runs/line/model.pt ]] && grep -q 'on 2 ranks' runs/line/job.out || fail "the fit: $(<runs/line/job.out)"
# In an allocation, -N is the number of nodes, as for srun.
expect 0 salloc --quiet -N2 --overcommit farandole run -N2 -n2 hostname
[[ $(sort out | xargs) == "node1 node2" ]] || fail "farandole run -N2: $(<out)"
expect 64 salloc --quiet -N1 farandole run -N2 -np 2 hostname
says err '-N 2: this Slurm job has 1 node, and all of them are used'
exit $((failures > 0))
