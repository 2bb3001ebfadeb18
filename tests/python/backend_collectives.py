"""Functions of torch.distributed on the backend farandole against Gloo, in the same process, with random input.

Called by backend.py. Numbers are small integers, so that sums have no rounding errors and results must be equal.
"""
import random

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from farandole._work import Work, Works

INTEGERS = [torch.int8, torch.int32, torch.int64, torch.uint8]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]
BITS = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]


class Both:
    """The same ranks as a group of each backend, and random input that differs by rank but not by backend."""

    def __init__(self, ours, gloo, seed, plain=False):
        self.groups = {"farandole": ours, "gloo": gloo}
        self.rank, self.size = dist.get_rank(ours), dist.get_world_size(ours)
        self.common = random.Random(seed)  # the same numbers on all ranks
        self.seed, self.plain = seed, plain
        self.tensors = 0

    def shape(self):
        some = self.common.randrange(1, 70000)
        return self.common.choice([(), (0,), (1,), (7,), (1000,), (some,), (5, 3), (4, 0, 2)])

    def tensor(self, shape, dtype, layout="contiguous", rank=None):
        self.tensors += 1
        generator = torch.Generator().manual_seed(hash((self.seed, self.tensors, self.rank if rank is None else rank)))
        values = torch.randint(0 if dtype == torch.uint8 else -3, 4, shape, generator=generator)
        if dtype == torch.bool:
            values = values > 0
        tensor = values.to(dtype)
        if self.plain:  # Gloo refuses other layouts in some functions, and ignores them in others
            return tensor
        if layout == "strided" and tensor.dim():
            wide = torch.zeros(*tensor.shape, 2, dtype=dtype)
            tensor = wide[..., 1].copy_(tensor)
        elif layout == "transposed" and tensor.dim() == 2:
            tensor = tensor.t().contiguous().t()
        elif layout == "parameter" and dtype.is_floating_point:
            tensor.requires_grad_()
        return tensor

    def layout(self):
        return self.common.choice(["contiguous", "strided", "transposed", "parameter"])

    def root(self, group):
        return dist.get_global_rank(group, self.common.randrange(self.size))


def finish(both, work):
    """Waits for an asynchronous call in one of several ways."""
    way = both.common.randrange(4)
    if not isinstance(work, (Work, Works)):  # Gloo's have not all of these functions
        work.wait()
        return
    if way == 0:
        work.wait()
    elif way == 1:
        work.get_future().wait()
    elif way == 2:
        work.get_future().then(lambda future: future.value()).wait()
    else:
        while not work.is_completed():
            pass
        work.wait()
    assert work.is_success()


def call(both, function, *arguments, **options):
    if both.common.random() < 0.5:
        finish(both, function(*arguments, async_op=True, **options))
    else:
        function(*arguments, **options)


def all_reduce(both, group):
    with torch.no_grad():
        op = both.common.choice(OPS)
        types = FLOATS + INTEGERS + (COMPLEX if op == dist.ReduceOp.SUM else [])
        tensor = both.tensor(both.shape(), both.common.choice(types), both.layout())
        call(both, dist.all_reduce, tensor, op, group=group)
        return [tensor.clone()]


def all_reduce_bits(both, group):
    tensor = both.tensor(both.shape(), both.common.choice(INTEGERS), both.layout())
    call(both, dist.all_reduce, tensor, both.common.choice(BITS), group=group)
    return [tensor]


def all_reduce_sparse(both, group):
    tensor = both.tensor((9, 2), torch.float32)
    tensor[both.rank::3] = 0
    sparse = tensor.to_sparse(1)
    dist.all_reduce(sparse, group=group)
    return [sparse.to_dense()]


def all_reduce_coalesced(both, group):
    tensors = [both.tensor(both.shape(), torch.float32, both.layout()).detach() for _ in range(3)]
    call(both, dist.all_reduce_coalesced, tensors, group=group)
    adjacent = list(both.tensor((9,), torch.int64).chunk(3))
    with dist._coalescing_manager(group):
        for tensor in adjacent:
            dist.all_reduce(tensor, group=group)
    return tensors + adjacent


def broadcast(both, group):
    types = FLOATS + INTEGERS + COMPLEX + [torch.bool]
    tensor = both.tensor(both.shape(), both.common.choice(types), both.layout()).detach()
    call(both, dist.broadcast, tensor, both.root(group), group=group)
    return [tensor]


def reduce(both, group):
    op, root = both.common.choice(OPS + BITS), both.root(group)
    types = INTEGERS if op in BITS else FLOATS + INTEGERS
    tensor = both.tensor(both.shape(), both.common.choice(types), both.layout()).detach()
    before = tensor.clone()
    call(both, dist.reduce, tensor, root, op, group=group)
    if dist.get_rank() != root:
        assert dist.get_backend(group) == "gloo" or torch.equal(tensor, before)
        return []
    return [tensor]


def all_gather(both, group):
    shape, dtype, layout = both.shape(), both.common.choice(FLOATS + INTEGERS + COMPLEX + [torch.bool]), both.layout()
    tensor = both.tensor(shape, dtype, layout)
    out = [torch.zeros(shape, dtype=dtype) for _ in range(both.size)]
    call(both, dist.all_gather, out, tensor, group=group)
    views = list(torch.zeros((both.size, *shape), dtype=dtype).unbind())
    call(both, dist.all_gather, views, tensor, group=group)
    whole = torch.zeros((both.size * tensor.numel(),), dtype=dtype)
    call(both, dist.all_gather_into_tensor, whole, tensor.reshape(-1), group=group)
    wide = torch.zeros((both.size * tensor.numel(), 2), dtype=dtype)[:, 0]
    if both.plain:
        wide = whole
    else:
        call(both, dist.all_gather_into_tensor, wide, tensor.reshape(-1), group=group)
    return out + views + [whole, wide]


def gather(both, group):
    root, shape, dtype = both.root(group), both.shape(), both.common.choice(FLOATS + INTEGERS)
    tensor = both.tensor(shape, dtype, both.layout()).detach()
    out = [torch.zeros(shape, dtype=dtype) for _ in range(both.size)] if dist.get_rank() == root else None
    call(both, dist.gather, tensor, out, root, group=group)
    return out or []


def scatter(both, group):
    root, shape, dtype = both.root(group), both.shape(), both.common.choice(FLOATS + INTEGERS)
    parts = [both.tensor(shape, dtype, both.layout()).detach() for _ in range(both.size)]
    tensor = torch.zeros(shape, dtype=dtype)
    call(both, dist.scatter, tensor, parts if dist.get_rank() == root else None, root, group=group)
    return [tensor]


def reduce_scatter(both, group):
    op, shape, dtype = both.common.choice(OPS[:1]), both.shape(), both.common.choice(FLOATS[2:] + INTEGERS[1:3])
    parts = [both.tensor(shape, dtype, both.layout()).detach() for _ in range(both.size)]
    tensor = torch.zeros(shape, dtype=dtype)
    call(both, dist.reduce_scatter, tensor, parts, op, group=group)
    flat = torch.zeros(tensor.numel(), dtype=dtype)
    source = torch.cat([part.reshape(-1) for part in parts])
    call(both, dist.reduce_scatter_tensor, flat, source, op, group=group)
    return [tensor, flat]


def all_to_all(both, group):
    dtype, columns = both.common.choice(FLOATS + INTEGERS), both.common.randrange(1, 4)
    rows = [[both.common.randrange(0, 50) for _ in range(both.size)] for _ in range(both.size)]  # by sender, receiver
    send, receive = rows[both.rank], [rows[sender][both.rank] for sender in range(both.size)]
    source = both.tensor((sum(send), columns), dtype, both.layout()).detach()
    out = torch.zeros((sum(receive), columns), dtype=dtype)
    call(both, dist.all_to_all_single, out, source, receive, send, group=group)
    even_source, even = both.tensor((3 * both.size,), dtype), torch.zeros(3 * both.size, dtype=dtype)
    call(both, dist.all_to_all_single, even, even_source, group=group)
    parts = [torch.zeros(count, columns, dtype=dtype) for count in receive]
    if both.plain:  # Gloo has no all_to_all
        parts = list(out.split(receive))
    else:
        call(both, dist.all_to_all, parts, list(source.split(send)), group=group)
    return [out, even, *parts]


def messages(both, group):
    """A ring, messages with tags that overtake each other, a batch, one whose handle is dropped, and any source."""
    size, rank = both.size, both.rank
    if size == 1:
        return []
    to, source = (dist.get_global_rank(group, (rank + step) % size) for step in (1, -1))
    dtype = both.common.choice(FLOATS + INTEGERS)
    tensors = [both.tensor((1000 * (index + 1),), dtype, both.layout()).detach() for index in range(4)]
    out = [torch.zeros(1000 * (index + 1), dtype=dtype) for index in range(4)]
    sends = [dist.isend(tensors[index], to, group, tag=index) for index in (0, 1)]
    for index in (1, 0):
        dist.recv(out[index], source, group, tag=index)
    for work in sends:
        work.wait()
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, tensors[2], to, group),
                                        dist.P2POp(dist.irecv, out[2], source, group)]):
        work.wait()
    dropped = dist.isend(tensors[3], to, group, tag=9)
    if not both.plain:  # Gloo forgets the message with the handle
        del dropped
    dist.recv(out[3], source, group, tag=9)
    any_source = torch.zeros(1, dtype=torch.int64)
    if rank:
        dist.send(torch.tensor([rank]), dist.get_global_rank(group, 0), group, tag=5)
    else:
        for _ in range(1, size):
            assert dist.recv(any_source, None, group, tag=5) == dist.get_global_rank(group, int(any_source))
    dist.barrier(group=group)
    return out


def objects(both, group):
    own = {"rank": both.rank, "text": "x" * both.common.randrange(5000)}
    out, root = [None] * both.size, both.root(group)
    dist.all_gather_object(out, own, group=group)
    is_root = dist.get_rank() == root
    gathered = [None] * both.size if is_root else None
    dist.gather_object(own, gathered, root, group=group)
    assert not is_root or gathered == out
    listed = [own, both.rank]
    dist.broadcast_object_list(listed, root, group=group)
    assert listed[0] == out[dist.get_group_rank(group, root)]
    scattered = [None]
    dist.scatter_object_list(scattered, out if is_root else None, root, group=group)
    assert scattered[0] == own
    return [torch.tensor([entry["rank"] for entry in out])]


def barriers(both, group):
    dist.barrier(group=group)
    finish(both, dist.barrier(group=group, async_op=True))
    dist.monitored_barrier(group)
    return []


def functions(both, group):
    """What DTensor and torch.compile call."""
    tensor = both.tensor((2 * both.size, 3), torch.float32)
    results = [functional.all_reduce(tensor, "sum", group),
               functional.all_gather_tensor(tensor, 0, group),
               functional.reduce_scatter_tensor(tensor, "sum", 0, group),
               functional.all_to_all_single(tensor, None, None, group),
               functional.broadcast(tensor, 0, group),
               *functional.all_reduce_coalesced([tensor, 2 * tensor], "sum", group),
               *functional.all_gather_into_tensor_coalesced([tensor, tensor[:1].contiguous()], group),
               *functional.reduce_scatter_tensor_coalesced([tensor, tensor + 1], "sum", [0, 0], group)]
    return [functional.wait_tensor(result) for result in results]


def only_ours(both, group):
    """What Gloo refuses: compared with what Gloo's all_gather gives."""
    size, rank, ours = both.size, both.rank, both.groups["farandole"]

    def of_all(tensor):
        out = [torch.zeros_like(tensor) for _ in range(size)]
        dist.all_gather(out, tensor, group=both.groups["gloo"])
        return torch.stack(out)

    tensor = both.tensor((6 * size,), torch.float32)
    everything = of_all(tensor)
    average = tensor.clone()
    dist.all_reduce(average, dist.ReduceOp.AVG, group=ours)
    assert torch.allclose(average, everything.mean(0))
    part = torch.zeros(6)
    dist.reduce_scatter_tensor(part, tensor, dist.ReduceOp.AVG, group=ours)
    assert torch.allclose(part, everything.mean(0).chunk(size)[rank])
    half = dist._make_nccl_premul_sum(0.5)
    scaled, root = tensor.clone(), both.root(ours)
    dist.all_reduce(scaled, half, group=ours)
    dist.reduce_scatter_tensor(part, tensor, half, group=ours)
    assert torch.equal(scaled, everything.sum(0) / 2) and torch.equal(part, scaled.chunk(size)[rank])
    reduced = tensor.clone()
    dist.reduce(reduced, root, half, group=ours)
    assert torch.equal(reduced, scaled if dist.get_rank() == root else tensor)
    flags = both.tensor((20,), torch.bool)
    for op, expected in ((dist.ReduceOp.SUM, of_all(flags).any(0)), (dist.ReduceOp.PRODUCT, of_all(flags).all(0)),
                         (dist.ReduceOp.BXOR, of_all(flags).sum(0) % 2 == 1)):
        result = flags.clone()
        dist.all_reduce(result, op, group=ours)
        assert torch.equal(result, expected), op
    short = both.tensor((9,), torch.int16)
    wide = of_all(short.to(torch.int32)).sum(0).to(torch.int16)
    dist.all_reduce(short, group=ours)
    assert torch.equal(short, wide)
    for dtype in INTEGERS + [torch.int16]:  # numbers between integers become the next one towards 0, as NCCL has it
        whole = both.tensor((2 * size,), dtype, both.layout()).detach()
        expected = (of_all(whole.long()).sum(0) / size).trunc().to(dtype)
        reduced, part = whole.clone(), torch.zeros(2, dtype=dtype)
        dist.reduce(reduced, root, dist.ReduceOp.AVG, group=ours)
        assert torch.equal(reduced, expected if dist.get_rank() == root else whole), dtype
        dist.reduce_scatter_tensor(part, whole.contiguous(), dist.ReduceOp.AVG, group=ours)
        assert torch.equal(part, expected.chunk(size)[rank]), dtype
        call(both, dist.all_reduce, whole, dist.ReduceOp.AVG, group=ours)
        assert torch.equal(whole, expected), dtype
    bits = both.tensor((4 * size,), torch.int32)
    expected = of_all(bits)
    part = torch.zeros(4, dtype=torch.int32)
    dist.reduce_scatter_tensor(part, bits, dist.ReduceOp.BOR, group=ours)
    for other in expected[1:]:
        expected[0] |= other
    assert torch.equal(part, expected[0].chunk(size)[rank])
    uneven = [torch.zeros(index + 1, 2) for index in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1, 2), float(rank)), group=ours)
    assert all(torch.equal(part, torch.full((index + 1, 2), float(index))) for index, part in enumerate(uneven))
    part = torch.zeros(rank + 1)
    dist.reduce_scatter(part, [torch.full((index + 1,), 2.0) for index in range(size)], group=ours)
    assert torch.equal(part, torch.full((rank + 1,), 2.0 * size))
    mixed = [torch.ones(3), torch.ones(3, dtype=torch.int64)]
    work = ours.allreduce_coalesced(mixed)
    work.wait()
    assert all(torch.equal(tensor, torch.full_like(tensor, size)) for tensor in mixed)
    ours.allreduce(mixed[0], dist.ReduceOp.MAX).wait()
    ours.broadcast(mixed[0], 0).wait()
    ours.barrier().wait()
    return []


def refused(both, group):
    ours, part = both.groups["farandole"], torch.zeros(2 * both.size)
    for expected, wrong in (
            ("AVG of torch.bool does not exist", lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool),
                                                                         dist.ReduceOp.AVG, group=ours)),
            ("must have", lambda: dist.all_gather_into_tensor(torch.zeros(1), torch.zeros(5), group=ours)),
            ("split sizes are", lambda: dist.all_to_all_single(part, part.clone(), [9] * both.size, None, group=ours))):
        try:
            wrong()
        except RuntimeError as error:
            assert expected in str(error) and "\n" not in str(error), error
        else:
            raise AssertionError(f"no error with: {expected}")
    return []


COMPARED = [all_reduce, all_reduce_bits, all_reduce_sparse, all_reduce_coalesced, broadcast, reduce, all_gather, gather,
            scatter, reduce_scatter, all_to_all, messages, objects, barriers, functions]


def compare(ours, gloo, seed):
    """Calls one function on both groups and checks that the results are equal."""
    for function in COMPARED:
        results = {}
        for backend in ("farandole", "gloo"):
            both = Both(ours, gloo, seed, plain=backend == "gloo")
            results[backend] = function(both, both.groups[backend])
        assert len(results["farandole"]) == len(results["gloo"]), (function.__name__, seed)
        for index, (mine, other) in enumerate(zip(results["farandole"], results["gloo"])):
            assert mine.dtype == other.dtype and torch.equal(mine, other), (
                f"{function.__name__} of {mine.dtype} {list(mine.shape)}, result {index}: "
                f"{mine.flatten()[:9]} is not Gloo's {other.flatten()[:9]}")
    for function in (only_ours, refused):
        function(Both(ours, gloo, seed), ours)
