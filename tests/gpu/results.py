"""What tests/gpu/run notes: checks, and the figures to reach.

Usage: results.py check NAME EXIT-CODE START END DETAIL    a line of JSON
       results.py row FIGURE KEY LIMIT OUTPUT ROWS         adds a line of JSON to ROWS and prints what it says; LIMIT is such as
                                                           '>= 0.85'; exit code 1 if it is missed
       results.py value KEY OUTPUT                         a figure of an output
       results.py speed METRICS                            the median of samples/s of a run
       results.py same_loss METRICS METRICS                exit code 1 unless the losses of the last evaluations differ by rounding alone
       results.py write GPUS DEVICE CHECKS ROWS            the whole result"""
import json
import operator
import os
import statistics
import sys

COMPARE = {">=": operator.ge, "<=": operator.le, "==": operator.eq}


def values(key, output):
    """A figure in the last line of a program's output, or in all lines of a file of rounds, from the least to the most."""
    if not os.path.exists(output):
        return []
    with open(output) as stream:
        lines = [line for line in stream if line.strip()]
    if not output.endswith(".lines"):
        lines = lines[-1:]
    found = [json.loads(line).get(key) for line in lines if line.startswith("{")]
    return sorted(value for value in found if value is not None)


def value(key, output):
    found = values(key, output)
    return statistics.median(found) if found else None


def check(name, code, start, end, detail):
    print(json.dumps({"name": name, "passed": code == "0", "exit_code": int(code),
                      "seconds": round(float(end) - float(start), 2), "detail": detail}))


def row(figure, key, limit, output, rows):
    found = values(key, output)
    median = value(key, output)
    compare, reach = limit.split(" ", 1)
    reach = eval(reach, {"__builtins__": {}, "inf": float("inf")})  # a formula of tests/gpu/run itself
    unknown = median is None or reach == float("inf")
    left_out = os.environ.get("LEFT_OUT")
    result = f"not run: {left_out}" if left_out else "not measured" if unknown else "reached" if COMPARE[compare](median, reach) else "missed"
    line = {"figure": figure, "result": result, "value": median, "rounds": found, "reach": f"{compare} {reach:g}"}
    with open(rows, "a") as stream:
        stream.write(json.dumps(line) + "\n")
    spread = f", {found[0]:g} to {found[-1]:g} in {len(found)} rounds" if len(found) > 1 else ""
    print(f"  {figure:<50} {result}: {median} ({line['reach']}{spread})")
    sys.exit(result != "reached" and not left_out)


def same_loss(*files):
    a, b = ([line["eval_loss"] for line in map(json.loads, open(name)) if "eval_loss" in line][-1] for name in files)
    print(f"{a:.4f} and {b:.4f}")
    sys.exit(abs(a - b) > 0.05)


def speed(metrics):
    lines = [json.loads(line) for line in open(metrics)]
    print(json.dumps({"samples_per_s": statistics.median(line["samples_per_s"] for line in lines if "samples_per_s" in line)}))


def write(gpus, device, checks, rows):
    lines = [[json.loads(line) for line in open(name)] for name in (checks, rows)]
    json.dump({"gpus": int(gpus), "device": device, "figures": lines[1], "checks": lines[0]}, sys.stdout, indent=1)


{"check": check, "row": row, "value": lambda key, output: print(value(key, output) or "inf"), "speed": speed, "same_loss": same_loss,
 "write": write}[sys.argv[1]](*sys.argv[2:])
