"""One rank of the tests of hvd.DistributedOptimizer. hvd_optimizer.sh starts it with the names of parts."""
import copy
import gc
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import farandole.torch as hvd

WIDTH = 16


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.side, self.last = nn.Linear(WIDTH, 32), nn.Linear(32, 32), nn.Linear(32, 1)

    def forward(self, x, side=True):
        x = torch.relu(self.first(x))
        return self.last(x + self.side(x) if side else x)


def fresh(kind=Net, seed=11, **options):
    torch.manual_seed(seed)
    return kind(**options).double()


def batches(steps, seed=3):
    """The same on all ranks: [rank][row][column]."""
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(hvd.size(), 4, WIDTH, generator=generator, dtype=torch.float64),
             torch.randn(hvd.size(), 4, 1, generator=generator, dtype=torch.float64)) for _ in range(steps)]


def sgd(net, **options):
    return torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, **options)


def distributed(net, make=sgd, **options):
    return hvd.DistributedOptimizer(make(net), named_parameters=net.named_parameters(), **options)


def own(x, y):
    return x[hvd.rank()], y[hvd.rank()]


def everyone(x, y):
    return x.flatten(0, 1), y.flatten(0, 1)


def train(net, optimizer, rows, steps=6, clip=None):
    for x, y in batches(steps):
        x, y = rows(x, y)
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        if clip is None:
            optimizer.step()
        else:
            clip(net, optimizer)
    return net


def same(net, other, tolerance=1e-12):
    for (name, value), expected in zip(net.named_parameters(), other.parameters()):
        worst = (value - expected).abs().max()
        assert worst <= tolerance, f"{name} differs by {worst}"


def raises(kind, text, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"nothing was raised; it should be: {text}")


# --- Each function below is one test of the part "behaviour" ----------------------------------------------------------


def optimizers():
    for make in (sgd, lambda net: torch.optim.Adam(net.parameters()), lambda net: torch.optim.AdamW(net.parameters()),
                 lambda net: torch.optim.RMSprop(net.parameters(), 0.001),
                 lambda net: torch.optim.Adagrad(net.parameters())):
        net, alone = fresh(), fresh()
        optimizer, plain = distributed(net, make), make(alone)
        assert isinstance(optimizer, type(plain)) and type(optimizer).__name__ == type(plain).__name__
        same(train(net, optimizer, own), train(alone, plain, everyone))
        assert optimizer.state_dict()["param_groups"] == plain.state_dict()["param_groups"]
        net = copy.deepcopy(net)
        again = distributed(net, make)
        again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        same(train(net, again, own), train(alone, plain, everyone))


def float32():
    """Within rounding, although torch's fused functions take the place of its slower ones."""
    for make in (sgd, lambda net: torch.optim.Adam(net.parameters()), lambda net: torch.optim.AdamW(net.parameters())):
        net, alone = fresh().float(), fresh().float()
        optimizer, plain = distributed(net, make), make(alone)
        for x, y in batches(3):
            for model, by, rows in ((net, optimizer, own), (alone, plain, everyone)):
                x, y = x.float(), y.float()
                by.zero_grad()
                F.mse_loss(model(rows(x, y)[0]), rows(x, y)[1]).backward()
                by.step()
        same(net, alone, 1e-6)
        assert optimizer.param_groups[0]["fused"] is None
        optimizer.param_groups[0]["lr"] = torch.tensor(0.01)  # as torch's functions for CPUs do not take it
        optimizer.step()


def sums():
    net, alone = fresh(), fresh()
    optimizer = distributed(net, op=hvd.Sum)
    plain = torch.optim.SGD(alone.parameters(), 0.05 * hvd.size(), momentum=0.9)
    same(train(net, optimizer, own), train(alone, plain, everyone))
    net, alone = fresh(), fresh()
    same(train(net, distributed(net, gradient_predivide_factor=3.0), own), train(alone, sgd(alone), everyone))


def compressions():
    for compression, tolerance in ((hvd.Compression.fp16, 3e-3), (hvd.Compression.bf16, 3e-2)):
        net, alone = fresh().float(), fresh().float()
        optimizer, plain = distributed(net, compression=compression), sgd(alone)
        for x, y in batches(4):
            for model, by, rows in ((net, optimizer, own), (alone, plain, everyone)):
                by.zero_grad()
                F.mse_loss(model(rows(x, y)[0].float()), rows(x, y)[1].float()).backward()
                by.step()
        same(net, alone, tolerance)
        assert any(not torch.equal(value, expected) for value, expected in zip(net.parameters(), alone.parameters()))
        assert hvd.allgather_object([value.tolist() for value in net.parameters()]) == \
            [[value.tolist() for value in net.parameters()]] * hvd.size(), "the ranks differ"


def passes():
    """Two backward passes a step, then three."""
    net, alone = fresh(), fresh()
    optimizer, plain = distributed(net, backward_passes_per_step=2), sgd(alone)
    for count, seed in ((2, 1), (2, 2), (3, 3), (3, 4)):
        optimizer.set_backward_passes_per_step(count)
        for model, by, rows in ((net, optimizer, own), (alone, plain, everyone)):
            by.zero_grad()
            for x, y in batches(count, seed):
                F.mse_loss(model(rows(x, y)[0]), rows(x, y)[1]).backward()
            by.step()
    same(net, alone)
    # Without zero_grad(), the gradients of the steps add up, in the memory that the ranks reduce.
    x, y = batches(1)[0]
    optimizer.set_backward_passes_per_step(1)
    for model, by, rows in ((net, optimizer, own), (alone, plain, everyone)):
        by.zero_grad(set_to_none=False)
        for _ in range(3):
            F.mse_loss(model(rows(x, y)[0]), rows(x, y)[1]).backward()
            by.step()
    same(net, alone)
    # Fewer passes than announced.
    optimizer.set_backward_passes_per_step(5)
    for model, by, rows in ((net, optimizer, own), (alone, plain, everyone)):
        by.zero_grad()
        F.mse_loss(model(rows(x, y)[0]), rows(x, y)[1]).backward()
        by.step()
    same(net, alone)
    # More passes than announced.
    optimizer.set_backward_passes_per_step(1)
    optimizer.zero_grad()
    net(own(x, y)[0]).sum().backward()
    raises(AssertionError, "more than backward_passes_per_step=1 times", lambda: net(own(x, y)[0]).sum().backward())
    raises(AssertionError, "step() or synchronize()", optimizer.zero_grad)
    optimizer.step()


def missing_gradients():
    """Rank 0 has no gradient of a layer in some steps; then nobody has one."""
    for set_to_none in (True, False):
        net, alone = fresh(), fresh()
        optimizer, plain = distributed(net), sgd(alone)
        for step, (x, y) in enumerate(batches(7)):
            lacks = [step % 2 == 1 and rank == 0 or step in (4, 5) for rank in range(hvd.size())]
            optimizer.zero_grad(set_to_none)
            plain.zero_grad(set_to_none)
            F.mse_loss(net(x[hvd.rank()], not lacks[hvd.rank()]), y[hvd.rank()]).backward()
            for rank in range(hvd.size()):
                (F.mse_loss(alone(x[rank], not lacks[rank]), y[rank]) / hvd.size()).backward()
            optimizer.synchronize()
            for mine, expected in zip(net.parameters(), alone.parameters()):
                assert (mine.grad is None) == (expected.grad is None), step
                assert mine.grad is None or torch.allclose(mine.grad, expected.grad, atol=1e-14)
            optimizer.step()
            plain.step()
        same(net, alone)
    # In the first step of all.
    net = fresh()
    optimizer = distributed(net)
    net(own(*batches(1)[0])[0], hvd.rank() != 0).sum().backward()
    optimizer.step()
    assert net.side.weight.grad is not None
    # A rank without any gradient, and one that sets a gradient itself.
    optimizer.zero_grad()
    if hvd.rank() == 0:
        net.last.bias.grad = torch.full((1,), 3.0, dtype=torch.float64)
    optimizer.step()
    assert torch.allclose(net.last.bias.grad, torch.tensor(3.0 / hvd.size(), dtype=torch.float64))
    assert net.first.weight.grad is None


def clipped():
    def all_ranks(net, optimizer):
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(net.parameters(), 0.3)
        with optimizer.skip_synchronize():
            optimizer.step()

    def twice(net, optimizer):
        """step() does not exchange again what synchronize() has exchanged."""
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(net.parameters(), 0.3)
        optimizer.step()

    def plain(net, optimizer):
        nn.utils.clip_grad_norm_(net.parameters(), 0.3)
        optimizer.step()

    net, again, alone = fresh(), fresh(), fresh()
    train(alone, sgd(alone), everyone, clip=plain)
    optimizer = distributed(net)
    same(train(net, optimizer, own, clip=all_ranks), alone)
    same(train(again, distributed(again), own, clip=twice), alone)
    optimizer.zero_grad()
    net(own(*batches(1)[0])[0]).sum().backward()
    with optimizer.skip_synchronize():
        raises(AssertionError, "call synchronize() after the backward pass", optimizer.step)
    optimizer.step()


def scaled():
    """A GradScaler with and without unscale_(), and a gradient on one rank that is not finite."""
    for unscales in (False, True):
        net, alone = fresh().float(), fresh().float()
        optimizer, plain = distributed(net), sgd(alone)
        ours, theirs = (torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3) for _ in range(2))
        for step, (x, y) in enumerate(batches(6)):
            x, y = x.float(), y.float()
            if step == 2:
                x[-1] = float("inf")
            for model, by, scaler, rows in ((net, optimizer, ours, own), (alone, plain, theirs, everyone)):
                by.zero_grad()
                scaler.scale(F.mse_loss(model(rows(x, y)[0]), rows(x, y)[1])).backward()
                if unscales:
                    if by is optimizer:
                        optimizer.synchronize()
                    scaler.unscale_(by)
                    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                if unscales and by is optimizer:
                    with optimizer.skip_synchronize():
                        scaler.step(by)
                else:
                    scaler.step(by)
                scaler.update()
            assert ours.get_scale() == theirs.get_scale() == (32.0 if 2 <= step < 5 else 64.0), step
        same(net, alone, 1e-5)


def closures():
    """LBFGS, whose decisions depend on the loss, and SGD."""
    for make in (lambda net: torch.optim.LBFGS(net.parameters(), max_iter=5, line_search_fn="strong_wolfe"), sgd):
        net, alone = fresh(), fresh()
        optimizer, plain = distributed(net, make), make(alone)
        for x, y in batches(3):
            losses = []
            for model, by, rows in ((net, optimizer, own), (alone, plain, everyone)):
                def closure():
                    by.zero_grad()
                    loss = F.mse_loss(model(rows(x, y)[0]), rows(x, y)[1])
                    loss.backward()
                    return loss
                losses.append(by.step(closure))
            assert torch.allclose(*losses), losses
        same(net, alone, 1e-8)


def two_optimizers():
    """A generator and its discriminator, which is frozen while the generator learns through it."""
    def train_both(generator, discriminator, of_generator, of_discriminator, rows):
        for x, y in batches(5):
            x, y = rows(x, y)
            discriminator.requires_grad_(True)
            of_discriminator.zero_grad()
            (F.mse_loss(discriminator(x), y) + discriminator(generator(x).detach()).square().mean()).backward()
            of_discriminator.step()
            discriminator.requires_grad_(False)
            of_generator.zero_grad()
            F.mse_loss(discriminator(generator(x)), y).backward()
            of_generator.step()

    def make():
        torch.manual_seed(2)
        return nn.Linear(WIDTH, WIDTH).double(), fresh()

    ours, theirs = make(), make()
    train_both(*ours, *map(distributed, ours), own)
    train_both(*theirs, *map(sgd, theirs), everyone)
    for net, expected in zip(ours, theirs):
        same(net, expected)


def frozen_layers():
    """Layers that are frozen at first, at the end, and added later."""
    net, alone = fresh(), fresh()
    optimizers = []
    for model in (net, alone):
        model.first.requires_grad_(False)
        plain = torch.optim.SGD([*model.first.parameters(), *model.last.parameters()], 0.05, momentum=0.9)
        optimizers.append(hvd.DistributedOptimizer(plain, model.named_parameters()) if model is net else plain)
    for step, (x, y) in enumerate(batches(8)):
        for model, by, rows in zip((net, alone), optimizers, (own, everyone)):
            if step == 2:
                model.first.requires_grad_(True)
            if step == 4:
                by.add_param_group({"params": list(model.side.parameters()), "lr": 0.02})
                model.side.zero_grad()
            if step == 6:
                model.last.requires_grad_(False)
            by.zero_grad()
            F.mse_loss(model(rows(x, y)[0]), rows(x, y)[1]).backward()
            by.step()
        same(net, alone)


def schedulers():
    net, alone = fresh(), fresh()
    for model, rows in ((net, own), (alone, everyone)):
        optimizer = distributed(model) if model is net else sgd(model)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        steps = []
        optimizer.register_step_pre_hook(lambda *_: steps.append("before"))
        optimizer.register_step_post_hook(lambda *_: steps.append("after"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for x, y in batches(4):
                optimizer.zero_grad()
                F.mse_loss(model(rows(x, y)[0]), rows(x, y)[1]).backward()
                optimizer.step()
                schedule.step()
        assert optimizer.param_groups[0]["lr"] == 0.05 / 16
        assert steps == ["before", "after"] * 4, steps
    same(net, alone)


def layouts():
    """Parameters that are sparse, of several types, empty, scalars, and with channels last."""
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 3, sparse=True)
            self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
            self.short = nn.Parameter(torch.randn(3, dtype=torch.bfloat16))
            self.scalar, self.empty = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.empty(0, 3))

        def forward(self, rank):
            image = self.conv(torch.linspace(-1, 1, 75).view(1, 3, 5, 5) * (rank + 1))
            rows = self.table(torch.tensor([rank, 7]))
            return rows.square().sum() + image.square().sum() + (self.short * rank).float().sum() * self.scalar + \
                self.empty.sum()

    def make():
        torch.manual_seed(1)
        return Mixed()

    net, alone = make(), make()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.01), net.named_parameters(),
                                         sparse_as_dense=True)
    plain = torch.optim.SGD(alone.parameters(), 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        plain.zero_grad()
        net(hvd.rank()).backward()
        for rank in range(hvd.size()):
            (alone(rank) / hvd.size()).backward()
        optimizer.step()
        plain.step()
        assert net.table.weight.grad.is_sparse
        for (name, value), expected in zip(net.named_parameters(), alone.parameters()):
            assert torch.allclose(value, expected, atol=2e-2 if name == "short" else 1e-5), name
    assert net.conv.weight.grad.is_contiguous(memory_format=torch.channels_last)


def process_sets(evens):
    """Ranks outside of the set train on their own."""
    net, alone = fresh(), fresh()
    optimizer = distributed(net, process_set=evens)
    ranks = evens.ranks if hvd.rank() in evens.ranks else [hvd.rank()]
    plain = sgd(alone)
    for x, y in batches(4):
        for model, by, chosen in ((net, optimizer, [hvd.rank()]), (alone, plain, ranks)):
            by.zero_grad()
            F.mse_loss(model(x[chosen].flatten(0, 1)), y[chosen].flatten(0, 1)).backward()
            by.step()
    same(net, alone)


def uneven_batches():
    """Ranks without batches count as zeros, and have the parameters and the state of the last rank afterwards."""
    rank, size = hvd.rank(), hvd.size()
    nets, alone = [fresh(), fresh(seed=12)], [fresh(), fresh(seed=12)]
    optimizers, others = [distributed(net) for net in nets], [sgd(net) for net in alone]
    data = batches(8)
    for epoch in range(2):
        for step, (x, y) in enumerate(data):
            active = [other for other in range(size) if step < 3 + (other + epoch) % size]
            for net, by in zip(alone, others):
                by.zero_grad()
                if active:
                    (sum(F.mse_loss(net(x[other]), y[other]) for other in active) / size).backward()
                    by.step()
            if rank in active:
                assert torch.allclose(hvd.allreduce(torch.ones(1)), torch.tensor(len(active) / size))
                for net, by in zip(nets, optimizers):
                    by.zero_grad()
                    F.mse_loss(net(x[rank]), y[rank]).backward()
                    by.step()
        assert hvd.join() == (size - 1 - epoch) % size
        for net, other in zip(nets, alone):
            same(net, other)
    assert all(torch.allclose(mine["momentum_buffer"], other["momentum_buffer"])
               for mine, other in zip(optimizers[0].state.values(), others[0].state.values()))
    before = [parameter.clone() for parameter in nets[0].parameters()]
    hvd.join()
    assert all(map(torch.equal, before, nets[0].parameters()))
    late = fresh()
    optimizer = distributed(late)
    if rank:
        F.mse_loss(late(x[rank]), y[rank]).backward()
        raises(hvd.HorovodInternalError, "before the first step", optimizer.step)
    hvd.join()


def lifetimes():
    """An optimizer that is gone leaves no hooks, and its gradients can be read."""
    net = fresh()
    x, y = own(*batches(1)[0])
    for _ in range(2):
        optimizer = distributed(net)
        for _ in range(3):
            optimizer.zero_grad()
            F.mse_loss(net(x), y).backward()
            optimizer.step()
        kept = [parameter.grad.clone() for parameter in net.parameters()]
        del optimizer
        gc.collect()
    assert all(torch.equal(parameter.grad, value) for parameter, value in zip(net.parameters(), kept))
    for _ in range(2):
        net(x).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in net.parameters())


def wrong_arguments():
    net = fresh()
    parameters = list(net.named_parameters())
    for text, options in (("are tuples", {"named_parameters": net.parameters()}),
                          ("must be unique", {"named_parameters": [("w", value) for _, value in parameters]}),
                          ("must name all parameters", {"named_parameters": parameters[1:]}),
                          ("positive integer", {"groups": -1}), ("positive integer", {"groups": 1.5}),
                          ("torch.Tensor", {"groups": [["first"]]}),
                          ("once only", {"groups": [[parameters[0][1]], [parameters[0][1]]]}),
                          ("must be > 0", {"backward_passes_per_step": 0}), ("hvd.Adasum", {"op": hvd.Adasum}),
                          ("averaged or summed", {"op": hvd.Max}),
                          ("op=hvd.Average", {"gradient_predivide_factor": 2.0, "op": hvd.Sum}),
                          ("hvd.Compression", {"compression": object()})):
        text = "must be tuples" if text == "are tuples" else text
        raises(ValueError, text, hvd.DistributedOptimizer, sgd(net), **options)
    raises(ValueError, "already", hvd.DistributedOptimizer, hvd.DistributedOptimizer(sgd(fresh())))
    raises(ValueError, "is not known", hvd.DistributedOptimizer, sgd(net), process_set=hvd.ProcessSet([0]))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        train(net, hvd.DistributedOptimizer(sgd(net), num_groups=2), own, 2)
    assert seen[0].category is DeprecationWarning
    train(net, hvd.DistributedOptimizer(sgd(net), parameters, groups=[[parameters[0][1]]]), own, 2)


def gpu_slots():
    """The buckets for GPUs, in memory of the host, with many buckets."""
    from farandole.torch import _gradients, _ranks, _slots
    before, _gradients.slots_for = _gradients.slots_for, lambda gradients, exchange: [
        _slots.GpuSlots(gradients, exchange)]
    size, _slots._BUCKET_BYTES = _slots._BUCKET_BYTES, 3000
    named, other = _slots.named, _ranks.RankGroup("as NCCL")
    _slots.named = lambda process_set, name, function, *arguments: getattr(other, function)(*arguments)
    try:
        for test in sums, passes, missing_gradients, frozen_layers, layouts, compressions, clipped, uneven_batches:
            test()
    finally:
        _gradients.slots_for, _slots._BUCKET_BYTES, _slots.named = before, size, named


def behaviour():
    hvd.init()
    evens = hvd.add_process_set(range(0, hvd.size(), 2))
    for test in (optimizers, float32, sums, compressions, passes, missing_gradients, clipped, scaled, closures,
                 two_optimizers, frozen_layers, schedulers, layouts, uneven_batches, lifetimes, wrong_arguments,
                 gpu_slots):
        try:
            test()
        except BaseException:
            print(f"in {test.__name__}:", file=sys.stderr)
            raise
    process_sets(evens)


# --- Other parts -----------------------------------------------------------------------------------------------------


def against_ddp():
    """The losses of 15 steps, and then the parameters."""
    import torch.distributed as dist
    from ddp_step import Gpt, Mlp, MnistNet
    hvd.init()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    batch = 4

    def gpt():
        torch.manual_seed(4)
        texts = torch.randint(256, (2, hvd.size(), batch, 16))
        return Gpt(32, 2, 2, 16), *texts

    def mlp():
        torch.manual_seed(5)
        return Mlp(64), torch.randn(hvd.size(), batch, 64), torch.randint(64, (hvd.size(), batch))

    def mnist():
        torch.manual_seed(6)
        return MnistNet().eval(), torch.rand(hvd.size(), batch, 1, 28, 28), torch.randint(10, (hvd.size(), batch))

    for build, make in ((mnist, lambda net: torch.optim.SGD(net.parameters(), 0.01, 0.5)),
                        (mlp, lambda net: torch.optim.SGD(net.parameters(), 0.01, 0.9)),
                        (gpt, lambda net: torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=0.1))):
        (net, x, y), (other, *_), (alone, *_) = build(), build(), build()
        other = nn.parallel.DistributedDataParallel(other)
        ours, theirs, one = distributed(net, make), make(other), make(alone)
        worst, rank = 0, hvd.rank()
        for _ in range(15):
            losses = []
            for model, optimizer in ((net, ours), (other, theirs)):
                optimizer.zero_grad()
                losses.append(F.cross_entropy(model(x[rank]), y[rank].flatten()))
                losses[-1].backward()
                optimizer.step()
            worst = max(worst, abs(losses[0] - losses[1]).item())
        assert worst < 1e-5, f"{build.__name__}: losses differ by {worst}"
        # One process with all samples, in double precision, because rounding adds up.
        (net, x, y), (alone, *_) = build(), build()
        net, alone = net.double(), alone.double()
        x = x.double() if x.is_floating_point() else x
        ours, one = distributed(net, make), make(alone)
        for _ in range(6):
            for model, optimizer, features, labels in ((net, ours, x[rank], y[rank]),
                                                       (alone, one, x.flatten(0, 1), y.flatten(0, 1))):
                optimizer.zero_grad()
                F.cross_entropy(model(features), labels.flatten()).backward()
                optimizer.step()
        same(net, alone, 1e-6)
    dist.destroy_process_group()


def mismatch():
    hvd.init()
    net = nn.Linear(8, 4 + (hvd.rank() == 1))
    optimizer = distributed(net)
    net(torch.ones(1, 8)).sum().backward()
    optimizer.step()


if __name__ == "__main__":
    for part in sys.argv[1:]:
        {"behaviour": behaviour, "against_ddp": against_ddp, "mismatch": mismatch}[part]()
        print("equal", flush=True)
