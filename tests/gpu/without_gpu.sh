#!/usr/bin/env bash
# tests/gpu/run says in one line why it cannot run here.
set -uo pipefail
! nvidia-smi -L >/dev/null 2>&1 || { echo "skipped: this machine has a GPU"; exit 77; }
message=$("${FARANDOLE_SOURCE:?}/tests/gpu/run" 2>&1 >/dev/null)
code=$?
[[ $code == 77 && $(grep -c . <<<"$message") == 1 && $message == "gpu/run: "*"; "* ]] || { echo "FAILED: $code: $message"; exit 1; }
