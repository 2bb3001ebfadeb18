"""Farandole for Python: `farandole.record`, the backend "farandole" of torch.distributed, and what runs scripts of
Horovod and Spark. See docs/python.md."""


def __getattr__(name):
    if name == "RankError":
        from farandole._runner import RankError
        return RankError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
