"""What TensorBoard and Prometheus read from the files of metric_files: metric_files.py FOLDER."""
import math
import re
import sys

from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.util import tensor_util

folder = sys.argv[1]

# Of the first start 1 to 5 are left: it went back from 9 to 7, and the second start continues from 5.
expected = [(step, step) for step in range(1, 6)] + [(6, 106), (7, 107)]
events = event_accumulator.EventAccumulator(f"{folder}/tensorboard").Reload()
assert [(event.step, event.value) for event in events.Scalars("loss")] == expected, events.Scalars("loss")
assert math.isinf(events.Scalars("infinite")[0].value) and math.isnan(events.Scalars("not a number")[0].value)
assert [(event.step, event.value) for event in events.Scalars("late")] == [(1 << 40, -1.5)]
assert abs(events.Scalars("loss")[-1].wall_time - events.FirstEventTimestamp()) < 3600
assert 1.6e9 < events.FirstEventTimestamp() < 9e9, "seconds since 1970"
# What the scalars page of TensorBoard reads.
plugin = plugin_event_accumulator.EventAccumulator(f"{folder}/tensorboard").Reload()
assert "loss" in plugin.PluginTagToContent("scalars"), plugin.Tags()
assert [(event.step, tensor_util.make_ndarray(event.tensor_proto).item()) for event in plugin.Tensors("loss")] == expected
# The first start alone.
alone = event_accumulator.EventAccumulator(f"{folder}/tensorboard/events.out.tfevents.9000000000.later.1").Reload()
assert [(event.step, event.value) for event in alone.Scalars("loss")] == [(step, step) for step in range(1, 8)] + [(8, 80)]
assert alone.Scalars("n" * 300)[0].value == 0.5
# A disk that was full for a while: nothing is lost and no record is torn.
full = event_accumulator.EventAccumulator(f"{folder}/full-disk").Reload()
assert [event.step for event in full.Scalars("loss")] == list(range(1, 31)), full.Scalars("loss")


def families(name):
    text = open(f"{folder}/{name}").read()
    assert text.endswith("\n")
    # What `promtool check metrics` asks of names and texts.
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, help_text = line.removeprefix("# HELP ").split(" ", 1)
            assert re.fullmatch("farandole_[a-z0-9_]+", name) and help_text, line
    return {family.name: family for family in text_string_to_metric_families(text)}


first, second = families("first"), families("second")
assert [[s.value for s in f["farandole_steps"].samples] for f in (first, second)] == [[1], [1]], "within 10 s"
assert first["farandole_steps"].type == "counter" and first["farandole_memory_bytes"].type == "gauge"
assert first["farandole_memory_bytes"].documentation == "Resident memory\nof \\ the process."
metrics = {sample.labels["name"]: sample.value for sample in first["farandole_metric"].samples}
assert math.isnan(metrics.pop('top-5 "accuracy"\\')) and metrics == {"loss": 1}, metrics
for family in first.values():
    for sample in family.samples:
        assert sample.labels["job_id"] == "a/b" and sample.labels["rank"] == "3" and sample.labels["node"], sample
        assert sample.timestamp is None, "the node exporter refuses timestamps"
assert len(families("full")["farandole_metric"].samples) == 40
