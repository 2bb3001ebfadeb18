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
for result in results.values():
    assert result["ranks"] == 2 and result["step_ms"] > 0 and len(result["steps_ms"]) == 2, result
PYTHON
