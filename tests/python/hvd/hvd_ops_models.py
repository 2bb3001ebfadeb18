"""Gradients, batch normalization and states of models of farandole.torch. Called by hvd_ops.py."""
import copy
from importlib.util import find_spec

import numpy as np
import torch

import farandole.torch as hvd


def gradients(process_set):
    """As Horovod defines them: gradients of what one rank gives to all are averaged."""
    size, place, root = process_set.size(), process_set.rank(), process_set.ranks[-1]

    def of(function, shape, weights):
        """The gradient of the sum of weights × function(tensor), whose weights are `weights` on this rank."""
        tensor = torch.ones(shape, dtype=torch.float64, requires_grad=True)
        out = function(tensor)
        (out * torch.as_tensor(weights, dtype=torch.float64).expand_as(out)).sum().backward()
        return tensor.grad.numpy()

    own, mean = float(place + 1), (size + 1) / 2
    options = dict(process_set=process_set, prescale_factor=2.0, postscale_factor=3.0)
    assert np.allclose(of(lambda x: hvd.allreduce(x, op=hvd.Average, **options), (3,), own), 6 * mean)
    assert np.allclose(of(lambda x: hvd.allreduce(x, op=hvd.Sum, **options), (), own), 6 * mean * size)
    assert np.allclose(of(lambda x: sum(hvd.grouped_allreduce([x, 2 * x], process_set=process_set)), (3,), own),
                       3 * mean)
    assert np.allclose(of(lambda x: hvd.allgather(x, process_set=process_set), (place, 2), own), mean)
    assert np.allclose(of(lambda x: torch.cat(hvd.grouped_allgather([x, 2 * x], process_set=process_set)), (1, 2), own),
                       3 * mean)
    assert np.allclose(of(lambda x: hvd.broadcast(x, root, process_set=process_set), (4,), own),
                       mean if place == size - 1 else 0)
    # Each rank sends i rows to rank i, which weighs them with i + 1. One more row is sent to nobody.
    rows = sum(range(size))
    weights = np.concatenate([np.repeat(np.arange(size) + 1, np.arange(size)), [0]])
    sent = of(lambda x: hvd.alltoall(x, splits=list(range(size)), process_set=process_set)[0], (rows + 1, 2), own)
    assert np.allclose(sent, weights[:, None]), sent
    shares = np.array_split(np.arange(2 * size + 1), size)
    for op, factor in (hvd.Average, 6), (hvd.Sum, 6 * size):
        weights = np.concatenate([np.full(len(share), factor * (i + 1)) for i, share in enumerate(shares)])
        shared = of(lambda x: hvd.reducescatter(x, op=op, **options), (2 * size + 1, 2), own)
        assert np.allclose(shared, weights[:, None]), shared
    many = of(lambda x: torch.cat(hvd.grouped_reducescatter([x, x], op=hvd.Sum, process_set=process_set)), (size,), own)
    assert np.allclose(many, 2 * size * (np.arange(size) + 1)), many
    try:
        of(lambda x: hvd.allreduce(x, op=hvd.Max, process_set=process_set), (3,), 1)
    except NotImplementedError as error:
        assert "hvd.Average" in str(error)
    else:
        raise AssertionError("Max has no gradient")


def batch_norm():
    """Batches of different sizes, one of them empty, against one process with all of them."""
    size, place = hvd.size(), hvd.rank()
    for dtype, shape, options in ((torch.float32, (3, 5), {}), (torch.float64, (4,), dict(affine=False)),
                                  (torch.float64, (2, 2, 3, 2), dict(momentum=None)),
                                  (torch.float32, (3, 4), dict(track_running_stats=False))):
        torch.manual_seed(1)
        ours = hvd.SyncBatchNorm(shape[0], **options).to(dtype)
        kind = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 5: torch.nn.BatchNorm3d}[len(shape) + 1]
        alone = kind(shape[0], **options).to(dtype)
        if ours.affine:
            with torch.no_grad():
                alone.weight.copy_(torch.rand(shape[0]) + 0.5)
                alone.bias.copy_(torch.rand(shape[0]))
            ours.load_state_dict(alone.state_dict())
        counts = [4 * (rank + 1) if rank else (0 if size > 2 else 3) for rank in range(size)]
        for _ in range(2):
            whole = (torch.randn(sum(counts), *shape, dtype=dtype) * 3 + 20).requires_grad_()
            weights = torch.randn_like(whole)
            part = whole.detach().split(counts)[place].clone().requires_grad_()
            out, expected = ours(part), alone(whole)
            (out * weights.split(counts)[place]).sum().backward()
            (expected * weights).sum().backward()
            limit = dict(rtol=2e-4, atol=2e-5) if dtype == torch.float32 else {}
            torch.testing.assert_close(out, expected.split(counts)[place], **limit)
            torch.testing.assert_close(part.grad, whole.grad.split(counts)[place], **limit)
        for mine, other in zip(ours.parameters(), alone.parameters()):
            torch.testing.assert_close(hvd.allreduce(mine.grad, op=hvd.Sum), other.grad, rtol=1e-4, atol=1e-4)
        for mine, other in zip(ours.buffers(), alone.buffers()):
            torch.testing.assert_close(mine, other)
        ours.eval(), alone.eval()
        torch.testing.assert_close(ours(whole.detach()), alone(whole.detach()))
    half = hvd.SyncBatchNorm(2).to(torch.bfloat16)
    half(torch.randn(3, 2, dtype=torch.bfloat16, requires_grad=True)).sum().backward()
    assert half.weight.grad.dtype == torch.bfloat16


def _model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def _same(value):
    everyone = hvd.allgather_object(value)
    return all(str(other) == str(everyone[0]) for other in everyone)


def objects(sets):
    size, rank = hvd.size(), hvd.rank()
    root = size - 1
    for give in (lambda model: model.state_dict(), lambda model: list(model.named_parameters()),
                 lambda model: model.parameters()):
        model, expected = _model(rank), _model(root)
        hvd.broadcast_parameters(give(model), root_rank=root)
        for mine, other in zip(model.parameters(), expected.parameters()):
            assert torch.equal(mine, other) and mine.requires_grad
    value = hvd.broadcast_object({"epoch": rank, "of": [rank] * 1000}, root_rank=root)
    assert value == {"epoch": root, "of": [root] * 1000}
    assert hvd.broadcast_object(None, 0, name="nothing") is None
    assert hvd.allgather_object("x" * rank) == ["x" * other for other in range(size)]
    for process_set in sets:
        if process_set.included():
            first = process_set.ranks[0]
            assert hvd.broadcast_object(rank, first, process_set=process_set) == first
            assert hvd.allgather_object(rank, process_set=process_set) == process_set.ranks
    if find_spec("cloudpickle"):
        assert hvd.broadcast_object(lambda x: x * 2)(rank) == 2 * rank


def optimizers():
    size, rank = hvd.size(), hvd.rank()
    root = size - 1
    for kind, options in ((torch.optim.SGD, dict(momentum=0.9)), (torch.optim.Adam, {}), (torch.optim.SGD, {}),
                          (torch.optim.Adam, dict(lr=torch.tensor(0.5)))):
        for trained in (), (root,), range(size):  # ranks with a state, as after loading a checkpoint
            model = _model(0)
            optimizer = kind([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.25 + rank}],
                             **{"lr": 0.125 * (1 + rank), **options})
            if rank in trained:
                model(torch.randn(5, 3)).sum().backward()
                optimizer.step()
            before = copy.deepcopy(optimizer.state_dict())
            hvd.broadcast_optimizer_state(optimizer, root_rank=root)
            if rank == root:
                assert str(before) == str(optimizer.state_dict())
            assert _same(optimizer.state_dict())
            model(torch.ones(5, 3)).sum().backward()
            optimizer.step()  # goes on with it
