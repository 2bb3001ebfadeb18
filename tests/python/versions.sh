#!/usr/bin/env bash
# Recording and the backend with each version of PyTorch in the table of docs/python.md, and with the newest one. Each comes from
# PyPI without the packages of CUDA that nothing on a CPU calls, but with the CUPTI that it asks for. The table must have the newest.
source "$(dirname "${BASH_SOURCE[0]}")/../launch/expect.sh"
unset "${!SLURM_@}" MASTER_ADDR MASTER_PORT
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
table=$(sed -n '/^| PyTorch |/,/^$/p' "$FARANDOLE_SOURCE/docs/python.md" | sed -n 's/^| \([0-9][0-9.]*\) |.*/\1/p')
[[ -n $table ]] || fail "docs/python.md has no table of versions"
newest=$(/usr/bin/python3 -m venv "$work/venv" && "$work/venv/bin/pip" index versions torch 2>/dev/null | sed -n 's/^torch (\(.*\))/\1/p')
[[ -n $newest ]] || { echo "skipped: PyPI does not answer"; exit 77; }
grep -qx "$newest" <<<"$table" || fail "PyTorch $newest is not in the table of docs/python.md"

# installed VERSION: in $work/torch.
installed() {
  local pip=$work/torch/bin/pip packages wanted
  rm -rf "$work/torch" && /usr/bin/python3 -m venv "$work/torch"
  "$pip" install -q --no-compile --no-cache-dir sympy networkx jinja2 filelock fsspec typing-extensions setuptools &&
    "$pip" install -q --no-compile --no-cache-dir --no-deps "torch==$1" || return 1
  packages=$(echo "$work"/torch/lib/python3*/site-packages)
  mapfile -t wanted < <(sed -n 's/^Requires-Dist: //p' "$packages"/torch-*/METADATA | sed 's/ *;.*//; s/ *[()]//g' |
    sed -n 's/^nvidia-cuda-\(cupti\|runtime\)\(-cu[0-9]*\)\?==/&/p; s/^cuda-toolkit\[.*\]==/cuda-toolkit[cupti,cudart]==/p')
  ((${#wanted[@]})) && "$pip" install -q --no-compile --no-cache-dir "${wanted[@]}"
}
job() { timeout 600 "$bin/farandole" run -n 2 --run-dir "$work/run" "$@"; }

inherited_path=${PYTHONPATH:-} inherited_libraries=${LD_LIBRARY_PATH:-}
for version in $(printf '%s\n' $table "$newest" | sort -uV); do
  export PYTHONPATH=$inherited_path LD_LIBRARY_PATH=$inherited_libraries
  before=$failures
  { installed "$version" && rm -rf "$work/stand-ins" && wheel_python "$work/torch" "$work/stand-ins"; } 2>"$work/err" ||
    { fail "PyTorch $version cannot be installed: $(tail -n 3 "$work/err")"; continue; }
  expect 0 job --trace-torch -- /usr/bin/python3 -W ignore "$here/ddp.py" "$work/model.pt"
  expect 0 "$bin/farandole" analyze "$work/run" --format json -o "$work/run.json"
  expect 0 /usr/bin/python3 "$here/expect_run.py" "$work/run.json" "$work/run" 16 0.9 \
    data\>0 forward\>0 backward\>0 optimizer\>0 evaluation\>0 'bucket 0:allreduce'
  rm -rf "$work/run"
  expect 0 job --trace-torch --torch-backend farandole -- /usr/bin/python3 -W ignore "$here/backend.py" training
  [[ $(grep -c '^equal$' "$work/out") == 2 ]] || fail "the backend with PyTorch $version: $(<"$work/out")"
  rm -rf "$work/run"
  echo "PyTorch $version: $( ((failures == before)) && echo recorded, backend || echo FAILED)"
done
exit $((failures > 0))
