#!/usr/bin/env python3
"""No two headers define a type of one name: programs that link both would mix them up, and no linker says so."""
import collections
import os
import pathlib
import re
import sys

source = pathlib.Path(os.environ["FARANDOLE_SOURCE"]) / "src"
defined = collections.defaultdict(list)
for header in sorted(source.rglob("*.h")):
    text = header.read_text(encoding="utf-8")
    namespaces = re.findall(r"^(?:inline )?namespace ([\w:]+) \{", text, re.M)
    for name in re.findall(r"^(?:struct|class|enum class) (\w+)(?: final)?(?: :[^;{]*)? \{", text, re.M):
        defined["::".join(namespaces + [name])].append(str(header.relative_to(source)))
assert len(defined) > 200, f"only {len(defined)} types were found"
twice = {name: headers for name, headers in defined.items() if len(headers) > 1}
for name, headers in twice.items():
    print(f"FAILED: {name} is defined in {' and in '.join(headers)}", file=sys.stderr)
sys.exit(bool(twice))
