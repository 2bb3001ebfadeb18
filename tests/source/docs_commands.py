#!/usr/bin/env python3
"""The commands in the `sh` blocks of README, CONTRIBUTING and docs/ work.

A block marked `sh` is run, page by page, in a folder of its own that has small runs and data of the names that the pages
use (RUN, OLD, DIR, build, ...). Trainings end after a few steps. A line whose comment says "exit code N" may end with N. Of
blocks marked `sh long` (minutes, or a program of the reader's), `sh cluster` and `sh gpu`, the programs and options are checked.
A command in any other block is an error. Commands and options that the text and the examples of --help name exist.
usage: docs_commands.py [PAGE...]
"""
import gzip
import json
import os
import pathlib
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

from docs import PAGES, SOURCE, help_of, options_in, read_page

BIN = pathlib.Path(os.environ["FARANDOLE_BIN"])
FEW_STEPS, SECONDS = 6, 60
COMMANDS_WITH_WORDS = {"timeline": ("merge", "slice", "salvage", "export"),  # whose next word chooses the options
                       "bench": ("allreduce", "step", "timeline", "checkpoint"),
                       "table": ("show", "split"), "runs": ("list", "show", "best"), "model": ("show",)}
COMMANDS = ("run", "record", "train", "new", "config", "submit", "status", "fit", "transform", "evaluate", "analyze", "doctor", "checkpoint")
OTHERS = ("cc", "clang-format", "cmake", "ctest", "g++", "jq", "kill", "nsys", "python3", "sbatch", "scancel", "spack", "srun")  # not ours
PRESETS = {preset["name"] for preset in json.loads((SOURCE / "CMakePresets.json").read_text())["configurePresets"]}
SBATCH_OPTIONS = {"--account", "--cpus-per-task", "--gpus-per-task", "--no-requeue", "--partition", "--signal", "--time"}
SCRIPTS = ("tools/", "tests/", "slurm/")
problems = []


def commands_of(block):
    """(line number, command) with continued lines joined; empty lines and comments are left out."""
    commands, text, first = [], "", 0
    for number, line in enumerate(block.lines, block.first_line):
        first = first if text else number
        text += line.strip()
        if text.endswith("\\"):
            text = text[:-1]
            continue
        if text and not text.startswith("#"):
            commands.append((first, text))
        text = ""
    return commands


def known_options(words, cache={}):
    key = tuple(words)
    if key not in cache:
        cache[key] = options_in(help_of(BIN / f"farandole-{words[0]}", *words[1:]))
    return cache[key]


def check_options(where, command):
    words = shlex.split(command, comments=True)
    while words:
        while words and re.fullmatch(r"\w+=.*", words[0]):
            words.pop(0)
        end = next((i for i, word in enumerate(words) if word in ("--", "&&", "|")), len(words))
        own, words = words[:end], words[end + 1:]
        own = ["farandole", *own] if own[:1] == ["train"] else own  # after farandole submit --
        given = [option.split("=")[0] for option in own[1:] if re.match(r"--?[a-zA-Z]", option)]
        if own[:1] == ["farandole"] and len(own) > 1:
            name = own[1:3] if own[1] in COMMANDS_WITH_WORDS else own[1:2]
            if name[0].startswith("-"):
                continue
            if not (BIN / f"farandole-{name[0]}").exists() or name[1:] and name[1] not in COMMANDS_WITH_WORDS[name[0]]:
                problems.append(f"{where}: there is no command farandole {' '.join(name)}")
                continue
            for option in given:
                if name == ["submit"] and re.fullmatch(r"-[A-Za-z]\d+|-np", option):
                    continue  # sbatch's, and mpirun's
                if option not in known_options(name):
                    problems.append(f"{where}: farandole {' '.join(name)} has no option {option}")
        elif own and own[0].startswith(SCRIPTS):
            if not (SOURCE / own[0]).is_file():
                problems.append(f"{where}: there is no {own[0]}")
                continue
            for option in given:
                if not own[0].endswith("/test") and option not in (SOURCE / own[0]).read_text(encoding="utf-8"):
                    problems.append(f"{where}: {own[0]} does not know {option}")
        elif own[:2] == ["cmake", "--preset"] and own[2] not in PRESETS:
            problems.append(f"{where}: there is no preset {own[2]}")
        elif own and own[0] != "farandole" and own[0] not in OTHERS and not own[0].startswith("./"):
            problems.append(f"{where}: this test does not know {own[0]}; run the command (sh), or add it to OTHERS")


def check_text(all_options):
    for page in wanted:
        for number, line in read_page(page)[0]:
            for code in re.findall(r"`([^`]+)`", line):
                of_script = code.startswith(SCRIPTS) and " -" in code
                if re.match(r"farandole [a-z]", code) or of_script:
                    check_options(f"{page}:{number}", code)
                if of_script:
                    continue
                own = [] if code.split()[0] in OTHERS else re.findall(r"(?<![\w-])--[a-z][\w-]*", code)
                for option in own:
                    if option not in all_options | SBATCH_OPTIONS:
                        problems.append(f"{page}:{number}: no command has the option {option}")


def check_examples():
    for name in [(name,) for name in COMMANDS + tuple(COMMANDS_WITH_WORDS)] + [
            (name, word) for name, words in COMMANDS_WITH_WORDS.items() for word in words]:
        for example in re.findall(r"^  \$ (.*)", help_of(BIN / f"farandole-{name[0]}", *name[1:]), re.M):
            check_options(f"farandole {' '.join(name)} --help", example)


def runnable(command):
    """A training starts anew and ends soon."""
    if "farandole train" not in command or "farandole submit" in command or "--help" in command:
        return command
    words, _, comment = command.partition(" #")
    run_dir = re.search(r"--run-dir (\S+)", words)
    return (f"rm -rf {run_dir[1]}; " if run_dir else "") + words + ("" if "--steps " in words else f" --steps {FEW_STEPS}")


def script_of(page, blocks):
    lines = ["failed() { echo \"$1: exit code $2: $3\" >&2; exit 99; }"]
    for block in blocks:
        for number, command in commands_of(block):
            allowed = re.search(r"#.*exit code (\d+)", command)
            where = shlex.quote(f"{page.relative_to(SOURCE)}:{number}")
            lines.append(f"{runnable(command).rstrip(';')}\ncode=$?\n[[ $code -eq 0 || $code -eq {allowed[1] if allowed else 0} ]]"
                         f" || failed {where} $code {shlex.quote(command)}")
    return "\n".join(lines)


def write_idx(path, shape, values):
    with gzip.open(path, "wb") as file:
        file.write(struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + bytes(values))


def prepare(folder):
    """What the pages' examples name."""
    data = folder / "DIR"
    data.mkdir()
    for name, count in (("train", 256), ("t10k", 64)):
        write_idx(data / f"{name}-images-idx3-ubyte.gz", (count, 28, 28), (i * 7 % 256 for i in range(count * 784)))
        write_idx(data / f"{name}-labels-idx1-ubyte.gz", (count,), (i % 10 for i in range(count)))

    def call(program, *arguments):
        subprocess.run([BIN / program, *arguments], cwd=folder, check=True, capture_output=True, timeout=SECONDS)

    for run, ranks, more in (("RUN", 2, ["--steps", "20"]), ("RUN", 2, []), ("OLD", 2, []), ("runs/n1", 1, [])):
        call("farandole", "run", "-n", str(ranks), "--", BIN / "farandole", "train", "--model", "mlp", "--data", "synthetic",
             "--batch-size", "16", "--checkpoint-every", "20steps", "--recorder-mb", "4", "--bucket-mb", "0.1", "--run-dir", run, *more)
    for copy, run in (("RUN2", "RUN"), ("OLD2", "OLD"), ("runs/n2", "RUN"), ("digits", "RUN")):
        shutil.copytree(folder / run, folder / copy)
    # Models and tables, a program with a session, and a script that is started on ranks.
    call("export_models")
    call("farandole", "table", "split", "pixels=DIR/train-images-idx3-ubyte.gz,digit=DIR/train-labels-idx1-ubyte.gz",
         "--fractions", "0.8,0.2", "--output", "train.h5", "--output", "test.h5")
    (folder / "program").symlink_to(BIN / "example_recipe")
    (folder / "build").symlink_to(BIN.parent)
    (folder / "train.py").write_text("import os\nprint(os.environ['RANK'], os.environ['WORLD_SIZE'])\n")


def run_page(page, blocks, prepared, scratch):
    folder = scratch / page.stem
    shutil.copytree(prepared, folder, symlinks=True)
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "DESTDIR": str(folder / "installed")}
    done = subprocess.run(["bash", "-c", script_of(page, blocks)], cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=3 * SECONDS)
    if done.returncode:
        problems.append(f"{page}: {done.stderr.strip()[-2000:]}")
    shutil.rmtree(folder)


wanted = [pathlib.Path(page).resolve() for page in sys.argv[1:]] or PAGES
LOOKS_LIKE_COMMAND = re.compile(r"\$ |(tools|tests|slurm)/|(farandole|cmake|ctest|sbatch|srun) -?-?[a-z][\w-]*(?![\w:-])")
blocks_of = {page: [block for block in read_page(page)[1]
                    if re.match(r"(sh|bash|shell|console)\b", block.language) or any(map(LOOKS_LIKE_COMMAND.match, block.lines))]
             for page in wanted}
run = checked = 0
for page, blocks in blocks_of.items():
    for block in blocks:
        if block.language not in ("sh", "sh long", "sh cluster", "sh gpu"):
            problems.append(f"{page}:{block.first_line - 1}: mark the block sh, sh long, sh cluster or sh gpu")
        for number, command in commands_of(block):
            if block.language != "sh" or command.startswith("farandole"):
                check_options(f"{page}:{number}", command)
            run, checked = (run + 1, checked) if block.language == "sh" else (run, checked + 1)
scripts = [file for folder in ("tools", "tests/compare") for file in (SOURCE / folder).glob("*") if file.is_file()]
check_text(set().union(*(known_options([name]) for name in COMMANDS),
                       *(known_options([name, word]) for name, words in COMMANDS_WITH_WORDS.items() for word in words),
                       *(options_in(file.read_text(encoding="utf-8")) for file in scripts)))
check_examples()
with tempfile.TemporaryDirectory(prefix="farandole-docs-") as scratch:
    prepared = pathlib.Path(scratch) / "prepared"
    prepared.mkdir()
    prepare(prepared)
    for page, blocks in blocks_of.items():
        if any(block.language == "sh" for block in blocks):
            run_page(page, [block for block in blocks if block.language == "sh"], prepared, pathlib.Path(scratch))
assert sys.argv[1:] or run > 30, f"only {run} commands were found"
print(f"{run} commands were run, of {checked} the options were checked")
for problem in problems:
    print(f"FAILED: {problem}", file=sys.stderr)
sys.exit(bool(problems))
