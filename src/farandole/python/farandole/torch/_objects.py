"""Parameters, states of optimizers and objects of one rank for the others. All ranks call these functions.

Thread safety: none; use from one thread at a time.
"""
import pickle
from collections.abc import Iterable

import torch

from farandole.torch._calls import _rows_of_all, allgather, broadcast_, broadcast_async_, synchronize
from farandole.torch._ranks import global_process_set, group_of, rank

try:
    import cloudpickle
except ImportError:  # Then functions and classes of the script itself cannot be sent.
    cloudpickle = pickle


def broadcast_parameters(params, root_rank):
    """`params` as model.state_dict(), model.named_parameters() or model.parameters()."""
    if isinstance(params, dict):
        params = sorted(params.items())
    elif not isinstance(params, Iterable) or isinstance(params, (str, torch.Tensor)):
        raise ValueError(f"hvd.broadcast_parameters() has parameters of type {type(params).__name__}; pass "
                         "model.state_dict() or model.named_parameters()")
    named = [pair if isinstance(pair, tuple) else (None, pair) for pair in params]
    for handle in [broadcast_async_(tensor, root_rank, name) for name, tensor in named if torch.is_tensor(tensor)]:
        synchronize(handle)


class _Place:
    """Stands for a tensor in what is pickled."""

    def __init__(self, tensor):
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device.type


def _map(value, function, name=""):
    """`value` with function(name, tensor or _Place) in place of each tensor or _Place in it."""
    if isinstance(value, (torch.Tensor, _Place)):
        return function(name, value)
    if isinstance(value, dict):
        return {key: _map(part, function, f"{name}.{key}") for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_map(part, function, f"{name}.{index}") for index, part in enumerate(value))
    return value


def broadcast_optimizer_state(optimizer, root_rank, model=None):
    """The state and the options of the root's optimizer, also if those of the others are empty."""
    tensors = {}
    state = _map(optimizer.state_dict(), lambda name, tensor: tensors.setdefault(name, tensor))
    places = broadcast_object(_map(state, lambda _, tensor: _Place(tensor)), root_rank, "optimizer")
    is_root = rank() == root_rank

    def make(name, place):
        if is_root:
            return tensors[name]
        device = torch.device(place.device, torch.cuda.current_device()) if place.device == "cuda" else place.device
        return torch.empty(place.shape, dtype=place.dtype, device=device)

    received = {}
    state = _map(places, lambda name, place: received.setdefault(name, make(name, place)))
    broadcast_parameters(list(received.items()), root_rank)
    if not is_root:
        optimizer.load_state_dict(state)


def _pickled(obj):
    return torch.frombuffer(bytearray(cloudpickle.dumps(obj)), dtype=torch.uint8)


def _unpickled(data):
    return pickle.loads(data.numpy().tobytes())


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """The root's object, on all ranks of the set."""
    name = name or "object"
    is_root = rank() == root_rank
    data = _pickled(obj) if is_root else None
    size = broadcast_(torch.tensor([len(data) if is_root else 0]), root_rank, f"{name}.size", process_set)
    if not is_root:
        data = torch.empty(int(size), dtype=torch.uint8)
    broadcast_(data, root_rank, name, process_set)
    return obj if is_root else _unpickled(data)


def allgather_object(obj, name=None, process_set=global_process_set):
    """The objects of all ranks, in their order."""
    data = _pickled(obj)
    sizes = _rows_of_all(data, len(data), name or "object", process_set).tolist()
    return [_unpickled(part) for part in allgather(data, name or "object", process_set).split(sizes)]
