"""DDP, FSDP2, DTensor and pipelines on the backend farandole, against the same training in one process.

Called by backend.py. Each rank has its rows of each batch.
"""
import copy
import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

ROWS, WIDTH = 4, 16


class Net(nn.Module):
    """`unused`: rank 0 does not use one of its layers in odd steps."""

    def __init__(self, unused=False):
        super().__init__()
        self.first, self.side, self.last = nn.Linear(WIDTH, 32), nn.Linear(32, 32), nn.Linear(32, 1)
        self.norm = nn.BatchNorm1d(32, affine=False)
        self.unused = unused

    def forward(self, x, step=0):
        x = torch.relu(self.first(x))
        if not (self.unused and step % 2 and dist.get_rank() == 0):
            x = x + self.side(x)
        return self.last(x)


def batches(steps, rows=ROWS):
    """The same on all ranks: [rank][row][column]."""
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(dist.get_world_size(), rows, WIDTH, generator=generator),
             torch.randn(dist.get_world_size(), rows, 1, generator=generator)) for _ in range(steps)]


def train_alone(net, steps=4, rows=ROWS, accumulate=1):
    """The mean of all ranks' losses."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for step, (x, y) in enumerate(batches(steps, rows)):
        F.mse_loss(net(x.flatten(0, 1)), y.flatten(0, 1)).backward()
        if (step + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    return net


def train(net, steps=4, accumulate=1):
    rank = dist.get_rank()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for step, (x, y) in enumerate(batches(steps)):
        F.mse_loss(net(x[rank]), y[rank]).backward()
        if (step + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    return net


def same(mine, other, what, tolerance=1e-5):
    for (name, parameter), expected in zip(mine.named_parameters(), other.parameters()):
        value = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        worst = (value - expected).abs().max()
        assert worst <= tolerance, f"{what}: {name} differs by {worst}"


def fresh(**options):
    torch.manual_seed(11)
    return Net(**options)


def distributed_data_parallel():
    alone = train_alone(fresh())
    for options in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True},
                    {"bucket_cap_mb": 0.0005, "gradient_as_bucket_view": True}):
        same(train(DistributedDataParallel(fresh(), **options)), alone, f"DDP {options}")

    # Gradients of two batches, of which only the second is exchanged.
    net = DistributedDataParallel(fresh())
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for step, (x, y) in enumerate(batches(4)):
        with net.no_sync() if step % 2 == 0 else torch.enable_grad():
            F.mse_loss(net(x[dist.get_rank()]), y[dist.get_rank()]).backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    same(net, train_alone(fresh(), accumulate=2), "DDP with no_sync")

    # Parameters that one rank does not use.
    net, all_ranks = DistributedDataParallel(fresh(unused=True), find_unused_parameters=True), fresh()
    size = dist.get_world_size()
    for step, (x, y) in enumerate(batches(4)):
        net.zero_grad()
        all_ranks.zero_grad()
        F.mse_loss(net(x[dist.get_rank()], step), y[dist.get_rank()]).backward()
        for rank in range(size):
            hidden = torch.relu(all_ranks.first(x[rank]))
            if rank or step % 2 == 0:
                hidden = hidden + all_ranks.side(hidden)
            (F.mse_loss(all_ranks.last(hidden), y[rank]) / size).backward()
        for mine, expected in zip(net.parameters(), all_ranks.parameters()):
            assert torch.allclose(mine.grad, expected.grad, atol=1e-6), "DDP with unused parameters"


def hooks():
    alone = train_alone(fresh())
    for hook, tolerance in ((default_hooks.allreduce_hook, 1e-5), (default_hooks.fp16_compress_hook, 1e-2),
                            (default_hooks.bf16_compress_hook, 3e-2), (own_hook, 1e-5)):
        net = DistributedDataParallel(fresh(), bucket_cap_mb=0.001)
        net.register_comm_hook(None, hook)
        same(train(net), alone, f"DDP with {hook.__name__}", tolerance)
    try:
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    except ImportError:  # it needs NumPy
        return
    net = DistributedDataParallel(fresh())
    net.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=8, start_powerSGD_iter=2),
                           powerSGD_hook.powerSGD_hook)
    train(net)


def own_hook(_, bucket):
    """Like PowerSGD: its callbacks start collectives and wait for them."""
    tensor = bucket.buffer()
    size = dist.get_world_size()

    def halve(future):
        return future.value()[0] / 2

    def sum_again(future):
        other = dist.all_reduce(future.value() * (2 / size), async_op=True).get_future().wait()[0]
        return other / size

    return dist.all_reduce(tensor, async_op=True).get_future().then(halve).then(sum_again)


def uneven_batches():
    """Rank 0 has one batch less. Join lets it take part in the others' allreduces."""
    net, rank = DistributedDataParallel(nn.Linear(WIDTH, 1)), dist.get_rank()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(0.5)
    with net.join(divide_by_initial_world_size=True):
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        for x, y in batches(3)[:2 if rank == 0 else 3]:
            optimizer.zero_grad()
            F.mse_loss(net(x[rank]), y[rank]).backward()
            optimizer.step()
    expected = nn.Linear(WIDTH, 1)
    with torch.no_grad():
        for parameter in expected.parameters():
            parameter.fill_(0.5)
    optimizer, size = torch.optim.SGD(expected.parameters(), 0.01), dist.get_world_size()
    for step, (x, y) in enumerate(batches(3)):
        optimizer.zero_grad()
        for other in range(1 if step == 2 else 0, size):
            (F.mse_loss(expected(x[other]), y[other]) / size).backward()
        optimizer.step()
    same(net, expected, "DDP with join", 1e-4)


def sparse_gradients():
    torch.manual_seed(5)
    table = nn.Embedding(10, 3, sparse=True)
    net, rank, size = DistributedDataParallel(copy.deepcopy(table)), dist.get_rank(), dist.get_world_size()
    net(torch.tensor([rank, 7])).sum().backward()
    for other in range(size):
        (table(torch.tensor([other, 7])).sum() / size).backward()
    assert torch.allclose(net.module.weight.grad.to_dense(), table.weight.grad.to_dense())


def fully_sharded():
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard
    net = fresh()
    fully_shard(net.side)
    fully_shard(net)
    same(train(net), train_alone(fresh()), "FSDP2")
    state = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
    assert dist.get_rank() or all(torch.allclose(state[name], value, atol=1e-5)
                                  for name, value in train_alone(fresh()).state_dict().items())


def old_fully_sharded():
    from torch.distributed.fsdp import FullyShardedDataParallel
    same_as = train_alone(fresh())
    net = train(FullyShardedDataParallel(fresh(), device_id=torch.device("cpu")))
    with FullyShardedDataParallel.summon_full_params(net):
        same(net, same_as, "FSDP")


def sharded_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer
    net, alone, rank = DistributedDataParallel(fresh()), fresh(), dist.get_rank()
    mine = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)
    other = torch.optim.Adam(alone.parameters(), lr=0.01)
    for x, y in batches(3):
        for model, optimizer, source, target in ((net, mine, x[rank], y[rank]),
                                                 (alone, other, x.flatten(0, 1), y.flatten(0, 1))):
            optimizer.zero_grad()
            F.mse_loss(model(source), target).backward()
            optimizer.step()
    same(net, alone, "ZeroRedundancyOptimizer", 1e-4)


def meshes():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size, 1), mesh_dim_names=("data", "model"))
    assert mesh["data"].get_group().name() == "farandole" and mesh.get_group("model").size() == 1
    line = init_device_mesh("cpu", (size,))
    torch.manual_seed(2)
    whole = torch.randn(7, 5)
    layouts = [Shard(0), Shard(1), Replicate()]
    for source, target in itertools.product(layouts, layouts):
        moved = distribute_tensor(whole, line, [source]).redistribute(line, [target])
        assert torch.equal(moved.full_tensor(), whole), (source, target)
    from torch.distributed.tensor import DTensor
    for target in layouts:
        summed = DTensor.from_local(whole, line, [Partial()]).redistribute(line, [target])
        assert torch.allclose(summed.full_tensor(), whole * size), target
    net = nn.Sequential(nn.Linear(WIDTH, 6 * size), nn.ReLU(), nn.Linear(6 * size, 2))
    expected, x = copy.deepcopy(net), torch.randn(4, WIDTH)
    parallelize_module(net, line, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    net(x).sum().backward()
    expected(x).sum().backward()
    assert torch.allclose(net(x), expected(x), atol=1e-5)
    same_gradient = net[0].weight.grad.full_tensor()
    assert torch.allclose(same_gradient, expected[0].weight.grad, atol=1e-5)


def pipeline():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    rank, size = dist.get_rank(), dist.get_world_size()
    for schedule in (ScheduleGPipe, Schedule1F1B):
        torch.manual_seed(4)
        layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(size)))
        x, y = torch.randn(8, WIDTH), torch.randn(8, WIDTH)
        expected = copy.deepcopy(layers)
        F.mse_loss(expected(x), y).backward()
        stage = PipelineStage(layers[rank], rank, size, torch.device("cpu"))
        run = schedule(stage, 4, loss_fn=F.mse_loss)
        arguments, target = ((x,) if rank == 0 else ()), ({"target": y} if rank == size - 1 else {})
        run.step(*arguments, **target)
        assert torch.allclose(layers[rank].weight.grad, expected[rank].weight.grad, atol=1e-6), schedule.__name__


def compiled():
    """The functions that torch.compile traces, without its compiler."""
    import torch.distributed.nn.functional as autograd_functions
    x = torch.full((3,), float(dist.get_rank() + 1), requires_grad=True)
    autograd_functions.all_reduce(x * 2).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0 * dist.get_world_size()))
    gathered = autograd_functions.all_gather(x.detach())
    assert [int(part[0]) for part in gathered] == list(range(1, dist.get_world_size() + 1))


ALL = [distributed_data_parallel, hooks, uneven_batches, sparse_gradients, fully_sharded, old_fully_sharded,
       sharded_optimizer, meshes, pipeline, compiled]
# The first version of PyTorch in which the part works at all on CPUs, or gives these gradients.
SINCE = {fully_sharded: "2.7", meshes: "2.5", pipeline: "2.7"}
