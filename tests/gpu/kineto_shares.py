"""Compares what `farandole analyze` says of a trace of PyTorch's profiler with an own count of the trace's kernels.

Usage: kineto_shares.py FARANDOLE-ANALYZE FOLDER

FOLDER has one trace a rank. The window reaches from the first kernel or copy of a GPU to its last one, as in Holistic Trace
Analysis. Prints the shares; the last line is JSON with the largest difference in percentage points."""
import gzip
import json
import math
import pathlib
import subprocess
import sys

WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def union(intervals):
    """Sorted intervals that do not overlap."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def length(intervals):
    return sum(end - start for start, end in intervals)


def common(a, b):
    """What both unions have in common."""
    return length(a) + length(b) - length(union(a + b))


def count(file):
    """The rank, and its shares in percent."""
    with (gzip.open if file.suffix == ".gz" else open)(file, "rt") as stream:
        trace = json.load(stream)
    work = [(e["ts"], e["ts"] + e["dur"], e["cat"] == "kernel", e["name"]) for e in trace["traceEvents"]
            if e.get("ph") == "X" and e.get("cat") in WORK]
    window = max(w[1] for w in work) - min(w[0] for w in work)
    is_nccl = [w[2] and w[3].startswith("nccl") for w in work]
    communication = union([list(w[:2]) for w, nccl in zip(work, is_nccl) if nccl])
    compute = union([list(w[:2]) for w, nccl in zip(work, is_nccl) if w[2] and not nccl])
    overlap = 100 * common(communication, compute) / length(communication) if communication else math.nan
    utilization = 100 * length(union(communication + compute)) / window
    return trace.get("distributedInfo", {}).get("rank", 0), (utilization, 100 * length(compute) / window, overlap)


def analyzed(program, folder):
    report = json.loads(subprocess.run([program, folder, "--format", "json"], check=True, capture_output=True).stdout)
    percent = lambda share: 100 * share if isinstance(share, float) else math.nan
    return {rank["rank"]: (percent(rank["gpu"]["utilization"]), percent(rank["gpu"]["compute"]), percent(rank["overlap"]))
            for rank in report["runs"][0]["by_rank"]}


program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
ours, worst = analyzed(program, folder), 0.0
for file in sorted(folder.iterdir()):
    rank, counted = count(file)
    for what, a, b in zip(("utilization", "compute", "overlap"), ours[rank], counted):
        print(f"rank {rank}: {what} {a:.3f} %, counted {b:.3f} %")
        if math.isnan(a) != math.isnan(b):
            sys.exit(f"rank {rank}: only one of both knows the {what}")
        worst = max(worst, abs(a - b)) if a == a else worst
print(json.dumps({"largest_difference": round(worst, 4)}))
