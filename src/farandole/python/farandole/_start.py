"""Which process is recorded, and how something is done once it has imported torch. It needs no other module."""
import os
import sys

# The rank's process writes its number here, so that the processes that it starts know that they are not the rank.
_PROCESS = "FARANDOLE_RANK_PROCESS"
NO_RANK = {_PROCESS: "0"}  # for what the rank's process executes when it has ended its part of the job
_loaded = set()  # modules whose _Finder is about to call its function
_has_begun = False


def is_rank():
    """Whether this is the own process of a rank that `farandole run` has started: the first one that asks this. Ask it
    where torch is needed, because a Python without torch may start the one that trains."""
    return _is_launched() and os.environ.setdefault(_PROCESS, str(os.getpid())) == str(os.getpid())


def is_guest():
    """Whether this process is recorded if it trains, although something else has started it."""
    return os.environ.get("FARANDOLE_TRACE", "0") not in ("", "0") and not _is_launched()


def is_off():
    return os.environ.get("FARANDOLE") == "off"


def _is_launched():
    if os.environ.get("FARANDOLE_SUPERVISED"):
        return True
    return bool(os.environ.get("FARANDOLE_RUN_DIR")) and not os.environ.get("FARANDOLE_TRACE")


def begin():
    """At the start of Python: records the program as the environment says, once it has imported torch."""
    global _has_begun
    if not _has_begun:
        _has_begun = True
        after("torch", _act)
        if os.environ.get("FARANDOLE_HOROVOD") == "1":
            from farandole import _names
            _names.install()


def _act():
    if not (is_guest() or is_rank()):
        return
    try:
        if is_guest() or os.environ.get("FARANDOLE_TRACE_TORCH") == "1":
            import farandole.record  # noqa: F401
    except Exception as error:  # The program itself can go on.
        print(f"farandole: this process is not recorded: {error}", file=sys.stderr, flush=True)
    try:
        if os.environ.get("FARANDOLE_TORCH_BACKEND") == "farandole":
            from farandole import torch_backend
            torch_backend.install()
    except Exception as error:
        print(f"farandole run: no --torch-backend: {error}", file=sys.stderr, flush=True)


def after(name, function):
    """Calls function() once: now if the module is there, or else as soon as it has been imported."""
    if name in _loaded or (name in sys.modules and not _is_loading(sys.modules[name])):
        function()
    else:
        sys.meta_path.insert(0, _Finder(name, function))


def _is_loading(module):
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


class _Finder:
    def __init__(self, name, function):
        self.name, self.function = name, function

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        found = (finder.find_spec(name, path, target) for finder in list(sys.meta_path) if hasattr(finder, "find_spec"))
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                _loaded.add(name)
                self.function()

            spec.loader.exec_module = exec_module
        return spec
