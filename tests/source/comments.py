#!/usr/bin/env python3
"""Comments: no C++ comment is wider than the code, no line has only one or two left-over words, signposts lead to files that are
there, and thread safety and errors are said in the words of CONTRIBUTING.md.

--fix wraps paragraphs of C++ comments anew that are too wide or end with left-over words. The rest is for people to mend.
"""
import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(os.environ.get("FARANDOLE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
LAYERS = SOURCE / "src" / "farandole"
FULL = 70  # columns: a line that ends earlier ends where its writer wanted
WIDE = 110  # columns: ColumnLimit of .clang-format
OTHERS = {"cupti.h", "hdf5.h", "linux/magic.h", "linux/pidfd.h", "mpi.h", "nvml.h", "torch/torch.h"}  # of other projects
CPP, SCRIPT = re.compile(r"(\s*)// ?(.*)$"), re.compile(r"(\s*)# ?(.*)$")
LABEL = re.compile(r"[A-Z][\w ]{1,20}: |[-*•] |\d+[.)] |\||  ")  # begins a paragraph, an item, a table, or what is set as it is
PHRASES = ("any thread may call this at any time.", "none; use from one thread at a time.",
           "const methods may run concurrently; others need external synchronization.",
           "call from the training thread only.", "only the main thread may create and destroy this.")
DECLARES = re.compile(r"^(?!using |typedef |#|//|return )[\w:<>,&* ]+\b\w+\(|^(?:class|struct) [\w ]+(?: :[^;]*)? \{\n(?:.*\n)*? public:",
                      re.M)

cpp_files = [file for folder in ("src", "tests", "tools") for file in sorted((SOURCE / folder).rglob("*"))
             if file.suffix in (".h", ".cc", ".inc", ".cu")]
names = {file.name for file in cpp_files}
problems = []


def scripts():
    for folder in ("src", "tests", "tools", "slurm"):
        for file in sorted((SOURCE / folder).rglob("*")):
            if file.suffix in (".cmake", ".py", ".sh", ".sbatch") or file.name == "CMakeLists.txt":
                yield file
            elif file.is_file() and not file.suffix and file.read_bytes()[:2] == b"#!":
                yield file


def problem(file, number, text):
    problems.append(f"{file.relative_to(SOURCE)}:{number}: {text}")


def is_left_over(above, text):
    return (above is not None and len(above) >= FULL and not above.rstrip().endswith((".", ":"))
            and re.match(r"\S", text) and len(text.split()) <= 2)


def left_overs(lines, pattern):
    above = None
    for at, line in enumerate(lines):
        comment = pattern.fullmatch(line)
        text = comment[2] if comment else ""
        if comment and is_left_over(above, text):
            yield at
        above = line if comment and text.strip() else None


def paragraphs(lines):
    """Ranges [first, last) of lines that flow together."""
    first, above = None, None
    for at, line in enumerate([*lines, ""]):
        comment = CPP.fullmatch(line)
        text = comment[2] if comment else ""
        begins = (above is None or LABEL.match(text) or LABEL.match(above[1]) and above[1].startswith(("  ", "|"))
                  or above[0] != comment[1] or above[1].endswith((".", ":")) and len(lines[at - 1]) < FULL + 20
                  and re.match(r"[^a-z(]", text)) if text.strip() else True
        if begins and first is not None:
            yield first, at
            first = None
        if text.strip() and first is None:
            first = at
        above = (comment[1], text) if text.strip() else None


def wrap(indent, words):
    """Lines as even as they need to be for a last line of three words."""
    for width in range(WIDE, WIDE - 40, -1):
        lines = [f"{indent}// {words[0]}"]
        for word in words[1:]:
            if len(lines[-1]) + 1 + len(word) <= width:
                lines[-1] += f" {word}"
            else:
                lines.append(f"{indent}// {word}")
        if len(lines) == 1 or len(lines[-1].split()) > 3:
            return lines
    return lines


def wrapped(lines):
    bad = set(left_overs(lines, CPP)) | {at for at, line in enumerate(lines) if CPP.fullmatch(line) and len(line) > WIDE}
    result, end = [], 0
    for first, last in paragraphs(lines):
        if bad.isdisjoint(range(first, last)) or lines[first].lstrip("/ ").startswith("|") or "//   " in lines[first]:
            continue
        indent = CPP.fullmatch(lines[first])[1]
        words = " ".join(CPP.fullmatch(line)[2].strip() for line in lines[first:last]).split()
        result += lines[end:first] + wrap(indent, words)
        end = last
    return result + lines[end:]


def check_signposts(file, number, text):
    for name in re.findall(r"(?<![\w./])[\w/]+\.(?:h|cc|inc|cu)\b", text):
        if name in OTHERS:
            continue
        there = any((base / name).is_file() for base in (LAYERS, LAYERS.parent, SOURCE, SOURCE / "tests", file.parent))
        if not there and ("/" in name or name not in names):
            problem(file, number, f"there is no {name}")


def check_throws(file, text):
    for said in re.finditer(r"// Throws: \w+ where\b", text):
        problem(file, text.count("\n", 0, said.start()) + 1, "an error has a condition, not a place: write 'if'")


def check_thread_safety(file, text):
    for number, line in enumerate(text.split("\n"), 1):
        if (said := re.search(r"// Thread safety: (.*)", line)) and not said[1].startswith(PHRASES):
            problem(file, number, f"'{said[1]}' is none of the phrases of CONTRIBUTING.md; begin with one of them")
    if file.suffix == ".h" and LAYERS in file.parents and "Thread safety:" not in text and DECLARES.search(text):
        problem(file, 1, "say which threads may use this (Thread safety:)")


comments = 0
for file in cpp_files:
    lines = file.read_text(encoding="utf-8").split("\n")
    if "--fix" in sys.argv and (better := wrapped(lines)) != lines:
        lines = better
        file.write_text("\n".join(lines), encoding="utf-8")
    for at in left_overs(lines, CPP):
        problem(file, at + 1, f"'{lines[at].strip()}' is left over; wrap the comment anew (--fix)")
    for number, line in enumerate(lines, 1):
        if (comment := CPP.fullmatch(line)) and len(line) > WIDE and not comment[2].startswith("  "):
            problem(file, number, f"the comment has {len(line)} columns, more than {WIDE}; wrap it (--fix)")
        if comment := re.search(r"(?:^|\s)//+(.*)", line):
            comments += 1
            check_signposts(file, number, comment[1])
    check_thread_safety(file, "\n".join(lines))
    check_throws(file, "\n".join(lines))
for file in scripts():
    lines = file.read_text(encoding="utf-8").split("\n")
    for at in left_overs(lines, SCRIPT):
        problem(file, at + 1, f"'{lines[at].strip()}' is left over; wrap the comment anew")
contributing = (SOURCE / "CONTRIBUTING.md").read_text(encoding="utf-8")
problems += [f"CONTRIBUTING.md does not have the phrase '{phrase}'" for phrase in PHRASES
             if phrase[:-1] not in re.sub(r"\s+", " ", contributing)]
assert comments > 5000, f"only {comments} comments were found"
for text in problems:
    print(f"FAILED: {text}", file=sys.stderr)
sys.exit(bool(problems))
