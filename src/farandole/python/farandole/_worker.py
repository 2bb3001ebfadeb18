"""What a rank of farandole._runner executes: it calls the function of the payload, and leaves its value or its failure
in the folder of the call, which the driver reads when all ranks have ended.
"""
import os
import sys

if __name__ == "__main__":  # The folder of this file, which Python puts first, has other modules with names like "torch".
    _package = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != _package] + [os.path.dirname(_package)]

import json
import linecache
import pickle
import socket
import time
import traceback

_PREEMPTED = 75


def main():
    call, rank = sys.argv[1], int(os.environ["RANK"])
    try:
        values, cloudpickle, function, args, kwargs = _read(call)
        sys.argv = ["-c"]
        value = function(*args, **kwargs)
        if values == "all" or rank == 0:
            _leave(call, f"value-{rank}", _pickled(cloudpickle, value))
        _end_groups()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if code == 0:
            _leave(call, f"value-{rank}", pickle.dumps(None))
            raise
        how = f"sys.exit({error.code!r})" if code != _PREEMPTED else "sys.exit(75): it can be continued"
        _fail(call, rank, f"the function called {how}", code, error)
    except KeyboardInterrupt:
        _abort(130, "the function was interrupted")
    except BaseException as error:
        _fail(call, rank, "".join(traceback.format_exception_only(type(error), error)).strip(), None, error)


def open_own(path):
    """Opens a file for reading, unless another user has put it there: pickles are code."""
    file = open(path, "rb")
    if os.fstat(file.fileno()).st_uid != os.getuid():
        file.close()
        raise RuntimeError(f"{path} belongs to another user; name a folder of your own for the records of runs in "
                           "FARANDOLE_RUNS")
    return file


def _end_groups():
    """Threads of Gloo that drop an object of Python while Python ends would end the process with SIGABRT."""
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _read(call):
    payload = os.path.join(call, "payload")
    try:
        file = open_own(payload)
    except OSError as error:
        raise RuntimeError(f"{payload} cannot be read on {socket.gethostname()}: {error.strerror}; all hosts must see "
                           "the run directory: name a folder of a shared file system in FARANDOLE_RUNS") from None
    with file:
        header = pickle.load(file)
        sys.path += [entry for entry in header["path"] if entry not in sys.path]
        name, lines = header["source"]
        if lines:
            linecache.cache[name] = sum(map(len, lines)), None, lines, name
        from farandole import _runner
        cloudpickle = _runner.pickler()
        function, args, kwargs = pickle.load(file)
    _name_classes(cloudpickle)
    return header["values"], cloudpickle, function, args, kwargs


def _name_classes(cloudpickle):
    """torch.save(model) looks for the class of the model in __main__, where the driver has defined it."""
    known = getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})
    for kind in list(known.values()):
        if kind.__module__ == "__main__" and kind.__qualname__ == kind.__name__:
            setattr(sys.modules["__main__"], kind.__name__, kind)


def _pickled(cloudpickle, value):
    try:
        return cloudpickle.dumps(value)
    except Exception as error:
        raise TypeError(f"the value of the function, of {type(value)}, cannot be sent to the driver: {error}; return "
                        "something that can be pickled, such as a state_dict()") from error


def _leave(call, name, data):
    path = os.path.join(call, name)
    with open(path + ".part", "wb") as file:
        file.write(data)
    os.replace(path + ".part", path)


def _fail(call, rank, text, code, error):
    """Leaves the failure, and ends the job. If another rank is the cause, that one ends this process before."""
    from farandole import _exits
    code = _exits.code_of(error)[0] if code is None else code
    frames = error.__traceback__.tb_next if error.__traceback__ else None  # without those of this module
    lines = [] if isinstance(error, SystemExit) else traceback.format_exception(type(error), error, frames)
    record = {"rank": rank, "host": socket.gethostname(), "exit_code": code, "signal": 0, "told": False,
              "time_ns": time.time_ns(), "last_words": text}  # launch/records/rank_record.h
    try:
        _leave(call, f"traceback-{rank}", "".join(lines).encode("utf-8", "replace"))
        _leave(call, f"rank-{rank:04}.json", json.dumps(record).encode())
    except OSError:
        pass  # The line below is left.
    if code == _PREEMPTED:
        raise error
    _abort(code, f"the function ended: {text.splitlines()[0]}")


def _abort(code, text):
    from farandole import _exits
    _exits._abort(code, text)


if __name__ == "__main__":
    main()
