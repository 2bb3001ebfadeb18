#!/usr/bin/env python3
"""What README, CONTRIBUTING and docs/ name is there: links, headings, files and folders, functions. README fits one screen,
docs/api.md shows the example as it is, and docs/training.md lists the environment variables."""
import re
import sys

from docs import LAYERS, PAGES, SOURCE, read_page

# Paths that a run, a build or an installation makes, or that the reader chooses.
MADE = ("RUN", "OLD", "DIR", "PREFIX", "FOLDER", "runs", "build", "build-dev", "build-debug", "build-gpu", "bin", "lib",
        "include", "share", ".deps", "kineto", "mnist", "tinyshakespeare")
README_BYTES, CELL_CHARACTERS = 6000, 200
# Environment variables between Farandole's own processes.
INTERNAL = {"FARANDOLE_LAUNCHED_BY", "FARANDOLE_RUN_DIR_WANTED", "FARANDOLE_TERMINAL_COLUMNS"}
problems = []


def anchor_of(heading):
    text = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", lambda m: m.group(1) or "", heading.lstrip("#").strip()).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def is_there(path):
    path = path.rstrip("/")
    return any(list(base.glob(path)) for base in (SOURCE, LAYERS, LAYERS.parent, LAYERS / "python"))


def check_link(page, number, target):
    if re.match(r"https://[\w.-]+\.\w+(/|$)", target):  # tests have no network
        return
    file, _, anchor = target.partition("#")
    to = (page.parent / file).resolve() if file else page
    if not to.exists():
        problems.append(f"{page}:{number}: the link {target} leads nowhere")
    elif anchor and anchor not in anchors[to]:
        problems.append(f"{page}:{number}: {to.name} has no heading #{anchor}")


def check_code(page, number, code):
    if re.fullmatch(r"[\w.*-]+(/[\w.*-]+)*/?", code) and "/" in code:
        first = code.split("/")[0]
        known = (SOURCE / first).exists() or (LAYERS / first).exists() or first == "farandole"
        if first not in MADE and known and not is_there(code):
            problems.append(f"{page}:{number}: there is no {code}")
    elif re.fullmatch(r"(\w+::)+\w+", code) and not code.startswith("Farandole::"):
        *owner, name = [part for part in code.split("::") if part != "farandole"]
        owner = owner[-1] if owner else ""
        defined = rf"\b{owner}::{name}\(" if owner else rf"\b(class|struct|TORCH_MODULE\(|[\w>&*] )\s*{name}\b"
        if owner not in ("torch", "nn", "optim", "std") and not re.search(defined, sources):
            problems.append(f"{page}:{number}: the sources have no {code}")


def has_function(file, name):
    """A function that C++ or Python defines there; of Python, `Owner.name` is in a class."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        return re.search(rf"\b{name}\(", text)
    owner, _, method = name.rpartition(".")
    if not owner:
        return re.search(rf"^def {method}\(", text, re.M)
    classes = re.split(r"^(?=class )", text, flags=re.M)
    return any(re.match(rf"class {owner}\b", one) and re.search(rf"^    def {method}\(", one, re.M) for one in classes)


def check_reading_list(page, lines):
    """Rows `function` | `file`: the function is defined there."""
    rows = [(number, row) for number, line in lines if (row := re.match(r"\| `([\w:.]+)` \| `(src/[\w/.]+)` \|", line))]
    problems.extend(f"{page}:{number}: {row[2]} has no {row[1]}" for number, row in rows if not has_function(SOURCE / row[2], row[1]))
    return len(rows)


sources = "\n".join(file.read_text(encoding="utf-8") for file in sorted(LAYERS.rglob("*")) if file.suffix in (".h", ".cc"))
prose = {page: read_page(page)[0] for page in PAGES}
anchors = {page.resolve(): {anchor_of(line) for _, line in lines if line.startswith("#")} for page, lines in prose.items()}
links = 0
for page, lines in prose.items():
    for number, line in lines:
        targets = re.findall(r"\]\(([^)\s]+)\)", line)
        if len(targets) != line.count("](") or re.match(r"\s*\[[^]]*\]:", line) or "<a " in line:
            problems.append(f"{page}:{number}: write links as [text](target), so that this test can see them")
        for target in targets:
            check_link(page, number, target)
            links += 1
        for code in re.findall(r"`([^`]+)`", line):
            check_code(page, number, code)
        if line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line):
                if len(cell.strip()) > CELL_CHARACTERS:
                    problems.append(f"{page}:{number}: a table cell has {len(cell.strip())} characters, more than {CELL_CHARACTERS}")
index = (SOURCE / "docs" / "README.md").read_text(encoding="utf-8")
problems += [f"docs/README.md has no link to {page.name}" for page in PAGES
             if page.parent.name == "docs" and page.name != "README.md" and f"]({page.name})" not in index]
if not check_reading_list(SOURCE / "CONTRIBUTING.md", prose[SOURCE / "CONTRIBUTING.md"]):
    problems.append("CONTRIBUTING.md names no functions to read first")
shown = (SOURCE / "docs/api.md").read_text(encoding="utf-8").split("```cpp\n", 1)[1].split("```", 1)[0]
if shown != (SOURCE / "tests/train/example.cc").read_text(encoding="utf-8").split("\n", 1)[1]:
    problems.append("docs/api.md shows another program than tests/train/example.cc")
listed = (SOURCE / "docs/training.md").read_text(encoding="utf-8").split("## Environment variables", 1)[1]
variables = set(re.findall(r'"(FARANDOLE_[A-Z_]+)"', re.sub(r"//.*", "", sources))) - INTERNAL
problems += [f"docs/training.md does not list the environment variable {name}" for name in sorted(variables)
             if len(name) > len("FARANDOLE_") and f"`{name}`" not in listed]
if (size := (SOURCE / "README.md").stat().st_size) > README_BYTES:
    problems.append(f"README.md has {size} bytes, more than {README_BYTES}")
assert len(variables) > 10, f"only {len(variables)} environment variables were found"
assert len(PAGES) > 10 and links > 50, f"only {len(PAGES)} pages with {links} links were found"
for problem in problems:
    print(f"FAILED: {problem}", file=sys.stderr)
sys.exit(bool(problems))
