"""Counts the waits of the host for a GPU in the steps of a run, from its timeline. The last line is JSON: "waits" are
those for the step that the host has just queued, "last_step_waits" and "last_step_ms" those for the step before it.
"late_batches" are copies of batches for the next step that did not run beside a step: they were on a stream that computes,
or ended after the last kernel of the step in which they were queued. Without any copy of a batch, it is not there.

Usage: host_waits.py RUN FIRST-STEP"""
import gzip
import json
import pathlib
import sys

run, first = pathlib.Path(sys.argv[1]), int(sys.argv[2])
events = json.loads(gzip.open(run / "timeline.json.gz").read())
events = events["traceEvents"] if isinstance(events, dict) else events
tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("ph") == "M" and e["name"] == "thread_name"}
kernels = sum(e.get("cat") == "gpu_kernel" for e in events)
if kernels == 0:
    sys.exit("the timeline has no kernels")


def lets_the_host_wait(event):
    """CUPTI records waits in CUDA's functions. Ours poll, and have spans; that for the last step comes after this one."""
    if tracks.get((event["pid"], event["tid"])) == "GPU synchronisation":
        return event["name"] != "stream waits for an event"
    return event["name"] == "wait for flags"


waits = [e for e in events if e.get("ph") == "X" and lets_the_host_wait(e) and e.get("args", {}).get("step", -1) >= first]
for name in sorted({e["name"] for e in waits}):
    print(f"{name}: {sum(e['name'] == name for e in waits)}")
last = [e["dur"] / 1000 for e in events if e.get("ph") == "X" and e["name"] == "wait for the last step"
        and e.get("args", {}).get("step", -1) >= first]
print(f"wait for the last step: {len(last)}, {sum(last):.3f} ms in all")
figures = {"waits": len(waits), "last_step_waits": len(last), "last_step_ms": round(sum(last), 3)}

computing, ends = set(), {}
for event in events:
    if event.get("cat") == "gpu_kernel":
        step = event.get("args", {}).get("step", -1)
        computing.add((event["pid"], event["tid"]))
        ends[step] = max(ends.get(step, 0), event["ts"] + event["dur"])
batches = [e for e in events if e.get("cat") == "gpu_memcpy" and e.get("args", {}).get("phase") == "data"
           and e["args"].get("step", -1) >= first]
late = [e for e in batches if (e["pid"], e["tid"]) in computing or e["ts"] + e["dur"] > ends.get(e["args"]["step"], 0)]
print(f"copies of batches: {len(batches)}, late: {len(late)}")
if batches:
    figures["late_batches"] = len(late)
print(json.dumps(figures))
