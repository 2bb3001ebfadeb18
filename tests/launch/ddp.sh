#!/usr/bin/env bash
# farandole run starts an ordinary program of PyTorch's DistributedDataParallel; and gives bound ranks as many threads as cores.
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
unset "${!SLURM_@}" MASTER_ADDR MASTER_PORT
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
# A Python with PyTorch: the caller's, that of tests/compare/step, the system's, or the system's with the wheel of tools/setup.
for python in "${FARANDOLE_TORCH_PYTHON:-}" "$FARANDOLE_SOURCE/.deps/compare/bin/python" /usr/bin/python3; do
  "$python" -c 'import torch.distributed as d; exit(not d.is_gloo_available() if hasattr(d, "is_gloo_available") else not d.is_available())' 2>/dev/null && break
  python=
done
if [[ ! $python ]] && wheel_python 2>/dev/null; then python=/usr/bin/python3; fi

# Two programs at once use two ports. A port of the user's stays.
expect 0 env MASTER_PORT=123 MASTER_ADDR=here "$bin/farandole" run -- sh -c 'echo $MASTER_ADDR:$MASTER_PORT'
says out '^here:123$'
ports() { "$bin/farandole" run -- sh -c 'echo $MASTER_ADDR:$MASTER_PORT'; }
expect 0 bash -c "$(declare -f ports); bin=$bin; ports & ports; wait"
[[ $(grep -cE '^127\.0\.0\.1:2[0-9]{4}$' "$work/out") == 2 && $(sort -u "$work/out" | wc -l) == 2 ]] || fail "ports: $(<"$work/out")"

# Open MPI binds each rank to one core.
expect 0 env -u OMP_NUM_THREADS OMPI_MCA_hwloc_base_binding_policy=core "$bin/farandole" run -n 1 -- sh -c 'echo $OMP_NUM_THREADS of $(nproc)'
threads=$(sed 's/ of.*//' "$work/out")
[[ $(<"$work/out") == "$threads of $threads" ]] || fail "threads of a bound rank: $(<"$work/out")"
# The launcher's part is tested above in any case.
[[ $python ]] || { echo "skipped: no Python here has PyTorch with Gloo; name one in FARANDOLE_TORCH_PYTHON"; ((failures)) && exit 1 || exit 77; }
expect 0 timeout 300 "$bin/farandole" run -n 2 -- "$python" "$(dirname "${BASH_SOURCE[0]}")/ddp.py"
for r in 0 1; do says out "^rank $r of 2, $r of 2 on $(hostname)\$"; done
exit $((failures > 0))
