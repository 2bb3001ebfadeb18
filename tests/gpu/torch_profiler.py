"""What PyTorch's profiler costs on the model of gpt_step.cc, and its trace.

Usage: torch_profiler.py TRACE.json [--small]

Blocks of steps with and without the profiler alternate. The trace is of the last block. The last line is JSON.
--small: a small model on the CPU, to try the program."""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

SMALL = "--small" in sys.argv
LAYERS, WIDTH, HEADS, CONTEXT, BATCH, ROUNDS, STEPS = (2, 32, 2, 16, 2, 2, 2) if SMALL else (17, 768, 12, 1024, 16, 4, 10)
DEVICE = "cpu" if SMALL else "cuda"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.attn_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).view(n, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)

    def forward(self, x):
        x = self.wte(x) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.ln_f(x)).flatten(0, 1)


model = Gpt().to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
x, y = (torch.randint(256, (BATCH, CONTEXT), device=DEVICE) for _ in range(2))


def steps(profiler=None):
    """Milliseconds of a step; the GPU has nothing to do before and after the steps."""
    wait = (lambda: None) if SMALL else torch.cuda.synchronize
    wait()
    start = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y.flatten())
        loss.backward()
        optimizer.step()
        if profiler:
            profiler.step()
    wait()
    return (time.perf_counter() - start) * 1e3 / STEPS


steps()
with_profiler, without = [], []
for _ in range(ROUNDS):
    without.append(steps())
    with profile(activities=[ProfilerActivity.CPU] + ([] if SMALL else [ProfilerActivity.CUDA])) as profiler:
        steps(profiler)
        with_profiler.append(steps(profiler))
profiler.export_chrome_trace(sys.argv[1])
print(json.dumps({"step_ms": statistics.median(without),
                  "profiled_to_not": statistics.median(with_profiler) / statistics.median(without)}))
