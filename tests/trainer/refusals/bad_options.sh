#!/usr/bin/env bash
# Options that cannot be: one line on stderr, the right exit code, on 1 and 2 ranks.
source "$(dirname "$0")/../common.sh"

small=(--model mlp --data synthetic --width 8 --steps 2 --timeline off)
for ranks in 1 2; do refused 64 'unknown option --epoch; did you mean --epochs' "${small[@]}" --run-dir r --epoch 3; done
refused 64 "unknown option.*widht.*did you mean width" "${small[@]}" --run-dir r --set widht=3
refused 64 "'--?epochs'|--epochs" "${small[@]}" --run-dir r --epochs many
refused 64 '--epochs is 0' "${small[@]}" --run-dir r --epochs 0
refused 64 '--batch-size is 9223372036854775807; it must be between 1 and' "${small[@]}" --run-dir r --batch-size 9223372036854775807
refused 64 '--lr is inf; it must be finite' "${small[@]}" --run-dir r --lr inf
refused 64 '--heads' --model gpt --data synthetic --width 10 --heads 3 --run-dir r
refused 64 '--data is missing' --model mlp --run-dir r
refused 64 '--run-dir is missing' --model mlp --data synthetic
refused 64 "no profile 'mnits'.*did you mean mnist" --profile mnits --data synthetic --run-dir r
refused 64 'timeline' "${small[@]}" --run-dir r --timeline sometimes
printf 'model=mlp\nwidth=8\n# a comment\nwdith=9\n' >profile.ini
refused 64 'profile.ini:4: .*wdith.*did you mean width' --profile profile.ini --data synthetic --run-dir r
refused 64 'nowhere' --model mnist --data nowhere --run-dir r
refused 64 'mnist' --model mnist --data "$text" --run-dir r
mkdir empty
refused 64 'empty' --model gpt --data empty --run-dir r
printf 'short' >short.txt
refused 64 'short.txt' --model gpt --data short.txt --run-dir r
refused 64 'samples' --model mlp --data synthetic --synthetic-samples 0 --run-dir r
touch file
refused 64 'file' "${small[@]}" --run-dir file/run
refused 64 "gpu-activity cannot be 'some'; give sample, off, steps=A-B or all" "${small[@]}" --gpu-activity some --run-dir gpu
train 1 "${small[@]}" --gpu-activity all --run-dir gpu || fail "asking for a GPU's activity"
[[ -e /dev/nvidiactl ]] || grep -q 'gpu-activity: no GPU activity is recorded' err || fail "nobody says that there is no GPU"
# MPI would wait for a program that is no rank of the training.
timeout 300 mpirun -n 2 "$bin/farandole" train "${small[@]}" --run-dir r : -n 1 sleep 50 >out 2>err
code=$?
[[ $code == 64 ]] || fail "exit code $code in a job with two programs"
grep -q 'this job has 2 programs (mpirun A : B).*an mpirun of its own' err || fail "nobody says that the job has two programs"
[[ ! -e r ]] || fail "a refused run left its run directory: $(find r)"
