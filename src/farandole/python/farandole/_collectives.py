"""The collectives and messages of a process group on Farandole's C library.

Thread safety: none; use a group from one thread at a time.
"""
import ctypes
import functools
import time

import torch
from torch.distributed import ReduceOp, distributed_c10d as c10d

from farandole._core import Error, check, core
from farandole._group import TELLS_ASYNC, BaseGroup
from farandole._tensors import (PLANS, address, bitwise, byte_size, check_size, contiguous_copy, factor_of, flat_copy,
                                flat_memory, is_whole_average, plan_for, sizes, take_apart, writable_copy,
                                writable_memory)
from farandole._work import DONE, Work, together

_SUM = ReduceOp(ReduceOp.SUM)
_REDUCES_ALL = c10d.AllreduceOptions, c10d.AllreduceCoalescedOptions
_BARRIER_TAG = 32767  # of the messages of monitored_barrier()
_unanswered = []  # calls of monitored_barrier() that have not ended


class Group(BaseGroup):
    """Ranks with Farandole's collectives. Make it with torch.distributed's functions."""

    # --- Collectives -----------------------------------------------------------------------------------------------

    def allreduce(self, tensors, opts=None, timeout=None):
        if not isinstance(tensors, list) or not isinstance(opts, _REDUCES_ALL):
            tensors, opts = _listed(tensors), _reducing(c10d.AllreduceOptions(), opts)
        if len(tensors) != 1:
            return together([self.allreduce([tensor], opts) for tensor in tensors], tensors)
        tensor = tensors[0]
        if tensor.is_cuda:
            return self._on_gpu("allreduce", tensor, tensors, opts)
        plan = PLANS[tensor.dtype][hash(opts.reduceOp)] if tensor.dtype in PLANS else None
        if plan is None or not tensor.is_contiguous():
            return self._rare_allreduce(tensor, opts)
        if TELLS_ASYNC and not opts.asyncOp:
            result = core.allreduce(self._handle, self.label or b"allreduce", tensor.data_ptr(), tensor.numel(), *plan,
                                    None)
            return DONE if not result else check(result)
        return self._start(core.allreduce, b"allreduce", tensor.data_ptr(), tensor.numel(), *plan, result=tensors,
                           keep=tensors)

    def _rare_allreduce(self, tensor, opts):
        if tensor.is_sparse:
            return self._sparse_allreduce(tensor, opts)
        if tensor.is_complex() and opts.reduceOp in (ReduceOp.SUM, ReduceOp.AVG):
            self.allreduce([torch.view_as_real(tensor)], opts).wait()
            return Work(0, [tensor])
        function = bitwise(opts.reduceOp)
        if function is not None:
            return self._gathered(tensor, opts, lambda parts: tensor.copy_(functools.reduce(function, parts)))
        factor = factor_of(opts.reduceOp)
        if factor is not None:
            tensor.detach().mul_(factor)
        memory, finish = writable_copy(tensor)
        plan = plan_for(tensor.dtype, opts.reduceOp if factor is None else _SUM)
        finish = self._averaged(memory, opts, finish)
        return self._run(opts, core.allreduce, b"allreduce", memory.data_ptr(), memory.numel(), *plan,
                         result=[tensor], keep=memory, finish=finish)

    def _averaged(self, memory, opts, finish):
        """As NCCL has it, an average of integers is their sum, divided and cut towards 0."""
        if not is_whole_average(memory.dtype, opts.reduceOp):
            return finish

        def divide():
            memory.copy_(memory.long().div_(self._size, rounding_mode="trunc"))
            if finish:
                finish()
        return divide

    def _gathered(self, tensor, opts, finish):
        """Calls finish(list of all ranks' tensors)."""
        source = contiguous_copy(tensor)
        out = torch.empty((self._size, *tensor.shape), dtype=tensor.dtype)
        return self._run(opts, core.all_gather, b"allreduce", source.data_ptr(), out.data_ptr(), byte_size(source),
                         None, result=[tensor], keep=(source, out), finish=lambda: finish(out.unbind()))

    def _sparse_allreduce(self, tensor, opts):
        if opts.reduceOp != ReduceOp.SUM:
            raise Error("sparse tensors have ReduceOp.SUM only; convert the tensor with to_dense()")
        own = tensor.detach().coalesce()
        count = torch.tensor([own._nnz()])
        counts = [torch.empty_like(count) for _ in range(self._size)]
        self.allgather([counts], [count]).wait()
        parts = []
        for values in (own.indices().t(), own.values()):
            parts.append([values.new_empty((int(count), *values.shape[1:])) for count in counts])
            self.allgather([parts[-1]], [values]).wait()
        indices, values = map(torch.cat, parts)
        with torch.no_grad():
            tensor.copy_(torch.sparse_coo_tensor(indices.t(), values, tensor.shape, check_invariants=False).coalesce())
        return Work(0, [tensor])

    def allreduce_coalesced(self, tensors, opts=None):
        opts = opts or c10d.AllreduceCoalescedOptions()
        first = tensors[0]
        if first.is_cuda:
            return self._on_gpu("allreduce_coalesced", first, tensors, opts)
        plan = PLANS[first.dtype][hash(opts.reduceOp)] if first.dtype in PLANS else None
        is_mixed = any(tensor.dtype != first.dtype or tensor.is_sparse for tensor in tensors)
        if len(tensors) == 1 or plan is None or is_mixed:
            return together([self.allreduce([tensor], opts) for tensor in tensors], tensors)
        flat = flat_copy(tensors)
        finish = None if flat is first else lambda: take_apart(flat, tensors)
        count = sum(tensor.numel() for tensor in tensors)
        return self._run(opts, core.allreduce, b"allreduce", flat.data_ptr(), count, *plan,
                         result=tensors, keep=flat, finish=finish)

    def broadcast(self, tensors, opts=None, timeout=None):
        tensors = _listed(tensors)
        if not isinstance(opts, c10d.BroadcastOptions):
            opts = _rooted(c10d.BroadcastOptions(), opts)
        tensor = tensors[0]
        if tensor.is_cuda:
            return self._on_gpu("broadcast", tensor, tensors, opts)
        memory, finish = writable_copy(tensor)
        return self._run(opts, core.broadcast, b"broadcast", memory.data_ptr(), byte_size(memory), opts.rootRank,
                         result=tensors, keep=memory, finish=finish)

    def reduce(self, tensors, opts=None, op=ReduceOp.SUM, timeout=None):
        tensors = _listed(tensors)
        if not isinstance(opts, c10d.ReduceOptions):
            opts = _reducing(_rooted(c10d.ReduceOptions(), opts), op)
        tensor = tensors[0]
        if tensor.is_cuda:
            return self._on_gpu("reduce", tensor, tensors, opts)
        is_root = opts.rootRank == self._rank
        if tensor.is_complex() and opts.reduceOp in (ReduceOp.SUM, ReduceOp.AVG):
            tensor = torch.view_as_real(tensor)
        function = bitwise(opts.reduceOp)
        if function is not None:
            return self._gathered(tensor, opts, lambda parts: is_root and
                                  tensor.copy_(functools.reduce(function, parts)))
        factor = factor_of(opts.reduceOp)
        memory, finish = (tensor.detach() * factor, None) if factor is not None else writable_copy(tensor)
        if factor is not None and is_root:
            finish = lambda: tensor.copy_(memory)  # noqa: E731
        if is_root:
            finish = self._averaged(memory, opts, finish)
        plan = plan_for(tensor.dtype, opts.reduceOp if factor is None else _SUM)
        return self._run(opts, core.reduce, b"reduce", memory.data_ptr(), memory.numel(), *plan, opts.rootRank,
                         result=tensors, keep=memory, finish=finish)

    def allgather(self, outputs, inputs, opts=None, timeout=None):
        if not isinstance(inputs, list):
            outputs, inputs = [outputs], [inputs]
        out, source = outputs[0], inputs[0]
        if source.is_cuda:
            return self._on_gpu("allgather", source, outputs, inputs, opts or c10d.AllgatherOptions())
        check_size(source, out[self._rank].numel(), f"the input of all_gather on rank {self._rank}")
        source, (memory, finish) = contiguous_copy(source), flat_memory(out)
        by_rank = [byte_size(tensor) for tensor in out]
        return self._run(opts or c10d.AllgatherOptions(), core.all_gather, b"allgather", source.data_ptr(),
                         memory.data_ptr(), byte_size(source), None if len(set(by_rank)) == 1 else sizes(by_rank),
                         result=outputs, keep=(source, memory), finish=finish)

    def _allgather_base(self, output, input, opts=None):
        if input.is_cuda:
            return self._on_gpu("_allgather_base", input, output, input, opts or c10d.AllgatherOptions())
        if input.dtype != output.dtype:
            raise Error(f"all_gather_into_tensor has input of {input.dtype} and output of {output.dtype}")
        check_size(output, input.numel() * self._size, "the output of all_gather_into_tensor")
        source, (memory, finish) = contiguous_copy(input), writable_memory(output)
        return self._run(opts or c10d.AllgatherOptions(), core.all_gather, b"allgather", source.data_ptr(),
                         memory.data_ptr(), byte_size(source), None, result=[output], keep=(source, memory),
                         finish=finish)

    def allgather_coalesced(self, output_lists, input_list, opts=None):
        opts = opts or c10d.AllgatherOptions()
        works = [self.allgather([[lists[index] for lists in output_lists]], [tensor], opts)
                 for index, tensor in enumerate(input_list)]
        return together(works, output_lists)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        opts = opts or c10d.AllgatherOptions()
        if inputs[0].is_cuda:
            return self._on_gpu("allgather_into_tensor_coalesced", inputs[0], outputs, inputs, opts)
        works = [self._allgather_base(output, source, opts) for output, source in zip(outputs, inputs)]
        return together(works, outputs)

    def gather(self, outputs, inputs, opts=None, timeout=None):
        if not isinstance(inputs, list):
            outputs, inputs, opts = [outputs] if outputs else [], [inputs], _rooted(c10d.GatherOptions(), opts)
        source = inputs[0]
        if source.is_cuda:
            return self._on_gpu("gather", source, outputs, inputs, opts)
        source, memory, finish = contiguous_copy(source), None, None
        if opts.rootRank == self._rank:
            for tensor in outputs[0]:
                check_size(tensor, source.numel(), "an output of gather")
            memory, finish = flat_memory(outputs[0])
        return self._run(opts, core.gather, b"gather", source.data_ptr(), address(memory), byte_size(source),
                         opts.rootRank, result=outputs[0] if outputs else [], keep=(source, memory), finish=finish)

    def gather_single(self, output, input, opts=None):
        opts = opts or c10d.GatherOptions()
        if input.is_cuda:
            return self._on_gpu("gather_single", input, output, input, opts)
        parts = [list(output.view(self._size, -1).unbind())] if opts.rootRank == self._rank else []
        return self.gather(parts, [input], opts)

    def scatter(self, outputs, inputs, opts=None, timeout=None):
        if not isinstance(outputs, list):
            outputs, inputs, opts = [outputs], [inputs] if inputs else [], _rooted(c10d.ScatterOptions(), opts)
        output = outputs[0]
        if output.is_cuda:
            return self._on_gpu("scatter", output, outputs, inputs, opts)
        source = None
        if opts.rootRank == self._rank:
            for tensor in inputs[0]:
                check_size(tensor, output.numel(), "an input of scatter")
            source = flat_copy(inputs[0])
        memory, finish = writable_memory(output)
        return self._run(opts, core.scatter, b"scatter", address(source), memory.data_ptr(), byte_size(memory),
                         opts.rootRank, result=outputs, keep=(source, memory), finish=finish)

    def reduce_scatter(self, outputs, inputs, opts=None, timeout=None):
        if not isinstance(outputs, list):
            outputs, inputs, opts = [outputs], [inputs], _reducing(c10d.ReduceScatterOptions(), opts)
        output, parts = outputs[0], inputs[0]
        if output.is_cuda:
            return self._on_gpu("reduce_scatter", output, outputs, inputs, opts)
        check_size(output, parts[self._rank].numel(), f"the output of reduce_scatter on rank {self._rank}")
        counts = [tensor.numel() for tensor in parts]
        return self._reduce_scatter(output, flat_copy(parts), None if len(set(counts)) == 1 else counts, opts)

    def _reduce_scatter_base(self, output, input, opts=None):
        opts = opts or c10d.ReduceScatterOptions()
        if output.is_cuda:
            return self._on_gpu("_reduce_scatter_base", output, output, input, opts)
        check_size(input, output.numel() * self._size, "the input of reduce_scatter_tensor")
        return self._reduce_scatter(output, contiguous_copy(input), None, opts)

    def _reduce_scatter(self, output, source, counts, opts):
        if source.dtype != output.dtype:
            raise Error(f"reduce_scatter has input of {source.dtype} and output of {output.dtype}")
        if output.is_complex() and opts.reduceOp in (ReduceOp.SUM, ReduceOp.AVG):
            counts = counts and [2 * count for count in counts]
            output, source = torch.view_as_real(output), torch.view_as_real(source)
        function, factor, op = bitwise(opts.reduceOp), factor_of(opts.reduceOp), opts.reduceOp
        if function is not None:
            first = sum(counts[:self._rank]) if counts else output.numel() * self._rank
            return self._gathered(source, opts, lambda parts: output.copy_(
                functools.reduce(function, parts).reshape(-1)[first:first + output.numel()].view(output.shape)))
        if factor is not None:
            source, op = source.detach() * factor, _SUM
        memory, finish = writable_memory(output)
        finish = self._averaged(memory, opts, finish)
        return self._run(opts, core.reduce_scatter, b"reduce_scatter", source.data_ptr(), memory.data_ptr(),
                         memory.numel(), counts and sizes(counts), *plan_for(output.dtype, op),
                         result=[output], keep=(source, memory), finish=finish)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        opts = opts or c10d.ReduceScatterOptions()
        if outputs[0].is_cuda:
            return self._on_gpu("reduce_scatter_tensor_coalesced", outputs[0], outputs, inputs, opts)
        works = [self._reduce_scatter_base(output, source, opts) for output, source in zip(outputs, inputs)]
        return together(works, outputs)

    def alltoall_base(self, output, input, output_splits, input_splits, opts=None, timeout=None):
        opts = opts if isinstance(opts, c10d.AllToAllOptions) else c10d.AllToAllOptions()
        if input.is_cuda:
            return self._on_gpu("alltoall_base", input, output, input, output_splits, input_splits, opts)
        source, (memory, finish) = contiguous_copy(input), writable_memory(output)
        return self._all_to_all(source, self._split(input, input_splits, "input"), memory,
                                self._split(output, output_splits, "output"), [output], finish, opts)

    def _split(self, tensor, splits, what):
        """The bytes of each rank's part. Parts are rows."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._size:
                raise Error(f"the {what} of all_to_all has {rows} rows, which {self._size} ranks cannot share evenly; "
                            "pass split sizes")
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows:
            raise Error(f"the {what} of all_to_all has {rows} rows; its split sizes are {list(splits)} for "
                        f"{self._size} ranks")
        row = byte_size(tensor) // rows if rows else 0
        return [row * split for split in splits]

    def alltoall(self, outputs, inputs, opts=None, timeout=None):
        opts = opts if isinstance(opts, c10d.AllToAllOptions) else c10d.AllToAllOptions()
        if inputs[0].is_cuda:
            return self._on_gpu("alltoall", inputs[0], outputs, inputs, opts)
        if not len(inputs) == len(outputs) == self._size:
            raise Error(f"all_to_all has {len(inputs)} inputs and {len(outputs)} outputs for {self._size} ranks")
        source, (memory, finish) = flat_copy(inputs), flat_memory(outputs)
        return self._all_to_all(source, list(map(byte_size, inputs)), memory, list(map(byte_size, outputs)), outputs,
                                finish, opts)

    def _all_to_all(self, source, send_bytes, memory, receive_bytes, result, finish, opts):
        if source.dtype != memory.dtype:
            raise Error(f"all_to_all has input of {source.dtype} and output of {memory.dtype}")
        return self._run(opts, core.all_to_all, b"alltoall", source.data_ptr(), sizes(send_bytes), memory.data_ptr(),
                         sizes(receive_bytes), result=result, keep=(source, memory), finish=finish)

    def barrier(self, opts=None, timeout=None):
        opts = opts if isinstance(opts, c10d.BarrierOptions) else c10d.BarrierOptions()
        if self._gpu is not None:  # it also waits for what runs on the GPU
            return self._gpu.barrier(opts)
        return self._run(opts, core.barrier, b"barrier", result=[])

    # The names since PyTorch 2.15.
    all_gather_single, all_gather_single_coalesced = _allgather_base, allgather_into_tensor_coalesced
    reduce_scatter_single, reduce_scatter_single_coalesced = _reduce_scatter_base, reduce_scatter_tensor_coalesced
    all_to_all_single, gather_into_tensor = alltoall_base, gather_single

    # --- Messages --------------------------------------------------------------------------------------------------

    def send(self, tensors, destination, tag=0):
        tensor = tensors[0]
        if tensor.is_cuda:
            return self._on_gpu("send", tensor, tensors, destination, tag)
        memory = contiguous_copy(tensor)
        return self._start(core.send, memory.data_ptr(), byte_size(memory), destination, tag,
                           result=tensors, keep=memory)

    def recv(self, tensors, source, tag=0):
        tensor = tensors[0]
        if tensor.is_cuda:
            return self._on_gpu("recv", tensor, tensors, source, tag)
        memory, finish = writable_memory(tensor)
        sender = ctypes.c_int(source)
        work = self._start(core.receive, memory.data_ptr(), byte_size(memory), source, tag, sender,
                           result=tensors, keep=(memory, sender), finish=finish)
        work.sender = sender
        return work

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, -1, tag)

    def monitored_barrier(self, timeout, wait_all_ranks=False):
        """Throws on rank 0, which names the ranks that have not come within the timeout, and then on the others."""
        limit, end = timeout.total_seconds(), time.monotonic() + timeout.total_seconds()
        peers = range(1, self._size) if self._rank == 0 else [0]
        if self._rank != 0:
            self.send([torch.zeros(1)], 0, _BARRIER_TAG).wait()
        answers = {peer: self.recv([torch.zeros(1)], peer, _BARRIER_TAG) for peer in peers}
        missing = []
        for peer, answer in answers.items():
            if not answer.ends_within(max(end - time.monotonic(), 0)):
                missing.append(peer)
                _unanswered.append(answer)  # its memory must live on
        if missing:
            raise Error(f"monitored_barrier: ranks {', '.join(map(str, missing))} of the group {self._name} did not "
                        f"reach it within {limit:g} s; their stacks show why")
        if self._rank == 0:
            for peer in peers:
                self.send([torch.zeros(1)], peer, _BARRIER_TAG).wait()


def _listed(tensors):
    return tensors if isinstance(tensors, list) else [tensors]


def _reducing(opts, op):
    if op is not None:
        opts.reduceOp = op
    return opts


def _rooted(opts, root):
    opts.rootRank = root or 0
    return opts
