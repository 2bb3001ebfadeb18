#!/usr/bin/env python3
"""read_calls.py TRACE RANK: the rank's MPI calls in the order of their beginnings, as calling_program.cc writes them."""
import gzip
import json
import sys

trace, rank = sys.argv[1], int(sys.argv[2])
events = json.load(gzip.open(trace))["traceEvents"]
calls = [e for e in events if e["ph"] == "X" and e["pid"] == rank + 1 and e["name"].startswith("MPI_")]
lines = []  # polls of the same function are added up, because the machine determines how many become one record
for call in sorted(calls, key=lambda e: e["ts"]):
    arguments = {key: value for key, value in call.get("args", {}).items() if key != "step"}
    files_and_ends = call["name"].startswith("MPI_File") or call["name"] in ("MPI_Init", "MPI_Finalize")
    if call["cat"] != ("other" if files_and_ends else "communication"):
        print("wrong category of", call["name"], call["cat"])
    if "polls" in arguments:
        if lines and lines[-1][0] == call["name"] and "polls" in lines[-1][1]:
            lines[-1][1]["polls"] += arguments["polls"]
            continue
    lines.append((call["name"], arguments))
for name, arguments in lines:
    print(name, *(f"{key}={value}" for key, value in arguments.items()))
