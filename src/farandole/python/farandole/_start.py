"""Which process is a rank, and how something is done once it has imported torch. It needs no other module."""
import os
import sys

# The rank's process writes its number here, so that the processes that it starts know that they are not the rank.
_PROCESS = "FARANDOLE_RANK_PROCESS"
NO_RANK = {_PROCESS: "0"}  # for what the rank's process executes when it has ended its part of the job
_loaded = set()  # modules whose _Finder is about to call its function


def is_rank():
    """Whether this is a rank's own process: the first one that the launcher has started and that asks this. Ask it
    where torch is needed, because a Python without torch may start the one that trains."""
    launched = os.environ.get("FARANDOLE_RUN_DIR") or os.environ.get("FARANDOLE_SUPERVISED")
    return bool(launched) and os.environ.setdefault(_PROCESS, str(os.getpid())) == str(os.getpid())


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
