#!/usr/bin/env bash
# farandole bench analyze: what it prints and what it refuses.
source "$(dirname "$0")/common.sh"
bench=(timeout 300 "$bin/farandole" bench analyze --folder "$work" --rounds 1)

"$bin/make_large_run" run 2 50 40 >out 2>err || fail "no run"
"${bench[@]}" run/timeline.json.gz --format json >out 2>err || fail "a run"
/usr/bin/python3 - <<'PYTHON' || fail "JSON"
import json
result = json.load(open("out"))["results"][0]
assert all(result[key] > 0 for key in ("on_demand_s", "analyze_s", "inflate_s", "analyze_gzip_s", "verdict_s")), result
PYTHON
for bad in '{"x": 1}' '{"traceEvents": [{"name": "a", "ts": true}]}' 'no JSON' '' '{"traceEvents": []}'; do
  printf '%s' "$bad" >bad.json
  "${bench[@]}" bad.json >out 2>err
  [[ $? == 65 && $(wc -l <err) == 1 ]] || fail "$bad"
done
"${bench[@]}" nowhere.json >out 2>err
[[ $? == 64 && $(wc -l <err) == 1 ]] || fail "no file"
[[ -z $(find . -name 'farandole-*') ]] || fail "left behind: $(ls)"
