#!/usr/bin/env bash
# tests/gpu/run says in one line why it cannot run here, and what it counts in a timeline is counted right.
set -uo pipefail
! nvidia-smi -L >/dev/null 2>&1 || { echo "skipped: this machine has a GPU"; exit 77; }

refused() {  # EXIT-CODE TEXT ARGUMENT…
  local message code
  message=$("${FARANDOLE_SOURCE:?}/tests/gpu/run" "${@:3}" 2>&1 >/dev/null)
  code=$?
  [[ $code == "$1" && $(grep -c . <<<"$message") == 1 && $message == "gpu/run: "*"$2"*"; "* ]] ||
    { echo "FAILED: $code: $message"; exit 1; }
}
refused 77 ""
refused 64 "--mend" --mend
refused 64 "--packed" --packed
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
printf '#!/bin/sh\necho "GPU 0: none"\n' >"$folder/nvidia-smi"
chmod +x "$folder/nvidia-smi"
PATH=$folder:$PATH refused 77 "no archive" --packed "$folder/archive"

# A figure that was not run is named, and is no failure.
row() { LEFT_OUT=$1 python3 "$FARANDOLE_SOURCE/tests/gpu/results.py" row speed fraction '>= 0.85' /dev/null "$folder/rows"; }
row "" >/dev/null && { echo "FAILED: a figure that is missing"; exit 1; }
row "there is no LibTorch" >/dev/null || { echo "FAILED: a figure that is left out"; exit 1; }
results=$(sed -n 's/.*"result": "\([^"]*\)".*/\1/p' "$folder/rows" | paste -sd,)
[[ $results == "not measured,not run: there is no LibTorch" ]] || { echo "FAILED: $results"; exit 1; }

# Of three batches in the steps 10 and 11, one is copied beside its step, one ends too late, and one is on a stream that computes.
mkdir "$folder/run"
python3 - "$folder/run/timeline.json.gz" <<'PYTHON'
import gzip, json, sys
def event(category, stream, begin, duration, step):
    return {"ph": "X", "cat": category, "name": "", "pid": 1, "tid": stream, "ts": begin, "dur": duration,
            "args": {"step": step, "phase": "backward" if category == "gpu_kernel" else "data"}}
json.dump([event("gpu_kernel", 1, 1000, 900, 10), event("gpu_kernel", 1, 2000, 900, 11), event("gpu_memcpy", 2, 900, 1100, 9),
           event("gpu_memcpy", 2, 1100, 300, 10), event("gpu_memcpy", 2, 1800, 101, 10), event("gpu_memcpy", 1, 2100, 10, 11)],
          gzip.open(sys.argv[1], "wt"))
PYTHON
figures=$(python3 "$FARANDOLE_SOURCE/tests/gpu/host_waits.py" "$folder/run" 10 | tail -n 1)
[[ $figures == *'"late_batches": 2}' ]] || { echo "FAILED: $figures"; exit 1; }
