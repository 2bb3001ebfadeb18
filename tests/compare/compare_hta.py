#!/usr/bin/env python3
"""Sets Farandole's analyzer beside Holistic Trace Analysis on the same traces of PyTorch's profiler.

    pip install HolisticTraceAnalysis==0.5.0
    tests/compare/compare_hta.py [PATH...] [--rounds 3] [--bin build/bin]

PATH is a folder with one trace a rank, one trace, or a run directory of Farandole, whose recorders are exported in
that form. Without one, two ranks' files of 84 MB are made. Prints each tool's wall time (HTA's without its imports)
and peak memory, medians of rounds in which they take turns, the shares of time rank by rank, and the ten kernels with
most time. Exits 1 where a share differs by more than 0.1 percentage points, but for files with kernels whose launch is not in a step of the
file: HTA leaves those out, and so counts the time in which they run as idle.
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import kineto_files

LARGEST_DIFFERENCE = 0.1  # percentage points
FIGURES = ("compute", "exposed communication", "idle", "overlap")


def measured(command):
    """The command's output, wall time and the peak memory in MiB of the largest of its processes."""
    with tempfile.TemporaryFile() as output:
        start = time.monotonic()
        child = os.posix_spawn(command[0], command, os.environ,
                               file_actions=[(os.POSIX_SPAWN_DUP2, output.fileno(), 1)])
        _, status, usage = os.wait4(child, 0)
        seconds = time.monotonic() - start
        output.seek(0)
        if status != 0:
            sys.exit(f"compare_hta: {' '.join(command)} failed")
        return json.loads(output.read()), seconds, usage.ru_maxrss / 1024


def ours(program, folder):
    report, seconds, mebibytes = measured([str(program / "farandole-analyze"), str(folder), "--format", "json"])
    figures = {}
    for rank in report["runs"][0]["by_rank"]:
        gpu = rank["gpu"]
        shares = [gpu["compute"], gpu["communication_only"] + gpu["memcpy_only"], gpu["idle"], rank["overlap"]]
        figures[rank["rank"]] = [100 * s if isinstance(s, float) else float("nan") for s in shares]
    return figures, seconds, mebibytes, {row["name"]: 100 * row["share"] for row in report["runs"][0]["gpu_kernels"]}


def theirs(folder):
    report, _, mebibytes = measured([sys.executable, __file__, "--hta", str(folder)])
    figures = {int(rank): shares for rank, shares in report["ranks"].items()}
    return figures, report["seconds"], max(mebibytes, report["children_mib"]), report["kernels"]


def run_hta(folder):
    """What the child process does: HTA's analysis to the nanosecond, as JSON."""
    import logging
    import resource
    import warnings
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    from hta.trace_analysis import TraceAnalysis
    start = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()):
        analysis = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
        breakdown = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
        overlap = analysis.get_comm_comp_overlap(visualize=False).set_index("rank")
    seconds = time.monotonic() - start
    with contextlib.redirect_stdout(io.StringIO()):
        _, rows = analysis.get_gpu_kernel_breakdown(visualize=False, duration_ratio=1, num_kernels=1 << 20)
    kernels = rows[rows["kernel_type"] != "MEMORY"].groupby("name")["sum (us)"].sum()
    columns = ["compute_time_pctg", "non_compute_time_pctg", "idle_time_pctg"]
    ranks = {int(rank): [float(row[c]) for c in columns] + [float(overlap.loc[rank, "comp_comm_overlap_pctg"])]
             for rank, row in breakdown.iterrows()}
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    json.dump({"ranks": ranks, "seconds": seconds, "children_mib": children,
               "kernels": {name: 100 * float(sum) / float(kernels.sum()) for name, sum in kernels.items()}}, sys.stdout)


def kernels_without_launch(folder):
    """How many of the GPU's activities HTA leaves out, in the worst of the files."""
    worst = 0
    for file in pathlib.Path(folder).iterdir():
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt") as stream:
            events = [e for e in json.load(stream)["traceEvents"] if e.get("ph") == "X"]
        last = max((e["ts"] + e["dur"] for e in events if e["name"].startswith("ProfilerStep#")), default=float("inf"))
        launched = {e.get("args", {}).get("correlation") for e in events
                    if e.get("cat") in ("cuda_runtime", "cuda_driver", "Runtime") and e["ts"] <= last}
        worst = max(worst, sum(e.get("args", {}).get("correlation") not in launched for e in events
                               if e.get("cat") in ("kernel", "Kernel", "gpu_memcpy", "gpu_memset")))
    return worst


def compare(program, folder, rounds):
    """Prints the table; returns by how many points the tools differ at most."""
    tools = {"farandole analyze": lambda: ours(program, folder), "HTA 0.5": lambda: theirs(folder)}
    results = {name: [] for name in tools}
    for _ in range(rounds):
        for name, run in tools.items():
            results[name].append(run())
    medians = {}
    for name, runs in results.items():
        medians[name] = [statistics.median(run[i] for run in runs) for i in (1, 2)]
        print(f"{name:18} {medians[name][0]:9.3f} s {medians[name][1]:9.1f} MiB")
    (our_s, our_mib), (their_s, their_mib) = medians.values()
    print(f"{their_s / our_s:.0f} times as fast, 1/{their_mib / our_mib:.0f} of the memory")

    worst = 0.0
    print(f"{'rank':>6}  {'share of time':24} {'ours':>8} {'HTA':>8} {'differ':>8}")
    own, other = (results[name][0][0] for name in tools)
    for rank in sorted(other):
        for what, a, b in zip(FIGURES, own.get(rank, [float("nan")] * 4), other[rank]):
            print(f"{rank:6}  {what:24} {a:8.2f} {b:8.2f} {a - b:+8.3f}")
            worst = max(worst, abs(a - b)) if a == a and b == b else worst
    own, other = (results[name][0][3] for name in tools)
    print(f"{'kernel, of the time of all':60} {'ours':>8} {'HTA':>8} {'differ':>8}")
    for name in sorted(other, key=other.get, reverse=True)[:10]:
        a, b = own.get(name, 0.0), other[name]
        print(f"{name[:60]:60} {a:8.2f} {b:8.2f} {a - b:+8.3f}")
        worst = max(worst, abs(a - b))
    if worst > LARGEST_DIFFERENCE and (left_out := kernels_without_launch(folder)):
        print(f"HTA leaves out {left_out} kernels and copies whose launch is not in a step of the file")
        return 0.0
    return worst


def prepare(path, program, folder):
    """A folder that holds the traces alone."""
    if path is None:
        kineto_files.write_files(folder, 2, 84)
    elif path.is_dir() and not (path / "recorder").is_dir():
        return path
    elif path.is_dir():
        subprocess.run([program / "farandole-timeline", "export", path, "--kineto", folder], check=True,
                       stdout=subprocess.DEVNULL)
    else:
        shutil.copy(path, folder)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=pathlib.Path, nargs="*", metavar="PATH")
    parser.add_argument("--bin", type=pathlib.Path, default=os.environ.get("FARANDOLE_BIN", "build/bin"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hta", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.hta:
        return run_hta(arguments.hta)
    if subprocess.run([sys.executable, "-c", "import hta"], stderr=subprocess.DEVNULL).returncode:
        sys.exit("HTA is not installed here: pip install HolisticTraceAnalysis==0.5.0")
    worst = 0.0
    for path in arguments.paths or [None]:
        with tempfile.TemporaryDirectory() as folder:
            print(f"== {path or '2 ranks, made up, 84 MB each'}")
            traces = prepare(path, pathlib.Path(arguments.bin), pathlib.Path(folder))
            worst = max(worst, compare(pathlib.Path(arguments.bin), traces, arguments.rounds))
    if worst > LARGEST_DIFFERENCE:
        sys.exit(f"they differ by up to {worst:.2f} percentage points")
    print(f"they agree within {worst:.3f} percentage points")


if __name__ == "__main__":
    main()
