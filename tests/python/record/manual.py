"""Evaluates, and then trains without a class for its optimizer, as articles on distributed training do it by hand."""
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
data = DataLoader(TensorDataset(torch.randn(512, 256), torch.randint(0, 10, (512,))), batch_size=64)


def evaluate():
    model.eval()
    with torch.no_grad():
        right = sum((model(images).argmax(1) == labels).sum() for images, labels in data)
    model.train()
    dist.all_reduce(right)


def train(batches):
    steps = 0
    for images, labels in batches:
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter -= 0.1 * parameter.grad / dist.get_world_size()
        steps += 1
    return steps


evaluate()
steps = train(data)
evaluate()
steps += train((torch.randn(64, 256), torch.randint(0, 10, (64,))) for _ in range(12))
if dist.get_rank() == 0:
    print(f"steps {steps}")
dist.destroy_process_group()
