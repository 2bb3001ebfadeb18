"""One rank of the tests of farandole.torch: its calls against numpy. hvd_ops.sh starts it with the name of a part.

All ranks draw the same random numbers, and each one knows the input of all. Numbers are small integers, so that sums
have no rounding errors.
"""
import argparse
import faulthandler
import random
import sys
import time

import numpy as np
import torch

import farandole.torch as hvd
import hvd_ops_models

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
OPS = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]


class Draw:
    """Random input for the ranks of a process set."""

    def __init__(self, seed, process_set):
        self.rng = random.Random(seed)
        self.set, self.size, self.place = process_set, process_set.size(), process_set.rank()

    def shape(self):
        return self.rng.choice([(), (0,), (1,), (7,), (self.rng.randrange(1, 30000),), (5, 3), (4, 0, 2)])

    def arrays(self, dtype, shape=None, rows=None):
        """An array of float64 for each rank."""
        shapes = [shape] * self.size if rows is None else [(count, *shape) for count in rows]
        generator = np.random.default_rng(self.rng.randrange(1 << 30))
        low, high = (0, 2) if dtype == torch.bool else (0 if dtype == torch.uint8 else -3, 4)
        return [generator.integers(low, high, shape).astype(float) for shape in shapes]

    def own(self, arrays, dtype):
        """This rank's array as a tensor, in one of several layouts."""
        array, layout = arrays[self.place], self.rng.randrange(3)
        tensor = torch.tensor(array).to(dtype)
        if layout == 1 and tensor.dim():
            tensor = torch.zeros(*tensor.shape, 2, dtype=dtype)[..., 1].copy_(tensor)
        elif layout == 2 and tensor.dim() == 2:
            tensor = tensor.t().contiguous().t()
        return tensor


def equal(tensor, array, dtype, what):
    expected = torch.tensor(array)
    if dtype not in FLOATS:
        expected = expected.trunc()  # as Horovod makes integers of numbers between them
    assert tensor.dtype == dtype and tensor.shape == expected.shape, (what, tensor.dtype, tensor.shape, expected.shape)
    limit = 2 * torch.finfo(dtype).eps if dtype in FLOATS else 0
    torch.testing.assert_close(tensor.double(), expected.double(), rtol=limit, atol=limit,
                               msg=lambda text: f"{what}: {text}")


def reduced(arrays, op, dtype, before=1.0, after=1.0):
    scaled = np.stack(arrays) * before
    if dtype not in FLOATS:
        scaled = np.trunc(scaled)
    if op in (hvd.Average, hvd.Sum):
        out = scaled.sum(0) / (len(arrays) if op == hvd.Average else 1)
    else:
        out = {hvd.Min: scaled.min, hvd.Max: scaled.max, hvd.Product: scaled.prod}[op](0)
    if dtype == torch.bool:
        out = np.minimum(out, 1)
    return out * after


def allreduce(draw, dtype):
    for op in OPS if dtype != torch.bool else OPS[1:]:
        factors = {} if dtype == torch.bool else draw.rng.choice([{}, dict(prescale_factor=0.5, postscale_factor=4.0)])
        group = [draw.arrays(dtype, draw.shape()) for _ in range(draw.rng.randrange(1, 4))]
        expected = [reduced(arrays, op, dtype, *factors.values()) for arrays in group]
        options = dict(op=op, process_set=draw.set, name=draw.rng.choice([None, "loss"]), **factors)
        for name in "", "_", "_async", "_async_":
            tensors = [draw.own(arrays, dtype) for arrays in group]
            many = getattr(hvd, "grouped_allreduce" + name)(tensors, **options)
            one = draw.own(group[0], dtype)
            single = getattr(hvd, "allreduce" + name)(one, **options)
            if "async" in name:
                many, single = hvd.synchronize(many), hvd.synchronize(single)
            for tensor, arrays, before, array in zip([single, *many], [group[0], *group], [one, *tensors],
                                                     [expected[0], *expected]):
                equal(tensor, array, dtype, (f"allreduce{name}", op, options))
                if name.endswith("_"):
                    assert tensor is before
                else:
                    equal(before, arrays[draw.place], dtype, "the input of allreduce")


def allgather(draw, dtype):
    rows = [draw.rng.randrange(4) for _ in range(draw.size)]
    for shape in (), (3,), (0,), (2, 5):
        arrays = draw.arrays(dtype, shape, rows)
        tensor, expected = draw.own(arrays, dtype), np.concatenate(arrays)
        many = hvd.grouped_allgather([tensor, tensor], process_set=draw.set)
        later = hvd.grouped_allgather_async([tensor, tensor], process_set=draw.set, name="rows")
        single = hvd.allgather_async(tensor, process_set=draw.set)
        out = hvd.allgather(tensor, process_set=draw.set), hvd.synchronize(single), *many, *hvd.synchronize(later)
        for result in out:
            equal(result, expected, dtype, "allgather")
    scalars = draw.arrays(dtype, ())
    equal(hvd.allgather(draw.own(scalars, dtype), process_set=draw.set), np.stack(scalars), dtype, "scalars")


def broadcast(draw, dtype):
    arrays, place = draw.arrays(dtype, draw.shape()), draw.rng.randrange(draw.size)
    options = dict(root_rank=draw.set.ranks[place], process_set=draw.set)
    for name in "", "_", "_async", "_async_":
        tensor = draw.own(arrays, dtype)
        out = getattr(hvd, "broadcast" + name)(tensor, **options)
        out = hvd.synchronize(out) if "async" in name else out
        equal(out, arrays[place], dtype, f"broadcast{name}")
        assert out is tensor if name.endswith("_") else (equal(tensor, arrays[draw.place], dtype, "its input") is None)


def alltoall(draw, dtype):
    splits = [[draw.rng.randrange(3) for _ in range(draw.size)] for _ in range(draw.size)]
    unsent = draw.rng.randrange(2)
    shape = draw.rng.choice([(), (3,), (2, 2), (0,)])
    arrays = draw.arrays(dtype, shape, [sum(numbers) + unsent for numbers in splits])
    starts = [np.concatenate([[0], np.cumsum(numbers)]) for numbers in splits]
    place = draw.place
    expected = np.concatenate([array[start[place]:start[place + 1]] for array, start in zip(arrays, starts)])
    received = [numbers[place] for numbers in splits]
    kind = draw.rng.choice([list, torch.tensor, lambda numbers: torch.tensor(numbers, dtype=torch.int32)])
    tensor, own = draw.own(arrays, dtype), kind(splits[place])
    later = hvd.alltoall_async(tensor, own, process_set=draw.set)
    for out, counts in hvd.alltoall(tensor, splits=own, process_set=draw.set), hvd.synchronize(later):
        equal(out, expected, dtype, "alltoall")
        assert counts.tolist() == received and counts.dtype == (torch.int32 if kind is list else own.dtype), counts
    even = draw.arrays(dtype, (2 * draw.size, *shape))
    expected = np.concatenate([array[2 * place:2 * place + 2] for array in even])
    equal(hvd.alltoall(draw.own(even, dtype), process_set=draw.set), expected, dtype, "alltoall without splits")


def reducescatter(draw, dtype):
    for op in (hvd.Average, hvd.Sum) if dtype != torch.bool else (hvd.Sum,):
        factors = {} if dtype == torch.bool else draw.rng.choice([{}, dict(prescale_factor=0.5, postscale_factor=4.0)])
        rows, shape = draw.rng.randrange(2 * draw.size + 2), draw.rng.choice([(), (3,), (2, 2)])
        arrays = draw.arrays(dtype, (rows, *shape))
        expected = np.array_split(reduced(arrays, op, dtype, *factors.values()), draw.size)[draw.place]
        tensor, options = draw.own(arrays, dtype), dict(op=op, process_set=draw.set, **factors)
        later = hvd.grouped_reducescatter_async([tensor, tensor], **options)
        single = hvd.reducescatter_async(tensor, **options)
        out = [hvd.reducescatter(tensor, **options), *hvd.grouped_reducescatter([tensor, tensor], **options)]
        for result in out + [hvd.synchronize(single), *hvd.synchronize(later)]:
            equal(result, expected, dtype, ("reducescatter", op, factors))
        equal(tensor, arrays[draw.place], dtype, "the input of reducescatter")


def compressed(draw):
    arrays = draw.arrays(torch.float64, (100,))
    for compression in hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16:
        for dtype in torch.float32, torch.float64, torch.int32:
            out = hvd.allreduce(draw.own(arrays, dtype), name="shortened", compression=compression, op=hvd.Sum,
                                process_set=draw.set)
            equal(out, reduced(arrays, hvd.Sum, dtype), dtype, compression)
    rounded = hvd.allreduce(torch.tensor([1 + 2.0**-9]), compression=hvd.Compression.bf16, process_set=draw.set)
    assert rounded.item() == 1, "nothing was compressed"


def sparse(draw):
    arrays = draw.arrays(torch.float32, (9, 2))
    for place, array in enumerate(arrays):
        array[place::3] = 0
    for op in hvd.Sum, hvd.Average:
        tensor = torch.tensor(arrays[draw.place]).float().to_sparse(1)
        handle = hvd.sparse_allreduce_async(tensor, "embedding", op, process_set=draw.set)
        equal(handle().to_dense(), reduced(arrays, op, torch.float32), torch.float32, "sparse")


def out_of_order(draw):
    """Handles of calls in flight, for which each rank waits in another order."""
    arrays = [draw.arrays(torch.float32, (draw.rng.randrange(1, 50000),)) for _ in range(6)]
    tensors = [draw.own(each, torch.float32).contiguous() for each in arrays]
    root = draw.set.ranks[-1]
    handles = [(hvd.allreduce_async(tensors[0], process_set=draw.set), reduced(arrays[0], hvd.Average, torch.float32)),
               (hvd.broadcast_async_(tensors[1], root, process_set=draw.set), arrays[1][-1]),
               (hvd.allgather_async(tensors[2], process_set=draw.set), np.concatenate(arrays[2])),
               (hvd.allreduce_async_(tensors[3], op=hvd.Max, process_set=draw.set),
                reduced(arrays[3], hvd.Max, torch.float32)),
               (hvd.allreduce_async(tensors[4], op=hvd.Sum, process_set=draw.set), reduced(arrays[4], hvd.Sum,
                                                                                           torch.float32)),
               (hvd.reducescatter_async(tensors[5], process_set=draw.set),
                np.array_split(reduced(arrays[5], hvd.Average, torch.float32), draw.size)[draw.place])]
    own = random.Random(draw.place)
    own.shuffle(handles)
    for handle, expected in handles:
        while own.random() < 0.5 and not hvd.poll(handle):
            pass
        result = hvd.synchronize(handle)
        assert hvd.poll(handle) and hvd.synchronize(handle) is result
        equal(result, expected, torch.float32, "a handle")


def refuses(error, text, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except error as caught:
        assert text in str(caught), caught
    else:
        raise AssertionError(f"nothing says '{text}'")


def ends():
    """Uses before the start, after the end, and that nothing provides."""
    for function in hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.is_homogeneous, hvd.barrier:
        refuses(ValueError, "call hvd.init() first", function)
    refuses(ValueError, "call hvd.init() first", hvd.allreduce, torch.ones(1))
    assert not hvd.is_initialized() and hvd.ProcessSet([0]).size() is None
    hvd.init()
    hvd.allreduce(torch.ones(1))
    hvd.shutdown()
    refuses(ValueError, "call hvd.init() first", hvd.allreduce, torch.ones(1))


def refusals(sets):
    size, one = hvd.size(), torch.ones(1)
    refuses(NotImplementedError, "use op=hvd.Average", hvd.allreduce, one, op=hvd.Adasum)
    refuses(ValueError, "pass op only", hvd.allreduce, one, average=True, op=hvd.Sum)
    refuses(ValueError, "is not an operation", hvd.allreduce, one, op=17)
    refuses(ValueError, "no average", hvd.allreduce, torch.ones(1, dtype=torch.bool))
    refuses(ValueError, "sparse_allreduce_async", hvd.allreduce, one.to_sparse())
    refuses(ValueError, f"root_rank={size}", hvd.broadcast, one, size)
    refuses(ValueError, "in all", hvd.alltoall, one, splits=[2] * size)
    refuses(ValueError, "exists already", hvd.add_process_set, list(range(size)))
    refuses(ValueError, f"from 0 to {size - 1}", hvd.add_process_set, [0, size])
    refuses(ValueError, "integers", hvd.ProcessSet, ["0"])
    refuses(ValueError, "is not known", hvd.allreduce, one, process_set=hvd.ProcessSet([0]))
    refuses(ValueError, "named_parameters()", hvd.broadcast_parameters, 3, 0)
    refuses(ImportError, "--max-restarts", getattr, hvd, "elastic")
    refuses(NotImplementedError, "--trace-torch", hvd.start_timeline, "timeline.json")
    for one_set in sets:
        if not one_set.included():
            refuses(ValueError, "is not in the process set", hvd.allreduce, one, process_set=one_set)


def everything(seed):
    ends()
    rng, size = random.Random(seed), int(hvd.init() or hvd.size())
    hvd.shutdown()
    chosen = [list(range(1, size)), sorted(rng.sample(range(size), rng.randint(1, size)))]
    sets = [hvd.ProcessSet(ranks) for number, ranks in enumerate(chosen)
            if ranks and ranks not in [list(range(size)), *chosen[:number]]]
    hvd.init(process_sets=sets)
    world = hvd.global_process_set
    hvd.init()
    assert world.ranks == list(range(size)) and world.size() == size == hvd.local_size() and hvd.is_homogeneous()
    assert hvd.rank() == hvd.local_rank() == world.rank() and (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.mpi_built() and hvd.mpi_enabled() and not hvd.gloo_built() and hvd.mpi_threads_supported()
    for number, process_set in enumerate([world, *sets]):
        assert process_set.included() == (hvd.rank() in process_set.ranks)
        if not process_set.included():
            continue
        draw = Draw(hash((seed, number)), process_set)
        for function in allreduce, allgather, broadcast, alltoall, reducescatter:
            for dtype in FLOATS + INTEGERS + [torch.bool]:
                function(draw, dtype)
        for function in compressed, sparse, out_of_order:
            function(draw)
        hvd.barrier(process_set=process_set)
        hvd_ops_models.gradients(process_set)
    hvd_ops_models.batch_norm()
    hvd_ops_models.objects(sets)
    if size == 3:  # Importing torch.optim takes as long as all the rest.
        hvd_ops_models.optimizers()
    refusals(sets)
    assert hvd.join() in range(size)
    joins(sets)
    if sets:
        assert hvd.remove_process_set(sets[0]) and not hvd.remove_process_set(sets[0])
        sets[0] = hvd.add_process_set(sets[0])
        if sets[0].included():
            hvd.barrier(sets[0])
    store = world.group._meet()  # of NCCL
    store.set(str(hvd.rank()), "here")
    assert store.get(str(size - 1)) == b"here"
    hvd.barrier()


def joins(sets):
    """Ranks that have no more calls take part in those of the others."""
    rank, size = hvd.rank(), hvd.size()
    for call in range(rank + 1):
        active = size - call
        average = hvd.allreduce(torch.ones(3), name=f"average {call}")
        assert torch.allclose(average, torch.full((3,), active / size)), average
        assert hvd.allreduce(torch.tensor([4]), op=hvd.Min).item() == 4
        rows = hvd.allgather(torch.full((rank + 1, 2), rank))
        assert rows[:, 0].tolist() == [other for other in range(call, size) for _ in range(other + 1)]
        assert hvd.broadcast(torch.tensor([rank]), size - 1).item() == size - 1
        for included in [one for one in sets if one.included()]:
            total = sum(other >= call for other in included.ranks)
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=included) == total
    assert hvd.join() == size - 1
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == size


def differ():
    """Calls that differ end the job."""
    hvd.init()
    handles = [hvd.allreduce_async(torch.ones(4), name=name) for name in ("ba" if hvd.rank() else "ab")]
    for handle in handles:
        hvd.synchronize(handle)
    raise AssertionError("the job should have ended")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["everything", "order"])
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(300, exit=True)
    start = time.time()
    if options.part != "everything":
        differ()
    everything(options.seed)
    print(f"seed {options.seed}: {time.time() - start:.1f} s", file=sys.stderr)
    print("equal")


if __name__ == "__main__":
    main()
