#!/usr/bin/env bash
# farandole doctor without a run: checks of this machine, each with a remedy if it fails; the exit code is then 1.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
subjects='MPI LibTorch HDF5 GPU Slurm shared-memory limits cores memory disk host-name clock'

expect 0 "$doctor"
silent err
says out '^ok +MPI +.*mpirun [0-9.]+ starts two ranks'
says out '^(ok|warn) +shared memory '
expect 0 "$doctor" --format json
python3 - "$work/out" "$subjects" <<'PY' || fail "the JSON: $(<"$work/out")"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["farandole_doctor"] == 1
assert [check["subject"].replace(" ", "-") for check in report["checks"]] == sys.argv[2].split()
for check in report["checks"]:
    assert check["health"] in ("ok", "warn", "fail") and check["finding"]
    assert (check["remedy"] is None) == (check["health"] == "ok"), check
PY

# Without mpirun no run starts here.
mkdir bare
ln -s "$(command -v env)" bare/env
expect 1 env PATH="$work/bare" "$doctor"
says out '^fail +MPI +mpirun is not in PATH'
says out '→ install Open MPI'
says out 'checks? fail'
# Without Slurm's configuration, srun does not say its version.
mkdir slurm
printf '#!/bin/sh\nexit 1\n' | tee slurm/srun >slurm/sinfo
chmod +x slurm/*
expect 0 env PATH="$work/slurm:$PATH" "$doctor"
says out '^warn +Slurm +srun exists, but no controller answers sinfo$'
# Without PMIx, mpirun starts the ranks.
printf '#!/bin/sh\n[ "$1" != --mpi=list ] && echo slurm 22.05.8 || echo none\n' | tee slurm/srun >slurm/sinfo
expect 0 env PATH="$work/slurm:$PATH" "$doctor"
says out '^warn +Slurm +srun 22.05.8 does not support PMIx'
# One core is enough to see whether ranks start.
expect 0 env -u OMPI_MCA_rmaps_base_oversubscribe taskset -c "$(taskset -cp $$ | grep -oE '[0-9]+$')" "$doctor"
says out '^ok +MPI .* starts two ranks$'
# Few descriptors.
(ulimit -S -n 300 && expect 0 "$doctor" && says out '^warn +limits +open files 300' && exit $failures) || fail "ulimit -n"
expect 64 "$doctor" --format xml
expect 64 "$doctor" run another
exit $((failures > 0))
