#!/usr/bin/env bash
# Training with --device cuda from the choice of GPUs to the checkpoint, with stand-ins for CUDA, NCCL and LibTorch's CUDA
# library, whose kernels compute on the CPU. The results are those of the CPU.
source "$(dirname "$0")/common.sh"
double=$bin/../tests/libgpu_double.so torch_double=$bin/../tests/torch_double
[[ -e $double && -e $torch_double/libtorch_cuda.so ]] || { echo "skipped: built without the headers of CUDA and NCCL"; exit 77; }
export FARANDOLE_CUDA_LIBRARY=$double FARANDOLE_NCCL_LIBRARY=$double
export LD_LIBRARY_PATH=$torch_double${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export GPU_DOUBLE_DEVICES=2
options=(--model mlp --data synthetic --synthetic-samples 64 --timeline off --checkpoint-every 3steps --bucket-mb 0.1 --seed 5)

uuid() { printf 'GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x' $(printf "$1 %.0s" {1..16}); }

# has_gpus RUN NUMBER…: run.json has the UUIDs of these GPUs of the machine, by rank.
has_gpus() {
  local run=$1 expected
  shift
  expected=$(for number in "$@"; do uuid "$number"; echo; done | paste -sd' ')
  /usr/bin/python3 - "$run/run.json" "$expected" <<'PY' || fail "run.json of $run lacks the GPUs $*: $(grep -A4 gpu "$run/run.json")"
import json, sys
run = json.load(open(sys.argv[1]))
sys.exit(run["device"] != "cuda" or run["gpus"] != sys.argv[2].split() or len(run["gpu_topology"]) != len(run["gpus"]))
PY
}

same_as_cpu() {  # RUN
  local last
  last=$(cd "$1/checkpoints" && ls *.h5 | tail -1)
  /usr/bin/python3 - "cpu/checkpoints/$last" "$1/checkpoints/$last" <<'PY' >out 2>err || fail "$1 has other parameters than the CPU"
import h5py, numpy, sys
a, b = (h5py.File(name)["model"] for name in sys.argv[1:])
assert len(a) > 0 and a.keys() == b.keys(), (a.keys(), b.keys())
for name in a:
    numpy.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=1e-6, err_msg=name)  # other kernels update
PY
}

same_state() {  # RUN RUN: parameters and optimizer state are the same, but for the rounding of vectors and single elements
  local last
  last=$(cd "$1/checkpoints" && ls *.h5 | tail -1)
  /usr/bin/python3 - "$1/checkpoints/$last" "$2/checkpoints/$last" <<'PY' >out 2>err || fail "$1 and $2 differ"
import h5py, numpy, sys
a, b = (h5py.File(name) for name in sys.argv[1:])
arrays = []
for group in "model", "optimizer":
    a[group].visititems(lambda name, item: arrays.append(f"{group}/{name}") if isinstance(item, h5py.Dataset) else None)
assert sum("exp_avg" in name for name in arrays) > 4, arrays
for name in arrays:
    numpy.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=1e-7, err_msg=name)
PY
}

epochs=0
need_h5py
train 2 "${options[@]}" --run-dir cpu --device cpu || fail "cpu"

# All tasks see all GPUs.
train 2 "${options[@]}" --run-dir all --device auto || fail "all GPUs visible"
has_gpus all 0 1
same_as_cpu all
grep -q '"nccl": "' all/run.json || fail "run.json lacks the version of NCCL"
/usr/bin/python3 - <<'PY' || fail "run.json does not say what the model needs and who has the memory: $(cat all/run.json)"
import json
on_cpu, run = (json.load(open(f"{name}/run.json")) for name in ("cpu", "all"))
assert run["model_flops"] == on_cpu["model_flops"] > 0 and "peak_tflops" not in run, run  # the double is no known card
memory = run["gpu_memory_by_owner_mib"]
parameters = 4 * run["parameters"] / 2**20
assert abs(memory["parameters"] - parameters) < 1e-9 and parameters <= memory["gradients"] < parameters + 0.1, memory
assert memory["activations"] + memory["optimizer"] + parameters == 64 and memory["cached"] == 32, memory
assert abs(memory["other"] - (400 - 80 - memory["gradients"])) < 1e-9, memory
assert abs(memory["peak"] - sum(value for name, value in memory.items() if name != "peak")) < 1e-9, memory
PY
"$bin/farandole" status all >out 2>err && grep -q '^  model ' out || fail "the status"

# Each task sees a GPU of its own.
timeout 240 "$bin/farandole" run -n 2 -- bash -c 'CUDA_VISIBLE_DEVICES=$((5 + OMPI_COMM_WORLD_LOCAL_RANK)) exec "$@"' _ \
  "$bin/farandole" train "${options[@]}" --run-dir own --device cuda >out 2>err || fail "a GPU for each task"
has_gpus own 5 6
same_as_cpu own

# Ranks share a GPU, through CUDA IPC.
train 3 "${options[@]}" --run-dir shared --device cuda --ranks-per-gpu 2 || fail "ranks that share GPUs"
has_gpus shared 0 0 1
! grep -q '"nccl": "' shared/run.json || fail "ranks that share GPUs do not use NCCL"

# Ranks divide the optimizer's state, and a run goes on without the division and with it.
for part in divided/on divided/off divided/on whole/off; do
  train 2 "${options[@]}" --run-dir "${part%/*}" --device cuda --optimizer adamw --shard "${part#*/}" --epochs $((++epochs > 3 ? 3 : epochs)) ||
    fail "epoch $epochs, --shard ${part#*/}"
done
grep -q '"sharding": "optimizer state is divided by 2 ranks' divided/run.json || fail "run.json does not say that the state is divided"
same_state divided whole

# Too few GPUs.
ranks=3 refused 64 "has 2 GPUs for 3 ranks; .*--ranks-per-gpu 2" "${options[@]}" --run-dir x --device cuda
train 3 "${options[@]}" --run-dir auto --device auto || fail "auto with too few GPUs"
grep -q '"device": "cpu"' auto/run.json || fail "auto with too few GPUs does not use the CPU"
