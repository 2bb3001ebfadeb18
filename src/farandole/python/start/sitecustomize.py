"""Python runs this first if it is on PYTHONPATH, as `farandole run --trace-torch` puts it there. It acts only once the
program has imported torch, or one of the names of Horovod. Then it runs the sitecustomize of the site, because Python
itself imports only one.
"""
import os
import sys


def _act():
    if not _start.is_rank():
        return
    try:
        if os.environ.get("FARANDOLE_TRACE_TORCH") == "1":
            import farandole.record  # noqa: F401
    except Exception as error:  # The program itself can go on.
        print(f"farandole run: this process is not recorded: {error}", file=sys.stderr, flush=True)
    try:
        if os.environ.get("FARANDOLE_TORCH_BACKEND") == "farandole":
            from farandole import torch_backend
            torch_backend.install()
    except Exception as error:
        print(f"farandole run: no --torch-backend: {error}", file=sys.stderr, flush=True)


def _run_next():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
    own = sys.modules.pop(__name__)
    try:
        import sitecustomize  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != __name__:
            raise
    sys.modules.setdefault(__name__, own)


try:
    from farandole import _start
    _start.after("torch", _act)
    if os.environ.get("FARANDOLE_HOROVOD") == "1":
        from farandole import _names
        _names.install()
except ImportError:  # Its folder was taken from PYTHONPATH.
    pass
_run_next()
