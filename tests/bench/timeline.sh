#!/usr/bin/env bash
# farandole bench timeline: what it prints, on one rank and on two, and what it refuses.
source "$(dirname "$0")/common.sh"
short=(--folder "$work" --repetitions 2 --kills 3 --events 1000 --ranks 2 --seconds 0.1 --model mnist)

timeout 300 "$bin/farandole" bench timeline "${short[@]}" >out 2>err || fail "one rank"
grep -q '^span, begin and end' out || fail "no span"
timeout 300 "$bin/farandole" run -n 2 -- "$bin/farandole" bench timeline "${short[@]}" --format json >out 2>err || fail "two ranks"
/usr/bin/python3 - <<'PYTHON' || fail "JSON"
import json
result = json.load(open("out"))["results"][0]
assert all(result[key] > 0 for key in ("span_ns", "span_p999_ns", "clock_pair_ns", "disabled_ns", "merge_events_per_s", "counters_us")), result
assert result["kills"] == result["kills_sound_traces"] == 3 and 0 <= result["kills_most_lost_us"] < 1000, result
(training,) = result["training"]
assert training["model"] == "mnist" and training["ranks"] == 2 and training["events_a_step"] >= 8, training
for added in training["timeline_adds"], training["profiler_adds"]:
    for share in added["of_time"], added["of_processor_time"]:
        assert share["ci95"][0] <= share["value"] <= share["ci95"][1] and abs(share["value"]) < 10, added
assert len(training["timeline_adds"]["of_time_by_round"]) >= 24 > len(training["profiler_adds"]["of_time_by_round"]) > 0
PYTHON
[[ -z $(find . -name 'farandole-*') ]] || fail "left behind: $(ls)"
timeout 300 "$bin/farandole" bench timeline --seconds 0 >out 2>err
[[ $? == 64 && $(wc -l <err) == 1 ]] || fail "--seconds 0"
timeout 300 "$bin/farandole" run -n 2 -- "$bin/farandole" bench timeline "${short[@]/mnist/llama}" >out 2>err
[[ $? == 64 ]] && grep -q "unknown model 'llama'" err || fail "--model llama"
