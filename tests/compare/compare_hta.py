#!/usr/bin/env python3
"""Compares Farandole's analyzer with Holistic Trace Analysis on the same run.

    pip install HolisticTraceAnalysis==0.5.0
    tests/compare/compare_hta.py RUN [--bin build/bin]

Exports RUN's recorders in the form of PyTorch's profiler (farandole timeline export --kineto), cuts them to the time that
the analyzer looks at (without the first steps), and sets HTA's temporal breakdown and overlap beside farandole analyze's, rank by rank. Exits 1 where
a share of the time differs by more than 0.5 percentage points: HTA reads whole microseconds, and ends its window with
the last kernel.
"""

import argparse
import contextlib
import gzip
import io
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

LARGEST_DIFFERENCE = 0.5  # percentage points


def ours(program, run):
    report = json.loads(subprocess.run([program, run, "--format", "json"], check=True, capture_output=True).stdout)
    return report["runs"][0]


def cut(file, first, last):
    """Leaves what begins between the start of step `first` and the end of step `last`."""
    with gzip.open(file, "rt") as stream:
        trace = json.load(stream)
    steps = {e["name"]: e for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep#")}
    start = steps[f"ProfilerStep#{first}"]["ts"]
    end = steps[f"ProfilerStep#{last}"]["ts"] + steps[f"ProfilerStep#{last}"]["dur"]
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e["ph"] != "X" or start <= e["ts"] <= end]
    with gzip.open(file, "wt", compresslevel=1) as stream:
        json.dump(trace, stream, indent=0)  # HTA looks for the rank line by line


def theirs(folder):
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    try:
        from hta.trace_analysis import TraceAnalysis
    except ImportError:
        sys.exit("HTA is not installed here: pip install HolisticTraceAnalysis==0.5.0")
    with contextlib.redirect_stdout(io.StringIO()):
        analysis = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
        breakdown = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
        overlap = analysis.get_comm_comp_overlap(visualize=False).set_index("rank")
    return breakdown, overlap


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--bin", default=os.environ.get("FARANDOLE_BIN", "build/bin"), help="where the programs are")
    arguments = parser.parse_args()
    programs = pathlib.Path(arguments.bin)
    report = ours(programs / "farandole-analyze", arguments.run)
    first = report["warmup_steps"]
    last = first + report["steps"] - 1
    with tempfile.TemporaryDirectory() as folder:
        export = [programs / "farandole-timeline", "export", arguments.run, "--kineto", folder]
        subprocess.run(export, check=True, stdout=subprocess.DEVNULL)
        for file in pathlib.Path(folder).iterdir():
            cut(file, first, last)
        breakdown, overlap = theirs(folder)

    print(f"steps {first} to {last}; percent: ours, HTA's, difference")
    worst = 0.0
    for rank in report["by_rank"]:
        number, window = rank["rank"], report["window_s"]
        pairs = {
            "compute": (100 * rank["compute_s"] / window, breakdown.loc[number, "compute_time_pctg"]),
            "exposed communication": (100 * rank["exposed_s"] / window, breakdown.loc[number, "non_compute_time_pctg"]),
            "overlap": (100 * rank["overlap"], overlap.loc[number, "comp_comm_overlap_pctg"]),
        }
        for what, (own, other) in pairs.items():
            print(f"rank {number:4}  {what:24} {own:7.2f} {other:7.2f} {own - other:+6.2f}")
            worst = max(worst, abs(own - other))
    if worst > LARGEST_DIFFERENCE:
        sys.exit(f"they differ by up to {worst:.2f} percentage points")
    print(f"they agree within {worst:.2f} percentage points")


if __name__ == "__main__":
    main()
