#!/usr/bin/env python3
"""A room has at most 25 files, a file in src/ at most 700 lines. Larger ones are designed anew.
CONTRIBUTING.md names each layer with its rooms. No two folders include each other."""
import collections
import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(os.environ.get("FARANDOLE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
MOST_FILES, MOST_LINES = 25, 700

rooms, problems, files = collections.Counter(), [], 0
for folder in ("src", "tests", "tools", "docs"):
    for file in sorted((SOURCE / folder).rglob("*")):
        if not file.is_file() or "__pycache__" in file.parts:
            continue
        rooms[str(file.parent.relative_to(SOURCE))] += 1
        files += 1
        name = str(file.relative_to(SOURCE))
        lines = len(file.read_text(encoding="utf-8").splitlines()) if folder == "src" else 0
        if lines > MOST_LINES:
            problems.append(f"{name} has {lines} lines, more than {MOST_LINES}; design it anew")
for room, count in sorted(rooms.items()):
    if count > MOST_FILES:
        problems.append(f"{room}/ has {count} files, more than {MOST_FILES}; make rooms in it")
contributing = (SOURCE / "CONTRIBUTING.md").read_text(encoding="utf-8")
listed = set()
for layer, its_rooms in re.findall(r"^\| `(\w+)/` \|(.*?)\| \w", contributing, re.M):
    listed |= {layer} | {f"{layer}/{room}" for room in re.findall(r"`([\w/]+)/`", its_rooms)}
layers = SOURCE / "src" / "farandole"
folders = {str(path.relative_to(layers)) for path in layers.rglob("*") if path.is_dir()}
problems += [f"CONTRIBUTING.md does not list {folder}/ among layers and rooms" for folder in sorted(folders - listed)]
problems += [f"CONTRIBUTING.md names {folder}/, which is not there" for folder in sorted(listed - folders)]
includes = collections.defaultdict(list)
for file in sorted(layers.rglob("*")):
    if file.suffix in (".h", ".cc", ".cu", ".inc"):
        here = str(file.parent.relative_to(layers))
        for there in re.findall(r'#include "farandole/(.+)/[^/"]+"', file.read_text(encoding="utf-8")):
            includes[here, there].append(file.name)
for (one, other), names in sorted(includes.items()):
    if one < other and (other, one) in includes:
        problems.append(f"{one}/ and {other}/ include each other: {', '.join(sorted(set(names)))} of {one}/, "
                        f"{', '.join(sorted(set(includes[other, one])))} of {other}/")
assert len(includes) > 50, f"only {len(includes)} folders include others"
assert files > 500, f"only {files} files were found"
for problem in problems:
    print(f"FAILED: {problem}", file=sys.stderr)
sys.exit(bool(problems))
