"""expect_run.py REPORT.json RUN STEPS SHARE WORD...: the report has so many steps, phases cover at least this share of each
rank's median step, and each WORD is a collective with a rank-to-rank wait, PHASE>0 a phase that takes time, PHASE<SHARE one that takes less, or
NAME=SECONDS what spans of this name last on rank 0, within a quarter.
The median, because on a busy machine a thread may lose its core between two phases; of a few steps, the best one."""
import collections
import gzip
import json
import statistics
import sys


def covered(step, phases):
    begin, end = step["ts"], step["ts"] + step["dur"]
    done = total = begin
    for phase in phases:  # by their begin
        left, right = max(phase["ts"], done), min(phase["ts"] + phase["dur"], end)
        if right > left:
            total, done = total + right - left, right
    return (total - begin) / step["dur"]


report, folder, steps, share, *words = sys.argv[1:]
(run,) = json.load(open(report))["runs"]
counted = run["steps"] + run["warmup_steps"]
assert counted == int(steps), f"{counted} steps, not {steps}"
spans = collections.defaultdict(list)
for event in json.load(gzip.open(f"{folder}/timeline.json.gz"))["traceEvents"]:
    if event["ph"] == "X" and event["tid"] % 1000 == 0 and event["dur"] > 0:
        spans[event["pid"], event["cat"] == "step"].append(event)
for pid in range(1, run["ranks"] + 1):
    phases = sorted((one for one in spans[pid, False] if one["cat"] != "other" or one["name"] == "before forward"),
                    key=lambda one: one["ts"])
    shares = [covered(step, phases) for step in spans[pid, True]]
    typical = statistics.median if len(shares) >= 8 else max
    assert typical(shares) >= float(share), f"phases cover {shares} of the steps of process {pid}"
collectives = [f"{one['name']}:{one['operation']}" for one in run["communication"].get("collectives", [])]
for word in words:
    if word.endswith(">0"):
        assert run["phases"][word[:-2]] > 0, f"no time in {word[:-2]}: {run['phases']}"
    elif "<" in word:
        phase, _, most = word.partition("<")
        assert run["phases"][phase] < float(most), f"too much time in {phase}: {run['phases']}"
    elif "=" in word:
        name, _, seconds = word.partition("=")
        lasted = sum(one["dur"] for one in spans[1, False] if one["name"] == name) * 1e-6
        assert abs(lasted - float(seconds)) < 0.25 * float(seconds), f"{name} lasts {lasted} s, not {seconds} s"
    else:
        assert word in collectives, f"{word} is not among {collectives}"
