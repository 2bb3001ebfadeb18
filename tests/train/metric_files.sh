#!/usr/bin/env bash
# TensorBoard's own reader and Prometheus's parser read what the writers of the runtime write. The packages are those that
# tools/setup installs into .deps; promtool is used if it is in PATH.
source "$(dirname "$0")/../trainer/common.sh"
packages=$(echo "$FARANDOLE_SOURCE"/.deps/venv/lib/python3*/site-packages)
export PYTHONPATH=$packages PYTHONDONTWRITEBYTECODE=1
/usr/bin/python3 -c 'import numpy, prometheus_client, tensorboard' 2>/dev/null ||
  { echo "skipped: .deps has no tensorboard and prometheus_client, or /usr/bin/python3 has no numpy"; exit 77; }

mkdir files
"$bin/metric_files" files >out 2>err || fail "metric_files"
grep -q 'µs a call' out || fail "metric_files prints no times"
cat out
for warning in 'full-disk.* File too large; TensorBoard does not see' 'create files/file: Not a directory; TensorBoard does not see' \
               'cannot write .*file/farandole-job-0.prom, so Prometheus' 'holds 40 series'; do
  [[ $(grep -cE "$warning" err) == 1 ]] || fail "not one warning: $warning"
done
[[ $(grep -c . err) == 4 ]] || fail "other warnings"
[[ -z $(ls files/*.prom 2>/dev/null) ]] || fail "a textfile is left after the end of its rank"
/usr/bin/python3 -W ignore "$source_folder/../train/run/metric_files.py" files >out 2>err || fail "what was read"
if command -v promtool >/dev/null; then
  for file in first full; do promtool check metrics <files/$file >out 2>&1 || fail "promtool"; [[ ! -s out ]] || fail "promtool"; done
fi
