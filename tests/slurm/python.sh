#!/usr/bin/env bash
# A script of DistributedDataParallel on two hosts, without a change: recorded on Gloo, and on our backend. The report knows the
# hosts, the steps and the collectives of both, and the training has the same result. A driver starts its ranks on both hosts.
hosts=2 needs=farandole-train
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python 2>/dev/null || skip "no PyTorch for Python"
over_tcp
cat >ddp.py <<'PYTHON'
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(3)
data = TensorDataset(torch.randn(512, 20), torch.randn(512, 1))
loader = DataLoader(data, batch_size=16, sampler=torch.utils.data.DistributedSampler(data, shuffle=False))
net = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.Tanh(), torch.nn.Linear(300, 1)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
total = sum(p.detach().double().sum() for p in net.parameters())
print(f"parameters {total:.4f}", flush=True)
dist.destroy_process_group()
PYTHON
for backend in gloo farandole; do
  timeout 300 salloc -N2 -n2 --ntasks-per-node=1 --overcommit farandole run -n 2 --run-dir $backend --trace-torch \
    $([[ $backend == gloo ]] || echo --torch-backend $backend) -- /usr/bin/python3 -W ignore ddp.py >out.$backend 2>err ||
    fail "$backend: $(tail -n 15 err)"
  farandole analyze $backend --format json >$backend.json 2>err || fail "the analysis of $backend: $(<err)"
done
sort -u out.gloo out.farandole | grep -c '^parameters' | grep -qx 1 || fail "other parameters: $(cat out.*)"
/usr/bin/python3 - <<'PYTHON' || fail "the reports"
import json

for backend in "gloo", "farandole":
    run, = json.load(open(f"{backend}.json"))["runs"]
    facts = json.load(open(f"{backend}/run.json"))
    assert (run["nodes"], run["ranks"], run["steps"] + run["warmup_steps"]) == (2, 2, 32), (backend, run)
    assert facts["hosts"] == ["node1", "node2"] and facts["global_batch"] == 32, facts
    calls = {row["operation"]: row["count"] for row in run["communication"]["collectives"]}
    # Gloo's thread says that a collective has ended, for the last one perhaps after the end of its step.
    assert calls.get("allreduce", 0) >= run["steps"] - 1, (backend, calls)
PYTHON

/usr/bin/python3 -c 'import cloudpickle' 2>/dev/null || exit $((failures > 0))
cat >driver.py <<'PYTHON'
import socket

from farandole import RankError
from pyspark.ml.torch.distributor import TorchDistributor
from sparkdl import HorovodRunner


def hosts(fails=None):
    import torch.distributed as dist
    dist.init_process_group("gloo")
    all_hosts = [None] * dist.get_world_size()
    dist.all_gather_object(all_hosts, socket.gethostname())
    if fails == socket.gethostname():
        raise ValueError("this host fails")
    return all_hosts


assert TorchDistributor(num_workers=2, local_mode=False).run(hosts) == ["node1", "node2"]
assert TorchDistributor(num_workers=2).run(hosts) == [socket.gethostname()] * 2
try:
    HorovodRunner(np=2).run(hosts, fails="node2")
except RankError as error:
    assert error.rank == 1 and str(error).startswith("rank 1 on node2: ValueError: this host fails"), error
    print("good")
PYTHON
FARANDOLE_PYTHON=/usr/bin/python3 timeout 300 salloc -N2 -n2 --ntasks-per-node=1 --overcommit farandole python -W ignore driver.py >out 2>err
[[ $(<out) == good ]] || fail "the driver: $(<out) $(tail -n 15 err)"
# Rank 0 may see that rank 1 has ended before it is ended itself.
expected='^farandole: (recorded; farandole analyze |\[rank 0\] rank 1 .* does not answer: it has ended|rank 1 on node2: the function)'
grep farandole err | grep -vE "$expected|^farandole run: rank 1 .* failed first" && fail "noise of the driver: $(<err)"
exit $((failures > 0))
