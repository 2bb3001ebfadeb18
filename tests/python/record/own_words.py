"""Uses farandole.record: numbers its steps, logs, asks whether to stop, and starts processes. Then one rank is killed."""
import os
import signal
import subprocess
import sys

import torch
import torch.distributed as dist

import farandole.record as record

run, status = sys.argv[1:]
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@record.span("forward of mine")
def forward():
    with record.span("inside"):
        return model(torch.randn(32, 64)).square().mean()


for step in range(100, 108):
    record.step(step)
    assert not record.stopping()
    optimizer.zero_grad()
    loss = forward()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    record.log(loss=loss)
for _ in range(2):
    record.log(loss=float("nan"))

if rank == 0:
    shown = subprocess.run([status, run], capture_output=True, text=True, check=True).stdout
    assert "step" in shown and "107" in shown and "not finite" in shown, shown
    # Neither a forked process nor one of its own is the rank, and both go on.
    backward = "torch.ones(1, requires_grad=True).backward()"
    subprocess.run([sys.executable, "-c", f"import torch; {backward}; import farandole.record as r; assert not r._phases"],
                   check=True)
    child = os.fork()
    if child == 0:
        eval(backward)
        os._exit(record._running())
    assert os.waitpid(child, 0)[1] == 0
dist.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
signal.pause()
