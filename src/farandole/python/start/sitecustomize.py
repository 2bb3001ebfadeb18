"""Python runs this first if it is on PYTHONPATH, as `farandole run --trace-torch` and `farandole record` put it there. It
acts only once the program has imported torch, or one of the names of Horovod. Then it runs the sitecustomize of the
site, because Python itself imports only one.
"""
import os
import sys


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
    _start.begin()
except ImportError:  # Its folder was taken from PYTHONPATH.
    pass
_run_next()
