"""Prints the tables of tests/compare/nodes from its results: FOLDER/LAYOUT/WHAT-ROUND, each a JSON object.

Each figure is the median over the rounds. The last table has the numbers to reach.
"""
import json
import statistics
import sys
from pathlib import Path

MODELS = ("mnist", "mlp", "gpt")
MIB = 1 << 20


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def text(value, form="{:.2f}"):
    return "-" if value is None else form.format(value)


def divided(a, b):
    return None if a is None or b is None else a / b


class Layout:
    """The results of one layout."""

    def __init__(self, folder):
        self.folder, self.name = folder, folder.name

    def read(self, what):
        for file in sorted(self.folder.glob(f"{what}-*[0-9]")):
            content = file.read_text()
            yield json.loads(content[content.index("{"):])

    def allreduces(self, buffers):
        """By size: the times of Farandole, of MPI and of Gloo in µs."""
        ours, mpi, gloo = {}, {}, {}
        for what in ("allreduce", "large"):
            for one in self.read(what):
                for line in one["results"]:
                    if line["registered"] and line["buffers"] == buffers:
                        ours.setdefault(line["bytes"], []).append(line["ours_us"])
                        mpi.setdefault(line["bytes"], []).append(line["mpi_us"])
        for one in self.read("gloo"):
            for size, us in one["gloo_us"].items():
                gloo.setdefault(int(size), []).append(us)
        return {size: (median(ours[size]), median(mpi[size]), median(gloo.get(size, []))) for size in sorted(ours)}

    def step(self, kind, model):
        """A step, and what communication adds to one without, both in ms."""
        together, added = [], []
        for one in self.read(f"{kind}-{model}"):
            result = one["results"][0]
            together += result["steps_ms"]
            added.append(statistics.median(result["steps_ms"]) - statistics.median(result["steps_without_communication_ms"]))
        return median(together), median(added)

    def alone(self, model):
        return median(ms for one in self.read(f"step-{model}") for ms in one["results"][0]["steps_without_communication_ms"])

    def ddp(self, model):
        return median(ms for one in self.read(f"ddp-{model}") for ms in one["step_ms"])

    def start(self, which):
        return median((one["first_step_ns"] - one["started_ns"]) * 1e-6 for one in self.read(f"start-{which}"))

    def signatures(self):
        costs = [(one["checked_us"], one["unchecked_us"]) for one in self.read("signatures")]
        return tuple(map(statistics.median, zip(*costs))) if costs else None


def print_layout(layout):
    rounds = max((int(file.name.rsplit("-", 1)[1]) + 1 for file in layout.folder.iterdir() if file.suffix != ".part"), default=0)
    print(f"\n{layout.name} (hosts x ranks{', Gbit/s' if '@' in layout.name else ''}), medians of {rounds} rounds")
    for one in layout.read("allreduce"):
        print(one.get("between_nodes", ""))
        break
    for buffers in ("warm", "written"):
        lines = layout.allreduces(buffers)
        if lines:
            print(f"{'allreduce, ' + buffers:>20} {'ours us':>10} {'MPI us':>10} {'MPI/ours':>9} {'Gloo us':>10} {'Gloo/ours':>9}")
        for size, (ours, mpi, gloo) in lines.items():
            gloo = gloo if buffers == "warm" else None
            print(f"{size:>20} {ours:>10.1f} {mpi:>10.1f} {mpi / ours:>9.2f} {text(gloo, '{:.1f}'):>10} "
                  f"{text(divided(gloo, ours)):>9}")
    if layout.alone("mlp") is not None:
        print(f"{'step':>6} {'alone ms':>9} {'ours ms':>9} {'added ms':>9} {'bfloat16':>9} {'MPI adds':>9} {'DDP ms':>9} {'ours/DDP':>9}")
        for model in MODELS:
            ours, added = layout.step("step", model)
            row = [layout.alone(model), ours, added, layout.step("narrow", model)[1], layout.step("mpi", model)[1],
                   layout.ddp(model), divided(ours, layout.ddp(model))]
            print(f"{model:>6} " + " ".join(f"{text(value):>9}" for value in row))
    if layout.start("farandole") is not None:
        print(f"first step after {text(layout.start('farandole'), '{:.0f}')} ms, of a plain MPI program after "
              f"{text(layout.start('plain'), '{:.0f}')} ms")
    if layout.signatures():
        print("smallest exchange {:.2f} us, without signatures {:.2f} us".format(*layout.signatures()))


def least(pairs):
    """The smallest ratio, and where it is."""
    pairs = [(ratio, where) for ratio, where in pairs if ratio is not None]
    return min(pairs) if pairs else (None, "")


def most(pairs):
    pairs = [(ratio, where) for ratio, where in pairs if ratio is not None]
    return max(pairs) if pairs else (None, "")


def rows(layouts):
    """What to reach: text, bound, whether it is a lower bound, and (measured, where)."""
    plain = {name: layout for name, layout in layouts.items() if "@" not in name}

    def against(rival, least_bytes, names):
        return least((divided(times[rival], times[0]), f"{name}, {size} B") for name in names if name in plain
                     for size, times in plain[name].allreduces("warm").items() if size >= least_bytes)

    for name in ("2x1", "2x2", "4x1"):
        yield f"allreduce against MPI, {name}", 0.95, True, against(1, 0, [name])
        yield f"  from 1 MiB, {name}", 1.2, True, against(1, MIB, [name])
    yield "  from 16 MiB, 2x2", 1.5, True, against(1, 16 * MIB, ["2x2"])
    yield "allreduce against Gloo", 3, True, against(2, 0, plain)
    shaped = next((layout for name, layout in layouts.items() if name.startswith("2x1@")), None)
    if shaped:
        by_mpi = shaped.step("mpi", "mlp")[1]
        for kind, form, bound in (("step", "", 0.6), ("narrow", ", bfloat16 between nodes", 0.35)):
            yield (f"mlp on {shaped.name}: added{form}, of MPI's", bound, False,
                   (divided(shaped.step(kind, "mlp")[1], by_mpi), ""))
    for model in MODELS:
        yield f"step of {model} against DDP", 0.8, False, most(
            (divided(layout.step("step", model)[0], layout.ddp(model)), name) for name, layout in layouts.items())
    costs = [cost for cost in (layout.signatures() for layout in layouts.values()) if cost]
    yield "signature checks, part of the exchange", 0.03, False, (costs[0][0] / costs[0][1] - 1 if costs else None, "")
    start = layouts["2x2"] if "2x2" in layouts else None
    both = (start.start("farandole"), start.start("plain")) if start else (None, None)
    yield "first step on 2x2, s after plain MPI's", 1, False, (None if None in both else (both[0] - both[1]) * 1e-3, "")


def main():
    layouts = {folder.name: Layout(folder) for folder in sorted(Path(sys.argv[1]).iterdir()) if folder.is_dir()}
    for layout in layouts.values():
        print_layout(layout)
    print(f"\n{'number to reach':<48} {'reach':>8} {'measured':>9}")
    for name, bound, lower, (measured, where) in rows(layouts):
        reached = measured is not None and (measured >= bound if lower else measured <= bound)
        verdict = "not measured" if measured is None else "reached" if reached else "missed"
        print(f"{name:<48} {'>=' if lower else '<='} {bound:>5g} {text(measured):>9}  {verdict}{f' ({where})' if where else ''}")


if __name__ == "__main__":
    main()
