#!/usr/bin/env bash
# Without a usable GPU, --device cuda is refused with the reason, and the default trains on CPUs and says why.
source "$(dirname "$0")/common.sh"
! nvidia-smi -L >/dev/null 2>&1 || { echo "skipped: this machine has a GPU; see tests/gpu/run"; exit 77; }
options=(--model mlp --data synthetic --synthetic-samples 64 --timeline off) ranks=1

refused 64 "--device cuda cannot be used: .*; use --device cpu" "${options[@]}" --run-dir x --device cuda
FARANDOLE_CUDA_LIBRARY=/proc/nowhere/libcudart.so refused 64 "/proc/nowhere/libcudart.so cannot be loaded|built without the headers" \
  "${options[@]}" --run-dir x --device cuda
train 1 "${options[@]}" --run-dir compressed --compression float16 && grep -q '^computes on CPUs: --compression' out || fail "an option of CPUs"
train 2 "${options[@]}" --run-dir cpu && grep -q '^computes on CPUs: there is no NVIDIA GPU on ' out || fail "auto"
grep -q '"device": "cpu"' cpu/run.json && ! grep -q '"gpus"' cpu/run.json || fail "run.json"

# The test double of CUDA has GPUs, and LibTorch has none.
double=$bin/../tests/libgpu_double.so
[[ -e $double ]] || exit 0
FARANDOLE_CUDA_LIBRARY=$double refused 64 "--device cuda cannot be used: LibTorch (has no CUDA here|finds no GPU)" \
  "${options[@]}" --run-dir x --device cuda
