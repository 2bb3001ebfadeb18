#!/usr/bin/env bash
# farandole bench timeline: what it prints, on one rank and on two, and what it refuses.
source "$(dirname "$0")/common.sh"
short=(--folder "$work" --repetitions 2 --events 1000 --ranks 2)

timeout 300 "$bin/farandole" bench timeline "${short[@]}" >out 2>err || fail "one rank"
grep -q '^span, begin and end' out || fail "no span"
timeout 300 "$bin/farandole" run -n 2 -- "$bin/farandole" bench timeline "${short[@]}" --format json >out 2>err || fail "two ranks"
/usr/bin/python3 - <<'PYTHON' || fail "JSON"
import json
[result] = json.load(open("out"))["results"]
assert all(result[key] > 0 for key in ("span_ns", "span_p999_ns", "clock_pair_ns", "disabled_ns", "merge_events_per_s", "counters_us")), result
PYTHON
[[ -z $(find . -name 'farandole-*') ]] || fail "left behind: $(ls)"
timeout 300 "$bin/farandole" bench timeline --events 99 >out 2>err
[[ $? == 64 && $(wc -l <err) == 1 ]] || fail "--events 99"
