"""The functions of farandole/capi.h. Importing this starts nothing.

`core` calls that may wait release the GIL; `quick` calls that never wait keep it, which is faster.
"""
import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p

ABI = 2


class Error(RuntimeError):
    """What went wrong, where, and what to do. `code` is the exit code for it."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


def _library():
    named = os.environ.get("FARANDOLE_LIBRARY")
    if named:
        return named
    here = os.path.dirname(os.path.abspath(__file__))  # PREFIX/lib/farandole/python/farandole
    return os.path.normpath(os.path.join(here, "..", "..", "..", "libfarandole_c.so"))


_SIZES, _INTS, _SHAPE, _TICKET, _INT = (POINTER(t) for t in (c_size_t, c_int, c_int64, c_int64, c_int))
_NAMES, _HANDLE = POINTER(c_char_p), POINTER(c_void_p)
_ENDS = [_TICKET]

_WAITING = {
    "fdl_init": [],
    "fdl_init_guest": [c_int, c_int, c_int, c_int, c_char_p],
    "fdl_invite": [c_char_p, c_size_t],
    "fdl_meet": [c_char_p],
    "fdl_close": [],
    "fdl_close_at_exit": [],
    "fdl_abort": [c_int, c_char_p],
    "fdl_agree": [c_int, _INT],
    "fdl_run_facts": [c_char_p],
    "fdl_log": [c_int64, c_int64, c_char_p],
    "fdl_group": [_INTS, c_int, _HANDLE],
    "fdl_group_free": [c_void_p],
    "fdl_group_may_join": [c_void_p],
    "fdl_join": [c_void_p, _TICKET],
    "fdl_allreduce": [c_void_p, c_char_p, c_void_p, c_size_t, c_int, c_int] + _ENDS,
    "fdl_reduce": [c_void_p, c_char_p, c_void_p, c_size_t, c_int, c_int, c_int] + _ENDS,
    "fdl_broadcast": [c_void_p, c_char_p, c_void_p, c_size_t, c_int] + _ENDS,
    "fdl_all_gather": [c_void_p, c_char_p, c_void_p, c_void_p, c_size_t, _SIZES] + _ENDS,
    "fdl_gather": [c_void_p, c_char_p, c_void_p, c_void_p, c_size_t, c_int] + _ENDS,
    "fdl_scatter": [c_void_p, c_char_p, c_void_p, c_void_p, c_size_t, c_int] + _ENDS,
    "fdl_reduce_scatter": [c_void_p, c_char_p, c_void_p, c_void_p, c_size_t, _SIZES, c_int, c_int] + _ENDS,
    "fdl_all_to_all": [c_void_p, c_char_p, c_void_p, _SIZES, c_void_p, _SIZES] + _ENDS,
    "fdl_barrier": [c_void_p, c_char_p] + _ENDS,
    "fdl_send": [c_void_p, c_void_p, c_size_t, c_int, c_int] + _ENDS,
    "fdl_receive": [c_void_p, c_void_p, c_size_t, c_int, c_int, _INT] + _ENDS,
    "fdl_wait": [c_int64, c_double, _INT],
    "fdl_next_done": [c_double, _INT],
    "fdl_reducer": [_INTS, c_int, c_int, _NAMES, _INTS, _INTS, _SHAPE, c_int, c_char_p, c_size_t, _HANDLE],
    "fdl_reducer_free": [c_void_p],
    "fdl_reducer_finish": [c_void_p],
    "fdl_reducer_replan": [c_void_p, _INT],
    "fdl_reducer_join": [c_void_p, _TICKET],
}
_QUICK = {
    "fdl_abi": [],
    "fdl_version": [],
    "fdl_error": [],
    "fdl_is_running": [],
    "fdl_rank": [],
    "fdl_size": [],
    "fdl_local_rank": [],
    "fdl_local_size": [],
    "fdl_host": [c_int],
    "fdl_stop_requested": [],
    "fdl_now": [],
    "fdl_recording": [],
    "fdl_intern": [c_char_p],
    "fdl_begin": [c_int, c_int],
    "fdl_end": [],
    "fdl_span": [c_int, c_int, c_int64, c_int64],
    "fdl_set_step": [c_int64],
    "fdl_begin_first_step": [],
    "fdl_end_step": [c_void_p, c_int64],
    "fdl_forget_optimizer": [c_void_p],
    "fdl_instant": [c_int],
    "fdl_counter": [c_int, c_double],
    "fdl_fact": [c_char_p, c_char_p],
    "fdl_observe": [_INTS, c_int, c_int, c_int64, _HANDLE],
    "fdl_observe_end": [c_void_p],
    "fdl_enter": [c_void_p, c_char_p, c_char_p, c_size_t, c_int],
    "fdl_leave": [c_void_p, c_int64],
    "fdl_watch_python": [c_int, c_int],
    "fdl_group_rank": [c_void_p],
    "fdl_group_size": [c_void_p],
    "fdl_reducer_data": [c_void_p, c_int],
    "fdl_reducer_ready": [c_void_p, c_int],
    "fdl_reducer_present": [c_void_p, c_int],
    "fdl_test": [c_int64],
    "fdl_notify": [c_int64],
}
_RESULTS = {
    "fdl_version": c_char_p,
    "fdl_error": c_char_p,
    "fdl_host": c_char_p,
    "fdl_now": c_int64,
    "fdl_enter": c_int64,
    "fdl_next_done": c_int64,
    "fdl_reducer_data": c_void_p,
}
_NOTHING = ("fdl_abort fdl_begin fdl_end fdl_span fdl_set_step fdl_begin_first_step fdl_forget_optimizer fdl_instant "
            "fdl_counter fdl_fact fdl_observe_end fdl_leave fdl_group_free fdl_reducer_free").split()


class _Functions:
    """The functions as attributes without "fdl_"."""

    def __init__(self, load, library, signatures):
        handle = load(library)
        for name, arguments in signatures.items():
            function = getattr(handle, name)
            function.argtypes = arguments
            function.restype = _RESULTS.get(name, None if name in _NOTHING else c_int)
            setattr(self, name[4:], function)


def _load():
    library = _library()
    try:
        waiting = _Functions(ctypes.CDLL, library, _WAITING)
        quick = _Functions(ctypes.PyDLL, library, _QUICK)
    except (OSError, AttributeError) as error:
        raise ImportError(f"farandole cannot load its library {library}: {error}; install the two together") from None
    if quick.abi() != ABI:
        raise ImportError(f"farandole in Python has version {ABI} of the interface and {library} version "
                          f"{quick.abi()}; install the two together")
    return waiting, quick


core, quick = _load()


def check(result):
    """Raises Error if a call did not succeed."""
    if result:
        raise Error(quick.error().decode(errors="replace"), result)


def count(function, handle):
    """The number that a function of a handle gives."""
    number = ctypes.c_int64()
    check(function(handle, number))
    return number.value
