#!/usr/bin/env bash
# tests/gpu/run says in one line why it cannot run here.
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
