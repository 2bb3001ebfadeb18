#!/usr/bin/env bash
# Programs that torchrun, accelerate, DeepSpeed, Lightning and the mpirun of MPICH have started are recorded: ranks with steps, and the
# same numbers for collectives. What is not installed is named and left out.
source "$(dirname "${BASH_SOURCE[0]}")/../../launch/expect.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unset "${!SLURM_@}" "${!FARANDOLE_RUN_@}" MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK FARANDOLE_LIBRARY
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python 2>/dev/null || { echo "skipped: no Python here has the PyTorch of tools/setup"; exit 77; }
export PYTHONPATH=$PYTHONPATH:${FARANDOLE_FRAMEWORKS:-$FARANDOLE_SOURCE/.deps/frameworks} OMP_NUM_THREADS=1
python=(/usr/bin/python3 -W ignore)
port=$((20000 + $$ % 10000))
cd "$work" || exit 1
has() { "${python[@]}" -c "import importlib.util as util, sys; sys.exit(util.find_spec('$1') is None)" || { echo "left out: no $1"; false; }; }
# recorded NAME RANKS COMMAND...
recorded() {
  expect 0 timeout 300 "$bin/farandole" record --run-dir "$1" -- "${@:3}"
  [[ $(grep -o 'rank [01] has trained' out | wc -l) == "$2" ]] || fail "$1: not $2 ranks: $(<out)"
  ! grep ^farandole: err || fail "$1: a rank complains"
  expect 0 "$bin/farandole" timeline merge "$1"
  "${python[@]}" - "$1" "$2" <<'PYTHON' || fail "the records of $1"
import gzip, json, sys
ranks = int(sys.argv[2])
assert json.load(open(sys.argv[1] + "/run.json"))["ranks"] == ranks
steps, calls = [set() for _ in range(ranks)], [{} for _ in range(ranks)]
for event in json.load(gzip.open(sys.argv[1] + "/timeline.json.gz"))["traceEvents"]:
    if event.get("cat") == "optimizer" and event["ph"] == "X":
        steps[event["pid"] - 1].add(event["args"]["step"])
    if event.get("cat") == "communication" and "sequence" in event["args"]:
        calls[event["pid"] - 1][event["args"]["communicator"], event["args"]["sequence"]] = event["name"]
both = calls[0].keys() & calls[-1].keys()
assert min(map(len, steps)) >= 20 and (ranks == 1 or len(both) >= 20), (steps, len(both))
assert all(calls[0][call] == calls[-1][call] for call in both), calls
PYTHON
}
recorded torchrun 2 "${python[@]}" -m torch.distributed.run --nproc-per-node 2 --master-port "$port" "$here/launchers.py" plain
if has accelerate; then
  recorded accelerate 1 "${python[@]}" -m accelerate.commands.launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no \
    --dynamo_backend no --main_process_port "$port" "$here/launchers.py" accelerate
fi
if has lightning; then
  for strategy in ddp ddp_spawn ddp_fork; do recorded "lightning-$strategy" 2 "${python[@]}" "$here/launchers.py" lightning "$strategy"; done
fi
if has deepspeed; then
  recorded deepspeed 2 env DS_ACCELERATOR=cpu "${python[@]}" -m deepspeed.launcher.launch --world_info "$(echo '{"localhost": [0, 1]}' | base64)" \
    --master_addr 127.0.0.1 --master_port "$port" "$here/launchers.py" deepspeed
fi
if type -p mpirun.mpich >/dev/null; then
  recorded mpich 2 mpirun.mpich -n 2 "${python[@]}" "$here/launchers.py" mpi "$work/meeting"
else
  echo "left out: no mpirun.mpich"
fi
exit $((failures > 0))
