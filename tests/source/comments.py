#!/usr/bin/env python3
"""Comments of C++ files: no line of one or two left-over words, and no signpost to a file that is not there.

--fix moves words down from the line above a left-over, so that it begins at a clause or has four words. Signposts are for
people to mend.
"""
import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(os.environ.get("FARANDOLE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
LAYERS = SOURCE / "src" / "farandole"
FULL = 70  # columns: a line that ends earlier ends where its writer wanted
OTHERS = {"cupti.h", "hdf5.h", "linux/magic.h", "linux/pidfd.h", "mpi.h", "nvml.h", "torch/torch.h"}  # of other projects
COMMENT = re.compile(r"(\s*)// ?(.*)$")

files = [file for folder in ("src", "tests", "tools") for file in sorted((SOURCE / folder).rglob("*"))
         if file.suffix in (".h", ".cc", ".inc", ".cu")]
names = {file.name for file in files}
problems = []


def is_left_over(above, text):
    return (above is not None and len(above) >= FULL and not above.rstrip().endswith((".", ":"))
            and re.match(r"\S", text) and len(text.split()) <= 2)


def left_overs(lines):
    above = None
    for at, line in enumerate(lines):
        comment = COMMENT.fullmatch(line)
        text = comment[2] if comment else ""
        if comment and is_left_over(above, text):
            yield at
        above = line if comment and text.strip() else None


def moved_down(above, line):
    """Both lines with words of the upper one moved to the lower one."""
    indent, text = COMMENT.fullmatch(above).groups()
    words, rest = text.split(" "), COMMENT.fullmatch(line)[2].split()
    reach = [n for n in range(1, min(10, len(words) - 2)) if n + len(rest) >= 3]
    clauses = [n for marks in (".", ";:", ",") for n in reach if words[-n - 1].endswith(tuple(marks))]
    count = clauses[0] if clauses else max(1, 4 - len(rest))
    return (f"{indent}// {' '.join(words[:-count])}", f"{indent}// {' '.join(words[-count:] + rest)}")


def check_signposts(file, number, text):
    for name in re.findall(r"(?<![\w./])[\w/]+\.(?:h|cc|inc|cu)\b", text):
        if name in OTHERS:
            continue
        there = any((base / name).is_file() for base in (LAYERS, LAYERS.parent, SOURCE, SOURCE / "tests", file.parent))
        if not there and ("/" in name or name not in names):
            problems.append(f"{file.relative_to(SOURCE)}:{number}: there is no {name}")


comments = 0
for file in files:
    lines = file.read_text(encoding="utf-8").split("\n")
    found = list(left_overs(lines))
    if found and "--fix" in sys.argv:
        for at in found:
            lines[at - 1], lines[at] = moved_down(lines[at - 1], lines[at])
        file.write_text("\n".join(lines), encoding="utf-8")
        found = list(left_overs(lines))
    problems += [f"{file.relative_to(SOURCE)}:{at + 1}: '{lines[at].strip()}' is left over; wrap the comment anew" for at in found]
    for number, line in enumerate(lines, 1):
        if comment := re.search(r"(?:^|\s)//+(.*)", line):
            comments += 1
            check_signposts(file, number, comment[1])
assert comments > 5000, f"only {comments} comments were found"
for problem in problems:
    print(f"FAILED: {problem}", file=sys.stderr)
sys.exit(bool(problems))
