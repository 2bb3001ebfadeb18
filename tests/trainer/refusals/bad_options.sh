#!/usr/bin/env bash
# Options that cannot be end with one line on stderr and the exit code 64. train_options_test.cc has those that need
# no rank, and dataset_test.cc and models_test.cc those of data and models.
source "$(dirname "$0")/../common.sh"

small=(--model mlp --data synthetic --width 8 --steps 2 --timeline off)
for ranks in 1 2; do refused 64 'unknown option --epoch; did you mean --epochs' "${small[@]}" --run-dir r --epoch 3; done
refused 64 'nowhere' --model mnist --data nowhere --run-dir r
touch file
refused 64 'file' "${small[@]}" --run-dir file/run
train 1 "${small[@]}" --gpu-activity all --run-dir gpu || fail "asking for a GPU's activity"
[[ -e /dev/nvidiactl ]] || grep -q 'gpu-activity: no GPU activity is recorded' err || fail "nobody says that there is no GPU"
# MPI would wait for a program that is no rank of the training.
timeout 300 mpirun -n 2 "$bin/farandole" train "${small[@]}" --run-dir r : -n 1 sleep 50 >out 2>err
code=$?
[[ $code == 64 ]] || fail "exit code $code in a job with two programs"
grep -q 'this job has 2 programs (mpirun A : B).*an mpirun of its own' err || fail "nobody says that the job has two programs"
[[ ! -e r ]] || fail "a refused run left its run directory: $(find r)"
