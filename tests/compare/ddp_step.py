"""One rank of PyTorch's DistributedDataParallel on Gloo, training what `farandole bench step` trains.

Prints, from rank 0, one JSON line: {"model":…, "ranks":…, "step_ms":[…]}. Started by tests/compare/step.
"""
import argparse
import json
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Mlp(nn.Module):
    def __init__(self, width=2048, layers=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).view(n, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(n, t, width))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, width=384, layers=6, heads=6, context=128):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, x):
        x = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.ln_f(x)).flatten(0, 1)


class MnistNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.drop = nn.Dropout2d()
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = torch.relu(F.max_pool2d(self.conv1(x), 2))
        x = torch.relu(F.max_pool2d(self.drop(self.conv2(x)), 2))
        x = F.dropout(torch.relu(self.fc1(x.view(-1, 320))), training=self.training)
        return self.fc2(x)


def build(name):
    """Model, its batch of random data, its optimizer: the settings of farandole bench step."""
    if name == "mlp":
        model = Mlp()
        return model, torch.randn(32, 2048), torch.randint(2048, (32,)), torch.optim.SGD(model.parameters(), 0.01, 0.9)
    if name == "gpt":
        model = Gpt()
        text = torch.randint(256, (4, 128))
        return model, text, torch.randint(256, (4 * 128,)), torch.optim.AdamW(model.parameters(), 5e-4, weight_decay=0.1)
    model = MnistNet()
    return model, torch.randn(64, 1, 28, 28), torch.randint(10, (64,)), torch.optim.SGD(model.parameters(), 0.01, 0.5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["mlp", "gpt", "mnist"], required=True)
    parser.add_argument("--adamw", action="store_true", help="AdamW instead of the model's own optimizer")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model, x, y, optimizer = build(options.model)
    if options.adamw:
        optimizer = torch.optim.AdamW(model.parameters(), 5e-4, weight_decay=0)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    times = []
    for step in range(options.warmup + options.steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(ddp(x), y).backward()
        optimizer.step()
        if step >= options.warmup:
            times.append(1e3 * (time.perf_counter() - start))
    if dist.get_rank() == 0:
        print(json.dumps({"model": options.model, "ranks": dist.get_world_size(), "step_ms": times}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
