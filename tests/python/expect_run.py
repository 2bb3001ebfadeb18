"""expect_run.py REPORT.json STEPS SHARE WORD...: the report has so many steps, phases cover at least this share of the
time, and each WORD is a collective with a rank-to-rank wait, or PHASE>0 a phase that takes time."""
import json
import sys

report, steps, share, *words = sys.argv[1:]
(run,) = json.load(open(report))["runs"]
counted = run["steps"] + run["warmup_steps"]
assert counted == int(steps), f"{counted} steps, not {steps}"
covered = 1 - run["phases"]["other"]
assert covered >= float(share), f"phases cover {covered:.3f} of the time, less than {share}: {run['phases']}"
collectives = [f"{one['name']}:{one['operation']}" for one in run["communication"].get("collectives", [])]
for word in words:
    if word.endswith(">0"):
        assert run["phases"][word[:-2]] > 0, f"no time in {word[:-2]}: {run['phases']}"
    else:
        assert word in collectives, f"{word} is not among {collectives}"
