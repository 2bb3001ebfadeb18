"""Tensors as the C library takes them: contiguous memory, element types and operations.

Any thread may call this.
"""
import ctypes

import torch
from torch.distributed import ReduceOp

from farandole._core import Error

_KINDS = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2, torch.float64: 3, torch.int32: 4, torch.int64: 5,
          torch.uint8: 6, torch.bool: 6, torch.int8: 8, torch.int16: 9}
SUM, AVERAGE, MIN, MAX, PRODUCT = range(5)
_OPERATIONS = {ReduceOp.SUM: SUM, ReduceOp.AVG: AVERAGE, ReduceOp.MIN: MIN, ReduceOp.MAX: MAX,
               ReduceOp.PRODUCT: PRODUCT}
# Of bool, the sum is "any" and the product is "all".
_OF_BOOL = {SUM: MAX, PRODUCT: MIN}
_BITWISE = {ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or, ReduceOp.BXOR: torch.bitwise_xor}


def _plans():
    plans = {}
    for dtype, kind in _KINDS.items():
        plan = plans[dtype] = [None] * 16
        for operation, op in _OPERATIONS.items():
            if op != AVERAGE or dtype.is_floating_point:
                plan[int(operation)] = (kind, _OF_BOOL.get(op, op) if dtype == torch.bool else op)
    return plans


# By torch.dtype and hash(ReduceOp), which is its number: element type and operation of the C library, or None.
PLANS = _plans()


def bitwise(reduce_op):
    """The function of torch for a bitwise operation, or None."""
    return _BITWISE.get(reduce_op.op)


def factor_of(reduce_op):
    """Of PREMUL_SUM; None for other operations."""
    return reduce_op.__getstate__()[1] if reduce_op == ReduceOp.PREMUL_SUM else None


def is_whole_average(dtype, reduce_op):
    """Whether this averages integers, which the C library can only add."""
    return reduce_op == ReduceOp.AVG and not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def plan_for(dtype, reduce_op):
    if is_whole_average(dtype, reduce_op):
        return _KINDS[dtype], SUM
    plan = PLANS[dtype][hash(reduce_op)] if dtype in PLANS else None
    if plan is None:
        name = str(reduce_op.op).rpartition(".")[2]
        raise Error(f"ReduceOp.{name} of {dtype} does not exist in the backend farandole; convert the tensor, or use "
                    "another operation")
    return plan


def address(tensor):
    return None if tensor is None else tensor.data_ptr()


def byte_size(tensor):
    return tensor.numel() * tensor.element_size()


def sizes(numbers):
    return (ctypes.c_size_t * len(numbers))(*numbers)


def contiguous_copy(tensor):
    """Its values in contiguous memory, which is its own if that is contiguous, as with the functions below."""
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def writable_copy(tensor):
    """Contiguous memory with its values, and what brings the result back into `tensor`."""
    if tensor.is_contiguous():
        return tensor, None
    copy = tensor.contiguous()
    return copy, lambda: tensor.copy_(copy)


def writable_memory(tensor):
    """Contiguous memory for its values, and what brings them into `tensor`."""
    if tensor.is_contiguous():
        return tensor, None
    copy = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    return copy, lambda: tensor.copy_(copy)


def _are_adjacent(tensors):
    at = tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != at or not tensor.is_contiguous():
            return False
        at += byte_size(tensor)
    return True


def _check_alike(tensors):
    if any(tensor.dtype != tensors[0].dtype or tensor.is_cuda for tensor in tensors):
        raise Error("the tensors of one collective must have one type and lie on one device; here are " +
                    ", ".join(sorted({f"{tensor.dtype} on {tensor.device}" for tensor in tensors})))


def check_size(tensor, count, what):
    """Throws if `tensor` has not `count` elements."""
    if tensor.numel() != count:
        raise Error(f"{what} has {tensor.numel()} elements and must have {count}")


def flat_copy(tensors):
    """Their values in contiguous memory, one after the other."""
    _check_alike(tensors)
    if _are_adjacent(tensors):
        return tensors[0]
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def flat_memory(tensors):
    """Memory for their values, one after the other, and what brings the values into `tensors`."""
    _check_alike(tensors)
    if _are_adjacent(tensors):
        return tensors[0], None
    flat = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype)
    return flat, lambda: take_apart(flat, tensors)


def take_apart(flat, tensors):
    """Copies `flat` into `tensors`, one after the other."""
    for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
        tensor.copy_(part.view(tensor.shape))
