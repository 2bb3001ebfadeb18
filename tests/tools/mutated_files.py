#!/usr/bin/env python3
"""Commands that read files of others read damaged ones: whatever the files contain, no command crashes, hangs, or lets control
characters through to the terminal.

  mutated_files.py [RUNS]          a run is one command on one damaged file; 3,950 by default
  mutated_files.py --only NUMBER   that run alone, whose files are kept

FARANDOLE_TEST_SEED selects the damage.
"""
import concurrent.futures
import gzip
import json
import os
import pathlib
import random
import resource
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ["FARANDOLE_BIN"])
SEED = os.environ.get("FARANDOLE_TEST_SEED", "1")
TEMPTING = b'0123456789eE-.{}[]",:\\\n\xff\x1b'
CODES = {0, 1, 64, 65, 70, 75}
LIMIT_S = 120
MEMORY = 4 << 30


def mutated(data, chance):
    """As in mutation.h: other bytes, numbers that fit no integer, gaps and repetitions."""
    data = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(data))
        kind = chance.randrange(6)
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            data[at] = chance.choice(TEMPTING)
        elif kind == 2:
            del data[at : at + chance.randint(1, 300)]
        elif kind == 3:
            data[at:at] = str(chance.getrandbits(64)).encode()
        elif kind == 4:
            begin = chance.randrange(len(data))
            data[at:at] = data[begin : begin + chance.randrange(300)]
        else:
            del data[at:]
        data = data or bytearray(b"x")
    return bytes(data)


def kineto():
    events = []
    for step in range(4):
        t = 1e6 + step * 1e5
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": t, "dur": 1e5},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": t + 1e4, "dur": 3e4, "args": {"device": 0, "stream": 7, "correlation": step}},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32", "pid": 0, "tid": 9, "ts": t + 5e4, "dur": 3e4,
             "args": {"device": 0, "stream": 9, "Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float", "Group size": 2}},
            {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": t + 7e4, "dur": 1e4, "args": {"bytes": 4096}},
        ]
    return json.dumps({"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2}, "traceEvents": events}).encode()


def horovod():
    lines = ["["]
    lines.append('{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "gradient"}},')
    for step in range(4):
        t = step * 100000
        lines += [
            '{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": %d, "pid": 1},' % t,
            '{"ph": "X", "name": "0", "ts": %d, "pid": 1, "dur": 0},' % (t + 5),
            '{"ph": "X", "name": "1", "ts": %d, "pid": 1, "dur": 0},' % (t + 9),
            '{"ph": "E", "ts": %d, "pid": 1},' % (t + 10),
            '{"ph": "B", "name": "ALLREDUCE", "ts": %d, "pid": 1},' % (t + 10),
            '{"ph": "E", "ts": %d, "pid": 1, "args": {"dtype": "float32", "shape": "[100]"}},' % (t + 500),
        ]
    return "\n".join(lines).encode()


def nsight(folder):
    file = folder / "report.sqlite"
    with sqlite3.connect(file) as base:
        base.executescript(
            "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER,"
            " correlationId INTEGER, globalPid INTEGER, shortName INTEGER, demangledName INTEGER);"
            "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);"
            "INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce');"
        )
        for step in range(4):
            t = step * 10**8
            base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, NULL, ?)", (t, t + 10**8, f"step {step}", 1 << 24))
            for name, begin in ((1, 0), (2, 5)):
                base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 7, ?, ?, ?, ?)",
                             (t + begin * 10**7, t + (begin + 3) * 10**7, step, 1 << 24, name, name))
    base.close()
    return file.read_bytes()


def npy():
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (8, 3), }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack("<24f", *range(24))


def seeds(folder):
    """Files as they should be: (how a damaged copy is called, its bytes, the commands that read it)."""
    run = folder / "run"
    options = ["--model", "mlp", "--data", "synthetic", "--width", "16", "--steps", "6", "--checkpoint-every", "3steps", "--log-steps", "1", "--recorder-mb", "1"]
    subprocess.run([BIN / "farandole", "run", "-n", "2", "--run-dir", run, "--", BIN / "farandole", "train", *options], check=True, timeout=600,
                   stdout=subprocess.DEVNULL, cwd=folder)
    of_run = [["status", "RUN"], ["doctor", "RUN"], ["analyze", "RUN"], ["timeline", "merge", "RUN"], ["timeline", "salvage", "RUN"],
              ["checkpoint", "list", "RUN"], ["checkpoint", "verify", "RUN"]]
    found = []
    # What ranks of another launcher leave: `analyze` puts their recorders into one file.
    guest = folder / "guest"
    shutil.copytree(run / "recorder", guest / "recorder")
    subprocess.run([BIN / "farandole", "analyze", guest], check=True, timeout=600, stdout=subprocess.DEVNULL)
    (node,) = (guest / "recorder").iterdir()
    found.append((f"recorder/{node.name}", node.read_bytes(), of_run + [["analyze", f"RUN/recorder/{node.name}"]], 2))
    for file in sorted(run.rglob("*")):
        if file.is_file():
            name = str(file.relative_to(run))
            own = [["checkpoint", "show", f"RUN/{name}"], ["table", "show", f"RUN/{name}"]] if name.endswith(".h5") else []
            if "timeline.json" in name or name.endswith(".ftl"):
                own = [["analyze", f"RUN/{name}"], ["timeline", "slice", "RUN", "--steps", "2-3"]]
            found.append((name, file.read_bytes(), own or of_run, 2 if own else 1))
            if own:
                found.append((name, file.read_bytes(), of_run, 1))
    traces = {"kineto.json": kineto(), "kineto.json.gz": gzip.compress(kineto()), "horovod.json": horovod(), "report.sqlite": nsight(folder)}
    for name, data in traces.items():
        found.append((name, data, [["analyze", f"RUN/{name}"], ["analyze", f"RUN/{name}", "--format", "json"]], 4))
    csv = "\n".join(["a,b,label"] + [f"{i},{i * 0.5},{'yes' if i % 2 else 'no'}" for i in range(40)]).encode()
    idx = struct.pack(">IIII", 0x803, 4, 5, 5) + bytes(100)
    tables = {"table.csv": csv, "table.csv.gz": gzip.compress(csv), "table.npy": npy(), "t-images-idx3-ubyte": idx, "t-images-idx3-ubyte.gz": gzip.compress(idx)}
    for name, data in tables.items():
        found.append((name, data, [["table", "show", f"RUN/{name}"]], 4))
    return run, found


def run_one(number, run, found, keep):
    chance = random.Random(f"{SEED}-{number}")
    name, data, commands, _ = chance.choices(found, [one[3] for one in found])[0]
    command = chance.choice(commands)
    # Damage inside of what is compressed, half of the time.
    if name.endswith(".gz") and chance.randrange(2):
        damaged = gzip.compress(mutated(gzip.decompress(data), chance))
    else:
        damaged = mutated(data, chance)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mutated-", dir=run.parent))
    copy = folder / "run"
    shutil.copytree(run, copy, symlinks=True)
    if "recorder/node-" in name:
        shutil.rmtree(copy / "recorder")
        (copy / "recorder").mkdir()
    (copy / name).write_bytes(damaged)
    words = [BIN / f"farandole-{command[0]}", *(word.replace("RUN", str(copy)) for word in command[1:])]
    what = f"run {number} ({name}): {' '.join(map(str, words))}"
    try:
        end = subprocess.run(words, capture_output=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL, cwd=folder,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)))
    except subprocess.TimeoutExpired:
        return f"{what}: it hangs"
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if end.returncode not in CODES:
        return f"{what}: exit code {end.returncode}: {end.stderr[-500:]!r}"
    if b"\x1b" in end.stdout + end.stderr:
        return f"{what}: control characters are printed"
    if end.returncode and not (end.stdout + end.stderr).strip():
        return f"{what}: exit code {end.returncode} without a word"
    return None


def main():
    keep = sys.argv[1:2] == ["--only"]
    count = 1 if keep else int(sys.argv[1]) if len(sys.argv) > 1 else 3950
    numbers = [int(sys.argv[2])] if keep else range(count)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="farandole-test-"))
    try:
        run, found = seeds(folder)
        with concurrent.futures.ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
            problems = [one for one in pool.map(lambda number: run_one(number, run, found, keep), numbers) if one]
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(problems))
    print(f"{count} runs with seed {SEED}, {len(problems)} problems; repeat one with FARANDOLE_TEST_SEED={SEED} {sys.argv[0]} --only NUMBER")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
