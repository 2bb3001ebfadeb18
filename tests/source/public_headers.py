#!/usr/bin/env python3
"""public_headers.py HEADER...: public headers include only public ones, and none of the libraries that users need not have. Their
comments name only public headers and pages of the documentation, or say that a header is not installed."""
import os
import pathlib
import re
import sys

source = pathlib.Path(os.environ["FARANDOLE_SOURCE"]) / "src"
public = {f"farandole/{name}" for name in sys.argv[1:]}
root = source.parent
hidden = re.compile(r"mpi\.h|hdf5|nlohmann/|fmt/|spdlog/|boost/|zlib|xxhash|sqlite3|cupti|nccl")
signpost = re.compile(r"(?<![\w./-])[\w./-]+\.(?:h|cc|inc|cu|md|py)\b(?!, which is not installed)")
assert len(public) >= 10, f"only {len(public)} public headers were named"
failures = []
for name in sorted(public):
    text = (source / name).read_text(encoding="utf-8")
    for included in re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.M):
        if hidden.search(included):
            failures.append(f"{name} includes <{included}>, which users need not have")
        elif included.startswith("torch/") and not name.startswith(("farandole/train/", "farandole/farandole.h")):
            failures.append(f"{name} includes <{included}>, but only the runtime needs LibTorch")
        elif (source / included).exists() and included not in public:
            failures.append(f"{name} includes {included}, which is not public")
    for comment in re.findall(r"//+(.*)", text):
        for named in signpost.findall(comment):
            there = (root / named).is_file() if named.startswith("docs/") else any(
                path in public for path in (named, f"farandole/{named}", str(pathlib.PurePath(name).parent / named)))
            if not there:
                failures.append(f"a comment of {name} names {named}, which users do not have")
for failure in failures:
    print(f"FAILED: {failure}", file=sys.stderr)
sys.exit(bool(failures))
