#!/usr/bin/env bash
# farandole bench step: what it prints, and that of the gradients of our models only those are copied into buckets for which LibTorch
# has no function that computes them there: the vectors of LayerNorm, and convolutions.
source "$(dirname "$0")/common.sh"
timeout 600 "$bin/farandole" run -n 2 -- "$bin/farandole" bench step --model small-mlp,small-gpt,mnist --steps 2 --warmup 1 \
  --format json >out 2>err || fail "no result"
/usr/bin/python3 - <<'PYTHON' || fail "JSON"
import json
results = {result["model"]: result for result in json.load(open("out"))["results"]}
norms, width, of_float = 2 * 4 + 1, 256, 4
copied = {"small-mlp": 0, "small-gpt": norms * 2 * width * of_float,
          "mnist": (10 * (25 + 1) + 20 * (10 * 25 + 1)) * of_float}
assert {model: result["packed_bytes"] for model, result in results.items()} == copied, results
assert json.load(open("out"))["device"].startswith("CPUs: ") or json.load(open("out"))["device"].startswith("NVIDIA")
for result in results.values():
    assert result["ranks"] == 2 and result["step_ms"] > 0 and len(result["steps_ms"]) == 2, result
    times = result["forward_backward_ms"], result["step_without_communication_ms"]
    assert times[0] is None if json.load(open("out"))["device"].startswith("NVIDIA") else 0 < times[0] < times[1], result
PYTHON
refused() {  # PATTERN OPTION…
  timeout 60 "$bin/farandole" bench step "${@:2}" >out 2>err
  [[ $? == 64 ]] && grep -qE -- "$1" err || fail "not refused: ${*:2}"
}
refused "^farandole bench: the device cannot be 'gpu'; use cpu, cuda .* or auto" --device gpu
refused "--compression works on CPUs only; use --device cpu" --device cuda --compression float16
nvidia-smi -L >/dev/null 2>&1 || refused "--device cuda cannot be used: .*; use --device cpu" --device cuda

# On stand-ins for CUDA, NCCL and LibTorch's CUDA library.
double=$bin/../tests/libgpu_double.so torch_double=$bin/../tests/torch_double
[[ -e $double && -e $torch_double/libtorch_cuda.so ]] || exit 0
GPU_DOUBLE_DEVICES=2 FARANDOLE_CUDA_LIBRARY=$double FARANDOLE_NCCL_LIBRARY=$double LD_LIBRARY_PATH=$torch_double${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
  timeout 600 "$bin/farandole" run -n 2 -- "$bin/farandole" bench step --device cuda --model small-mlp --steps 2 --warmup 1 >out 2>err ||
  fail "on stand-ins for GPUs"
grep -q '^computes on Test double, one for each rank$' out && grep -qE '^small-mlp +2 .* % +- ' out || fail "what it says of GPUs"
