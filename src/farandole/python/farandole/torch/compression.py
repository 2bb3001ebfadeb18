"""Compression of tensors for an allreduce: `hvd.Compression.fp16` and its kind. Any thread may call this."""
import torch


class Compressor:
    """A compressor of one's own overrides both functions."""

    @staticmethod
    def compress(tensor):
        """Returns the tensor that is sent, and what decompress() needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor, context):
        raise NotImplementedError


class NoneCompressor(Compressor):
    name = "none"

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, context):
        return tensor


class _Cast(Compressor):
    """Sends floating-point tensors as a shorter type."""
    dtype = None

    @classmethod
    def compress(cls, tensor):
        return (tensor.to(cls.dtype) if tensor.is_floating_point() else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor, context):
        return tensor.to(context)


class FP16Compressor(_Cast):
    name, dtype = "float16", torch.float16


class BF16Compressor(_Cast):
    name, dtype = "bfloat16", torch.bfloat16


class Compression:
    """`none` is the default; `bf16` keeps the range of float32."""
    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
