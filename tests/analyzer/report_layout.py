#!/usr/bin/python3
"""report_layout.py: an HTML report in a real browser, 1,400 and 800 pixels wide. No column of a table is lost, no text lies on
another, and nothing is wider than the page. Needs Chromium; FARANDOLE_BROWSER names another program."""
import gzip
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ANALYZE = pathlib.Path(os.environ["FARANDOLE_BIN"]) / "farandole-analyze"
BROWSER = os.environ.get("FARANDOLE_BROWSER") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# Puts what is wrong into <pre id="layout">. Rectangles of texts include space above and below the letters.
SCRIPT = r"""
for (const part of document.querySelectorAll("details")) part.open = true;
const wrong = [], page = document.documentElement;
const named = e => (e.textContent || e.tagName).slice(0, 60);
const lies_in = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1;
if (page.scrollWidth > innerWidth) wrong.push("the page is " + page.scrollWidth + " wide");
for (const cell of document.querySelectorAll("th, td")) {
  const frame = cell.closest(".scroll"), scrolls = getComputedStyle(frame).overflowX == "auto";
  if (!lies_in(cell.getBoundingClientRect(), frame.getBoundingClientRect()) && !(innerWidth < 1400 && scrolls))
    wrong.push("outside of its table's frame: " + named(cell));
  if (cell.scrollWidth > cell.clientWidth + 1) wrong.push("wider than its cell: " + named(cell));
}
for (const card of document.querySelectorAll(".card"))
  if (card.scrollWidth > card.clientWidth + 1) wrong.push("wider than its card: " + named(card));
let texts = 0;
for (const svg of document.querySelectorAll("svg")) {
  const frame = {left: 0, right: page.clientWidth}, found = [];
  for (const text of svg.querySelectorAll("text")) {
    const b = text.getBoundingClientRect(), space = 0.2 * b.height;
    if (!text.textContent) continue;
    ++texts;
    if (!lies_in(b, frame)) wrong.push("outside of the page: " + named(text));
    const a = {left: b.left + 1, right: b.right - 1, top: b.top + space, bottom: b.bottom - space, text};
    for (const other of found)
      if (a.left < other.right && other.left < a.right && a.top < other.bottom && other.top < a.bottom)
        wrong.push(svg.getAttribute("aria-label") + ": '" + named(text) + "' lies on '" + named(other.text) + "'");
    found.push(a);
  }
}
const out = document.createElement("pre");
out.id = "layout";
out.textContent = JSON.stringify({wrong, texts, width: innerWidth, cells: document.querySelectorAll("td").length});
document.body.append(out);
"""


def problems_of(report, width, folder):
    """What is wrong in the report at this width, and how many texts and cells were looked at."""
    page = folder / "page.html"
    page.write_text(report.read_text(encoding="utf-8").replace("</body>", f"<script>{SCRIPT}</script></body>"), encoding="utf-8")
    shown = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}/browser",
         f"--window-size={width},1000", "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=600, check=True)
    found = re.search(r'<pre id="layout">(.*?)</pre>', shown.stdout, re.S)
    assert found, f"the browser did not run the script: {shown.stdout[-500:]}{shown.stderr[-500:]}"
    return json.loads(html.unescape(found[1]))


def trace_of(ranks, host, slow=0):
    """Steps with phases, collectives with long names, and MPI calls: every table of a report, with wide contents."""
    events = []
    span = lambda rank, thread, category, name, start, end, **args: events.append(
        {"ph": "X", "cat": category, "name": name, "pid": rank + 1, "tid": 1000000 + 1000 * rank + thread, "ts": start,
         "dur": end - start, "args": args})
    for rank in range(ranks):
        events.append({"ph": "M", "name": "process_name", "pid": rank + 1,
                       "args": {"name": f"rank {rank}", "rank": rank, "host": f"{host}{rank // 2}.cluster.example.org"}})
        events.append({"ph": "M", "name": "thread_name", "pid": rank + 1, "tid": 1000000 + 1000 * rank, "args": {"name": "training"}})
        for step in range(120):
            t = 100000 * step + 100 * (step * 7 % 13)
            late = 4000 * rank + (20000 if rank == slow else 0)
            span(rank, 0, "step", "step", t, t + 99000, step=step)
            span(rank, 0, "data", "data", t, t + 5000)
            span(rank, 0, "forward", "forward", t + 5000, t + 30000)
            span(rank, 0, "backward", "backward", t + 30000, t + 60000 + late)
            for bucket in range(6):
                span(rank, 1, "communication", f"gradients of bucket {bucket}", t + 40000 + late + 900 * bucket,
                     t + 88000 + 1500 * bucket, operation="reduce_scatter_sparse", communicator=0, sequence=6 * step + bucket,
                     bytes=int(3.7 ** bucket * 10000))
            span(rank, 0, "communication", "MPI_Neighbor_alltoallv_init", t + 97000, t + 98000, bytes=123456789)
        for second in range(12):
            for name, value in (("CPU %", 187.5), ("memory MiB", 123456.7), ("GPU %", 55), ("GPU memory MiB", 81559)):
                events.append({"ph": "C", "name": name, "pid": rank + 1, "ts": 1000000 * second, "args": {"value": value}})
    return {"otherData": {"farandole_trace": 1, "ranks": ranks, "clock_residual_us": [0.5] * ranks}, "traceEvents": events}


def write_run(run, ranks, slow=0):
    run.mkdir()
    (run / "timeline.json.gz").write_bytes(gzip.compress(json.dumps(trace_of(ranks, "compute-node-with-a-name", slow)).encode(), 1))
    (run / "run.json").write_text(json.dumps({
        "ranks": ranks, "device": "cpu", "global_batch": 4096, "cores": 128, "memory_mib": 1048576, "parameters": 123456789,
        "model_flops": 1.234e14, "model_flops_from": "given by the program", "peak_tflops": 989.4,
        "program": "./program --with a --long command/line " + "and/a/path" * 20, "started": "2026-01-01T00:00:00Z"}))
    with open(run / "metrics.jsonl", "w", encoding="utf-8") as log:
        for step in range(0, 2000000, 2000):
            line = {"step": step, "epoch": 0, "loss": 1e4 / (step + 100), "lr": 1.2345e-5, "samples_per_s": 123456.7 + step % 7 * 1e-3,
                    "gradient_norm_of_the_whole_model_before_clipping": -1e-9 * step, "wide": 1e30 / (step + 1), "flat": 12345.678}
            print(json.dumps(line), file=log)
            if step % 200000 == 0:
                print(json.dumps({"step": step, "eval_loss": 2e4 / (step + 100), "eval_accuracy": step / 2e6}), file=log)
        for step in (3000, 1500000):
            print(json.dumps({"step": step, "event": "skipped step"}), file=log)
        print(json.dumps({"step": 1900000, "event": "rollback", "to_step": 1800000}), file=log)


def main():
    if BROWSER is None:
        print("skipped: there is no Chromium; name it with FARANDOLE_BROWSER")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for run, ranks in (("one", 1), ("two", 2), ("eight", 8)):
            write_run(folder / run, ranks)
        write_run(folder / "slow", 8, 5)
        reports = {"one": ["one"], "eight": ["eight"], "all": ["two", "eight", "--against", "slow"]}
        failed = False
        for report, arguments in reports.items():
            file = folder / f"{report}.html"
            subprocess.run([ANALYZE, *[folder / word if (folder / word).is_dir() else word for word in arguments], "-o", file],
                           check=True, timeout=300)
            for width in (1400, 800):
                found = problems_of(file, width, folder)
                assert found["width"] == width and found["texts"] > 50 and found["cells"] > 5, found
                for problem in found["wrong"]:
                    failed = True
                    print(f"FAILED: {report}, {width} pixels: {problem}")
        return 1 if failed else 0


sys.exit(main())
