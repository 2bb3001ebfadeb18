#!/usr/bin/env python3
"""farandole/capi.h and the Python package's _core.py declare the same functions: names, arguments and results.

usage: c_interface.py
"""
import ctypes
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "src" / "farandole"
TYPES = {"void": None, "int": ctypes.c_int, "int64_t": ctypes.c_int64, "size_t": ctypes.c_size_t, "double": ctypes.c_double,
         "char*": ctypes.c_char_p, "void*": ctypes.c_void_p, "int*": ctypes.POINTER(ctypes.c_int),
         "int64_t*": ctypes.POINTER(ctypes.c_int64), "size_t*": ctypes.POINTER(ctypes.c_size_t),
         "char**": ctypes.POINTER(ctypes.c_char_p), "void**": ctypes.POINTER(ctypes.c_void_p)}


def type_of(words):
    """The type of ctypes for the words of a parameter without its name, or of a result."""
    return TYPES["".join(re.sub(r"\bconst\b", "", words).split())]


def declared_in_c():
    """{name: (argument types, result)}, and the number of the interface."""
    text = re.sub(r"/\*.*?\*/", "", (SOURCE / "capi.h").read_text(), flags=re.S)
    functions = {}
    for result, name, parameters in re.findall(r"^([\w \t*]+?)\s*\b(fdl_\w+)\s*\(([^)]*)\);", text, re.M):
        arguments = [] if parameters.strip() == "void" else parameters.split(",")
        functions[name] = [type_of(re.sub(r"\w+\s*$", "", argument)) for argument in arguments], type_of(result)
    assert len(functions) == len(set(re.findall(r"\bfdl_\w+(?=\s*\()", text))) > 50, "a declaration was not understood"
    return functions, int(re.search(r"#define FDL_ABI (\d+)", text)[1])


def declared_in_python():
    # Only the tables: the rest of the module loads the library.
    core = {}
    exec((SOURCE / "python" / "farandole" / "_core.py").read_text().partition("class _Functions")[0], core)
    waiting, quick = core["_WAITING"], core["_QUICK"]
    assert not waiting.keys() & quick.keys(), waiting.keys() & quick.keys()
    return {name: (arguments, None if name in core["_NOTHING"] else core["_RESULTS"].get(name, ctypes.c_int))
            for name, arguments in {**waiting, **quick}.items()}, core["ABI"]


(c, c_abi), (python, python_abi) = declared_in_c(), declared_in_python()
problems = [f"{name} is only in {'capi.h' if name in c else '_core.py'}" for name in sorted(c.keys() ^ python.keys())]
problems += [f"{name}: capi.h says {c[name]}, _core.py {python[name]}" for name in sorted(c.keys() & python.keys())
             if c[name] != python[name]]
if c_abi != python_abi:
    problems.append(f"FDL_ABI is {c_abi} in capi.h and {python_abi} in _core.py")
print("\n".join(problems) or f"{len(c)} functions agree")
sys.exit(bool(problems))
