"""The collectives of hvd. All ranks of a process set call them in the same order; calls that differ end the job.

A function `name` has a form `name_async`, which returns a handle for poll() and synchronize(). Those that end in "_"
change the tensor itself. Synchronous forms without "_" are differentiable.

Thread safety: none; use from one thread at a time.
"""
import time
import warnings

import torch
from torch.distributed import ReduceOp, distributed_c10d as c10d

from farandole._core import quick
from farandole._group import TELLS_ASYNC
from farandole._phases import WAIT
from farandole.torch._ranks import Adasum, Average, Max, Min, Product, Sum, global_process_set, group_of, named
from farandole.torch.compression import Compression

_OPERATIONS = {Average: ReduceOp.AVG, Sum: ReduceOp.SUM, Min: ReduceOp.MIN, Max: ReduceOp.MAX,
               Product: ReduceOp.PRODUCT}


class Handle:
    """What was started. `finish` gives the result once the works have ended. Wait for it, or call it."""

    def __init__(self, works, finish):
        self.works, self._finish, self._result = works, finish, None

    def done(self):
        return all(work.is_completed() for work in self.works)

    def wait(self):
        if self._finish is not None:
            for work in self.works:
                work.wait()
            with torch.no_grad():
                self._result = self._finish()
            self.works, self._finish = [], None
        return self._result

    __call__ = wait


def poll(handle):
    """Whether synchronize() would return at once."""
    return handle.done()


def synchronize(handle):
    """Waits for a call, and returns its result: a tensor, or a tuple of several."""
    if handle.done():
        return handle.wait()
    begin = quick.now()
    result = handle.wait()
    quick.span(WAIT, quick.intern(b"wait"), begin, quick.now())
    return result


def _several(handles):
    return Handle([work for handle in handles for work in handle.works],
                  lambda: tuple(handle.wait() for handle in handles))


def _options(kind, waits, op=None):
    options = kind()
    if op is not None:
        options.reduceOp = op
    if TELLS_ASYNC:
        options.asyncOp = not waits
    return options


# --- Reductions ----------------------------------------------------------------------------------------------------


def _operation(op, average=None):
    if average is not None:
        if op is not None:
            raise ValueError("hvd has both op and average here; pass op only")
        warnings.warn("hvd: average is deprecated; pass op=hvd.Average or op=hvd.Sum", DeprecationWarning, 4)
        return Average if average else Sum
    if op == Adasum:
        raise NotImplementedError("op=hvd.Adasum is not built; use op=hvd.Average, with a rate for the larger batch")
    if op not in (None, *_OPERATIONS):
        raise ValueError(f"op={op} is not an operation; use hvd.Average, Sum, Min, Max or Product")
    return Average if op is None else op


def _scale(tensor, factor, divisor=1):
    """Integers are divided as integers, and numbers between them become the next one towards 0."""
    if factor == 1 and divisor == 1:
        return
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.mul_(factor / divisor)
    elif factor == 1:
        tensor.div_(divisor, rounding_mode="trunc")
    else:
        tensor.copy_(tensor.double().mul_(factor).div_(divisor))


class _Reduction:
    """An operation with its factors for tensors that one call reduces."""

    def __init__(self, tensors, op, prescale, postscale, process_set):
        self.prescale, self.postscale, self.divisor = prescale, postscale, 1
        for tensor in tensors:
            if tensor.layout != torch.strided:
                raise ValueError("hvd.allreduce() takes dense tensors; use hvd.sparse_allreduce_async()")
            if tensor.dtype == torch.bool and (op == Average or (prescale, postscale) != (1, 1)):
                raise ValueError("tensors of torch.bool have no average and no factors; use op=hvd.Max for any, "
                                 "hvd.Min for all")
        self.of_torch = _OPERATIONS[op]
        if op == Average and not all(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors):
            self.of_torch, self.divisor = ReduceOp.SUM, group_of(process_set).size()

    def before(self, tensor):
        _scale(tensor, self.prescale)

    def after(self, tensor):
        _scale(tensor, self.postscale, self.divisor)


def _copy(tensor):
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _allreduce(outputs, name, op, prescale, postscale, process_set, waits=False, copies=True):
    """A handle, whose result is a tuple: copies, or the tensors themselves."""
    reduction = _Reduction(outputs, op, prescale, postscale, process_set)
    if copies:
        outputs = tuple(map(_copy, outputs))
    with torch.no_grad():
        for output in outputs:
            reduction.before(output)
    kind = c10d.AllreduceOptions if len(outputs) == 1 else c10d.AllreduceCoalescedOptions
    work = named(process_set, name, "allreduce" if len(outputs) == 1 else "allreduce_coalesced", list(outputs),
                 _options(kind, waits, reduction.of_torch))

    def finish():
        for output in outputs:
            reduction.after(output)
        return outputs
    return Handle([work], finish)


def _one(handle):
    return Handle(handle.works, lambda: handle.wait()[0])


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, arguments, name, *tensors):
        ctx.arguments = arguments
        return _allreduce(tensors, name, *arguments, waits=True).wait()

    @staticmethod
    def backward(ctx, *gradients):
        if ctx.arguments[0] not in (Average, Sum):
            raise NotImplementedError("an allreduce has gradients for op=hvd.Average and hvd.Sum only")
        return None, None, *_Allreduce.apply(ctx.arguments, None, *gradients)


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
                      postscale_factor=1.0, process_set=global_process_set):
    sent, contexts = zip(*map(compression.compress, tensors))
    arguments = _operation(op, average), prescale_factor, postscale_factor, process_set
    received = _Allreduce.apply(arguments, name, *sent)
    return [compression.decompress(tensor, context) for tensor, context in zip(received, contexts)]


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                            process_set=global_process_set):
    return _allreduce(tuple(tensors), name, _operation(op, average), prescale_factor, postscale_factor, process_set)


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                             process_set=global_process_set):
    return _allreduce(tuple(tensors), name, _operation(op, average), prescale_factor, postscale_factor, process_set,
                      copies=False)


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                       process_set=global_process_set):
    return _allreduce(tuple(tensors), name, _operation(op, average), prescale_factor, postscale_factor, process_set,
                      waits=True, copies=False).wait()


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
              postscale_factor=1.0, process_set=global_process_set):
    """Averages a tensor over the ranks, unless `op` says otherwise."""
    return grouped_allreduce([tensor], average, name, compression, op, prescale_factor, postscale_factor,
                             process_set)[0]


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                    process_set=global_process_set):
    return _one(grouped_allreduce_async([tensor], average, name, op, prescale_factor, postscale_factor, process_set))


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                     process_set=global_process_set):
    return _one(grouped_allreduce_async_([tensor], average, name, op, prescale_factor, postscale_factor, process_set))


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
               process_set=global_process_set):
    return grouped_allreduce_([tensor], average, name, op, prescale_factor, postscale_factor, process_set)[0]


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Call the handle for the sum or the average, which is sparse."""
    op, size = _operation(op), group_of(process_set).size()
    indices = allgather_async(tensor._indices().t().contiguous(), f"{name}.indices", process_set)
    values = allgather_async(tensor._values(), f"{name}.values", process_set)

    def finish():
        parts = values.wait() / size if op == Average else values.wait()
        return torch.sparse_coo_tensor(indices.wait().t(), parts, tensor.shape)
    return Handle(indices.works + values.works, finish)


# --- Rows of all ranks ---------------------------------------------------------------------------------------------


def _rows_of_all(tensor, counts, name, process_set):
    """`counts` of each rank, as rows of a tensor. The tensors have the same type, and rows of the same shape."""
    group = group_of(process_set)
    own = torch.tensor(counts)
    out = own.new_empty((group.size(), *own.shape))
    # The job ends with both if the ranks' names differ.
    text = f"{name}: {str(tensor.dtype)[6:]} rows of {list(tensor.shape[1:])}"
    named(process_set, text, "_allgather_base", out, own, _options(c10d.AllgatherOptions, True)).wait()
    return out


def allgather_async(tensor, name=None, process_set=global_process_set):
    """This waits for the other ranks, which say how many rows they have."""
    return _allgather(tensor, name, process_set)[0]


def _allgather(tensor, name, process_set, waits=False):
    """A handle, and the number of rows of each rank. A scalar is one row."""
    source = tensor.detach().reshape(1) if tensor.dim() == 0 else tensor.detach()
    rows = _rows_of_all(source, source.shape[0], name or "allgather", process_set).tolist()
    out = source.new_empty((sum(rows), *source.shape[1:]))
    work = named(process_set, name, "allgather", [list(out.split(rows))], [source],
                 _options(c10d.AllgatherOptions, waits))
    return Handle([work], lambda: out), rows


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        ctx.process_set, ctx.shapes = process_set, [tensor.shape for tensor in tensors]
        handles, ctx.rows = zip(*[_allgather(tensor, name, process_set, waits=True) for tensor in tensors])
        return tuple(handle.wait() for handle in handles)

    @staticmethod
    def backward(ctx, *gradients):
        """As in Horovod, gradients are averaged and not added."""
        place = group_of(ctx.process_set).rank()
        averages = grouped_allreduce(gradients, op=Average, process_set=ctx.process_set)
        return None, None, *(average.split(rows)[place].view(shape)
                             for average, rows, shape in zip(averages, ctx.rows, ctx.shapes))


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    return _Allgather.apply(name, process_set, *tensors)


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    return _several([allgather_async(tensor, name, process_set) for tensor in tensors])


def allgather(tensor, name=None, process_set=global_process_set):
    """The tensors of all ranks, one after the other along the first dimension, in which they may differ."""
    return grouped_allgather([tensor], name, process_set)[0]


# --- From one rank -------------------------------------------------------------------------------------------------


def _broadcast(output, root_rank, name, process_set, waits=False):
    group = group_of(process_set)
    if root_rank not in process_set.ranks:
        raise ValueError(f"root_rank={root_rank} is not in the process set {process_set.ranks}; pass a rank of the job")
    options = _options(c10d.BroadcastOptions, waits)
    options.rootRank = process_set.ranks.index(root_rank)
    if output.dtype != torch.float32:  # Ranks compare names and bytes, not types.
        name = f"{name or 'broadcast'} of {str(output.dtype)[6:]}"
    return Handle([named(process_set, name, "broadcast", [output], options)], lambda: output)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return _broadcast(_copy(tensor), root_rank, name, process_set, waits=True).wait()

    @staticmethod
    def backward(ctx, gradient):
        """As in Horovod, gradients are averaged and not added."""
        average = allreduce(gradient, op=Average, process_set=ctx.process_set)
        return average if quick.rank() == ctx.root_rank else torch.zeros_like(average), None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    return _Broadcast.apply(tensor, root_rank, name, process_set)


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    return _broadcast(_copy(tensor), root_rank, name, process_set)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    return _broadcast(tensor, root_rank, name, process_set)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    return _broadcast(tensor, root_rank, name, process_set, waits=True).wait()


# --- From all to all -----------------------------------------------------------------------------------------------


def _splits(tensor, splits, process_set):
    """How many rows each rank gets: a tensor, which may have less rows than `tensor`."""
    ranks = group_of(process_set).size()
    if tensor.dim() == 0:
        raise ValueError("hvd.alltoall() sends rows, which a scalar has not; use reshape(1)")
    rows = tensor.shape[0]
    if splits is None:
        if rows % ranks:
            raise ValueError(f"hvd.alltoall() has {rows} rows, which {ranks} ranks cannot share evenly; pass splits")
        return torch.full([ranks], rows // ranks, dtype=torch.int32)
    if not isinstance(splits, torch.Tensor):
        splits = torch.tensor(splits, dtype=torch.int32)
    if splits.numel() != ranks or splits.min() < 0 or splits.sum() > rows:
        raise ValueError(f"splits of hvd.alltoall() are {splits.tolist()}; {ranks} ranks need one number each, "
                         f"{rows} at most in all")
    return splits


def _alltoall(tensor, splits, name, process_set, waits=False):
    """`splits` as _splits() gives them. The result is also the number of rows from each rank."""
    sent, source = splits.tolist(), tensor.detach()
    place = group_of(process_set).rank()
    received = _rows_of_all(source, sent, name or "alltoall", process_set)[:, place].to(splits)
    out = source.new_empty((int(received.sum()), *source.shape[1:]))
    work = named(process_set, name, "alltoall_base", out, source[:sum(sent)].contiguous(), received.tolist(), sent,
                 _options(c10d.AllToAllOptions, waits))
    return Handle([work], lambda: (out, received))


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        out, received = _alltoall(tensor, splits, name, process_set, waits=True).wait()
        ctx.mark_non_differentiable(received)
        ctx.received, ctx.process_set = received, process_set
        return out, received

    @staticmethod
    def backward(ctx, gradient, _):
        return alltoall(gradient, ctx.received, process_set=ctx.process_set)[0], None, None, None


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Sends rows to each rank. With `splits`, the number for each, it also returns how many came from each."""
    numbers = _splits(tensor, splits, process_set)
    out, received = _Alltoall.apply(tensor[:int(numbers.sum())], numbers, name, process_set)
    return out if splits is None else (out, received)


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """This waits for the other ranks, which say how many rows they send. Its result is a pair."""
    return _alltoall(tensor, _splits(tensor, splits, process_set), name, process_set)


# --- Reduced rows --------------------------------------------------------------------------------------------------


def _reducescatter(tensor, name, op, process_set, prescale, postscale, waits=False):
    group = group_of(process_set)
    if tensor.dim() == 0:
        raise ValueError("hvd.reducescatter() shares rows, which a scalar has not; use hvd.allreduce()")
    reduction = _Reduction([tensor], _operation(op), prescale, postscale, process_set)
    source = _copy(tensor) if prescale != 1 else tensor.detach().contiguous()
    reduction.before(source)
    each, more = divmod(source.shape[0], group.size())
    parts = source.split([each + (place < more) for place in range(group.size())])
    out = torch.empty_like(parts[group.rank()])
    work = named(process_set, name, "reduce_scatter", [out], [list(parts)],
                 _options(c10d.ReduceScatterOptions, waits, reduction.of_torch))

    def finish():
        reduction.after(out)
        return out
    return Handle([work], finish)


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, arguments, name, *tensors):
        ctx.arguments = arguments
        return tuple([_reducescatter(tensor, name, *arguments, waits=True).wait() for tensor in tensors])

    @staticmethod
    def backward(ctx, *gradients):
        """As in Horovod, the gradient of a sum is that of an average times the number of ranks."""
        op, process_set, prescale, postscale = ctx.arguments
        if op not in (Average, Sum):
            raise NotImplementedError("a reducescatter has gradients for op=hvd.Average and hvd.Sum only")
        factor = prescale * postscale * (group_of(process_set).size() if op == Sum else 1)
        return None, None, *grouped_allgather([gradient * factor for gradient in gradients], process_set=process_set)


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=Average,
                          process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    sent, contexts = zip(*map(compression.compress, tensors))
    received = _Reducescatter.apply((op, process_set, prescale_factor, postscale_factor), name, *sent)
    return [compression.decompress(tensor, context) for tensor, context in zip(received, contexts)]


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                                postscale_factor=1.0):
    return _several([reducescatter_async(tensor, name, op, process_set, prescale_factor, postscale_factor)
                     for tensor in tensors])


def reducescatter(tensor, name=None, compression=Compression.none, op=Average, process_set=global_process_set,
                  prescale_factor=1.0, postscale_factor=1.0):
    """This rank's rows of the reduced tensor. If they cannot be shared evenly, the first ranks have one more."""
    return grouped_reducescatter([tensor], name, compression, op, process_set, prescale_factor, postscale_factor)[0]


def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                        postscale_factor=1.0):
    return _reducescatter(tensor, name, op, process_set, prescale_factor, postscale_factor)


# --- All at one point ----------------------------------------------------------------------------------------------


def barrier(process_set=global_process_set):
    named(process_set, None, "barrier", _options(c10d.BarrierOptions, True)).wait()
