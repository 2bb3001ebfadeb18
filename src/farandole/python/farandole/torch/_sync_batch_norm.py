"""Batch normalization over the batches of all ranks."""
import torch
import torch.nn.functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from farandole.torch._calls import allreduce
from farandole.torch._ranks import Sum, size


class SyncBatchNorm(_BatchNorm):
    """As BatchNorm1d, 2d and 3d, with the mean and variance of the batches of all ranks, on CPUs too. In training, all
    ranks call it. Gradients of weight and bias are this rank's, which hvd.DistributedOptimizer averages."""

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"hvd.SyncBatchNorm takes at least 2 dimensions, not {input.dim()}")

    def forward(self, input):
        is_own = self.training or self.running_mean is None
        if size() == 1 or not is_own:
            return super().forward(input)
        self._check_input_dim(input)
        momentum = self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if momentum is None:
                momentum = 1 / self.num_batches_tracked.item()
        running = (self.running_mean, self.running_var) if self.training else (None, None)
        return _Normalize.apply(input, self.weight, self.bias, *running, momentum, self.eps)


def _over_channels(input):
    return [dimension for dimension in range(input.dim()) if dimension != 1]


def _along(values, input):
    return values.view(-1, *[1] * (input.dim() - 2))


class _Normalize(torch.autograd.Function):
    """As train/layers/sync_batch_norm.cc: each rank's mean and variance, merged in float64, and the same gradient. Half
    types are summed in float32."""

    @staticmethod
    def forward(ctx, input, weight, bias, running_mean, running_var, momentum, eps):
        channels = input.size(1)
        values = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        sums = values.new_zeros(2 * channels + 1, dtype=torch.float64)
        if input.numel():
            variance, mean = (part.double() for part in torch.var_mean(values, _over_channels(input), correction=0))
            sums = torch.cat([mean, variance + mean.square(), mean.new_ones(1)]) * (input.numel() // channels)
        sums = allreduce(sums, name="sync_batch_norm", op=Sum)
        total = sums[-1]
        mean, squares = (sums[:-1] / total).chunk(2)
        variance = (squares - mean.square()).clamp_(min=0)
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean), momentum)
            running_var.lerp_((variance * (total / (total - 1))).to(running_var), momentum)
        mean, variance = mean.to(values), variance.to(values)
        scale = torch.rsqrt(variance + eps)
        ctx.save_for_backward(input, weight, mean, scale, total)
        affine = [part if part is None else part.to(mean.dtype) for part in (weight, bias)]
        return F.batch_norm(values, mean, variance, *affine, eps=eps).to(input.dtype)

    @staticmethod
    def backward(ctx, gradient):
        input, weight, mean, scale, total = ctx.saved_tensors
        others = _over_channels(input)
        normal = (input - _along(mean, input)) * _along(scale, input)
        of_bias, of_weight = gradient.to(normal.dtype).sum(others), (gradient * normal).sum(others)
        of_input = None
        if ctx.needs_input_grad[0]:
            sums = allreduce(torch.cat([of_bias, of_weight]).double(), name="sync_batch_norm.backward", op=Sum) / total
            mean_bias, mean_weight = (_along(part, input) for part in sums.to(scale).chunk(2))
            factor = scale if weight is None else scale * weight
            of_input = ((gradient - mean_bias - normal * mean_weight) * _along(factor, input)).to(input.dtype)
        return (of_input, of_weight.to(weight.dtype) if ctx.needs_input_grad[1] else None,
                of_bias.to(weight.dtype) if ctx.needs_input_grad[2] else None, None, None, None, None)
