"""Prints the tables of tests/compare/nodes from the JSON files in a folder."""
import json
import statistics
import sys
from pathlib import Path


def read(folder, pattern):
    for file in sorted(folder.glob(pattern)):
        text = file.read_text()
        yield json.loads(text[text.index("{"):])


def median(values):
    values = list(values)
    return statistics.median(values) if values else None


def ratio(theirs, ours):
    return "-" if theirs is None else f"{theirs / ours:.2f}"


def main():
    folder = Path(sys.argv[1])
    rounds = [{line["bytes"]: line for line in one["results"] if line["registered"]} for one in read(folder, "allreduce-*")]
    gloo = [{int(size): us for size, us in one["gloo_us"].items()} for one in read(folder, "gloo-*")]
    print(f"{'bytes':>10} {'ours us':>10} {'MPI us':>10} {'MPI/ours':>9} {'Gloo us':>10} {'Gloo/ours':>9}")
    for size in rounds[0]:
        ours = median(one[size]["ours_us"] for one in rounds)
        mpi = median(one[size]["mpi_us"] for one in rounds)
        rival = median(one[size] for one in gloo if size in one)
        print(f"{size:>10} {ours:>10.1f} {mpi:>10.1f} {ratio(mpi, ours):>9} "
              f"{'-' if rival is None else f'{rival:.1f}':>10} {ratio(rival, ours):>9}")
    others = [one["results"] for one in read(folder, "others-*")]
    print(f"{'collective':>14} {'bytes':>10} {'ours us':>10} {'MPI us':>10} {'MPI/ours':>9}")
    for place, line in enumerate(others[0] if others else []):
        if line["registered"]:
            ours, mpi = (median(one[place][key] for one in others) for key in ("ours_us", "mpi_us"))
            print(f"{line['collective']:>14} {line['bytes']:>10} {ours:>10.1f} {mpi:>10.1f} {ratio(mpi, ours):>9}")
    print(f"{'step':>10} {'ours ms':>10} {'alone ms':>10} {'added':>9} {'bfloat16':>10} {'MPI added':>10} {'DDP ms':>10} "
          f"{'ours/DDP':>9}")
    for model in ("mnist", "mlp", "gpt"):
        steps = [one["results"][0] for one in read(folder, f"step-{model}-*")]
        mpi = [one["results"][0] for one in read(folder, f"mpi-{model}-*")]
        narrow = [one["results"][0] for one in read(folder, f"narrow-{model}-*")]
        added, added_mpi, added_narrow = (
            [100 * (statistics.median(one["steps_ms"]) / statistics.median(one["steps_without_communication_ms"]) - 1)
             for one in which] for which in (steps, mpi, narrow))
        ours = median(ms for one in steps for ms in one["steps_ms"])
        alone = median(ms for one in steps for ms in one["steps_without_communication_ms"])
        ddp = median(ms for one in read(folder, f"ddp-{model}-*") for ms in one["step_ms"])
        print(f"{model:>10} {ours:>10.2f} {alone:>10.2f} {median(added):>7.0f} % {median(added_narrow):>8.0f} % "
              f"{median(added_mpi):>8.0f} % "
              f"{'-' if ddp is None else f'{ddp:.2f}':>10} {'-' if ddp is None else f'{ours / ddp:.2f}':>9}")
    start, start_mpi = (median(one["start_ms"] for one in read(folder, f"start-{which}-*")) for which in ("auto", "mpi"))
    print(f"start of a job: {start:.0f} ms, with MPI's collectives {start_mpi:.0f} ms")


if __name__ == "__main__":
    main()
