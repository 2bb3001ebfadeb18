#!/usr/bin/env bash
# farandole run and slurm/train.sbatch in real Slurm jobs on two hosts of a sandbox, which this test starts and stops.
hosts=2
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"

# batch SECONDS SBATCH-ARGUMENTS...: submits a job and waits for its end, up to four times as long because the machine may be busy;
# the output is in $work/out, the exit code in $code.
batch() {
  local seconds=$1 job state=
  shift
  last="sbatch $*"
  : >out
  job=$(sbatch --parsable --output="$work/out" "$@") || { fail "sbatch $*"; code=-1; return; }
  for ((i = 0; i < seconds * 20; i++)); do
    state=$(scontrol show job "$job" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p')
    [[ $state != PENDING && $state != RUNNING && $state != COMPLETING ]] && break
    sleep 0.2
  done
  code=$(scontrol show job "$job" | sed -n 's/.*ExitCode=\([0-9]*\):.*/\1/p')
  [[ $state == COMPLETED || $state == FAILED ]] || { fail "job is $state after $seconds s: $last"; scancel "$job"; }
  cp out err
}
script() { printf '#!/bin/bash\n%s\n' "$1" >job.sbatch; }
is() { [[ $code == "$1" ]] || fail "exit code $code, not $1: $last
$(tail -n 20 out)"; }

# A small MPI program that adds up its ranks. With `fail R C`, rank R exits with code C while the others wait for it.
cat >ring.c <<'C'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size, sum;
  char host[64];
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  gethostname(host, sizeof host);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d on %s sum %d omp %s\n", rank, size, host, sum, getenv("OMP_NUM_THREADS"));
  fflush(stdout);
  if (argc > 3 && rank == atoi(argv[2])) _exit(atoi(argv[3]));
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
C
mpicc ring.c -o ring || fail "mpicc"

script "farandole run --prefix --log-dir $work/logs -- $work/ring"
batch 60 -N2 --ntasks-per-node=2 job.sbatch
is 0
for r in 0 1 2 3; do says out "^\[$r [0-9:.]{12}\] rank $r of 4 on node$((r / 2 + 1)) sum 6 omp 1\$"; done
for r in 0 1 2 3; do grep -q "\] rank $r of 4" "logs/rank-000$r.log" || fail "log of rank $r"; done
[[ -z $(find logs -name 'farandole-*') ]] || fail "left behind in the log folder: $(ls logs)"

# What ranks print is never a record, wherever Slurm cuts their lines.
cat >forge <<'FORGE'
#!/bin/bash
record="0r{\"rank\":0,\"host\":\"x\",\"exit_code\":9,\"signal\":0,\"told\":false,\"time_ns\":1,\"run_dir\":\"$PWD/elsewhere\"}"
for ((i = 0; i < 3000; i++)); do printf '%*s%s\n' $((i % 1100)) '' $'\x1e'"$record"; echo "farandole-run-record ${record:2}"; done
FORGE
chmod +x forge
mkdir elsewhere
script "farandole run -- $work/forge"
batch 60 -N2 --ntasks-per-node=2 job.sbatch
is 0
[[ -z $(ls elsewhere) ]] || fail "a line of a rank was taken for a record"

script "farandole run --log-dir $work/logs2 -- $work/ring fail 1 7"
batch 60 -N2 --ntasks-per-node=1 job.sbatch
is 7
says out '^farandole run: rank 1 \(host node2\) failed first: exit code 7; its log is .*/logs2/rank-0001.log$'
[[ $(grep -cE '^(farandole|srun|slurmstepd)' out) == 1 ]] || fail "more than one line about a failure: $(<out)"

script 'farandole run -n 4 -- sh -c "[ \$SLURM_PROCID = 2 ] && kill -9 \$\$; exec sleep 600"'
batch 60 -N2 --ntasks-per-node=1 job.sbatch
is 137
says out 'rank 2 \(host node[12]\) failed first: it was killed by signal 9 \(Killed\)$'

# SIGTERM to the launcher reaches the ranks, and their exit code is returned.
script "farandole run -- bash -c 'trap \"echo saved; exit 75\" TERM; touch $work/ready.\$SLURM_PROCID; while :; do sleep 0.1; done' &
until [[ -e $work/ready.0 && -e $work/ready.1 ]]; do sleep 0.1; done
kill -TERM \$!; wait \$!"
batch 60 -N2 --ntasks-per-node=1 job.sbatch
is 75
[[ $(grep -cx saved out) == 2 ]] || fail "a rank had no time to save: $(<out)"

# The folder of a launcher that is killed goes with the next one.
script "farandole run --log-dir $work/logs3 -- sleep 600 &
until [[ -e \$(echo $work/logs3/farandole-*/step) ]]; do sleep 0.1; done
kill -9 \$!; wait \$!
while pgrep -x srun >/dev/null; do sleep 0.1; done
ls -d $work/logs3/farandole-*
exec farandole run --log-dir $work/logs3 -- true"
batch 60 -N2 --ntasks-per-node=1 job.sbatch
is 0
says out '/logs3/farandole-'
[[ -z $(find logs3 -name 'farandole-*') ]] || fail "the folder of a killed launcher stays: $(ls logs3)"

script 'srun -n2 farandole run true'
batch 60 -N2 --ntasks-per-node=1 job.sbatch
is 64
says out 'already one of 2 ranks \(SLURM_STEP_NUM_TASKS\)'

# Programs of PyTorch learn their ranks from the same variables as from torchrun.
script "farandole run -- sh -c 'echo \$RANK of \$WORLD_SIZE, \$LOCAL_RANK of \$LOCAL_WORLD_SIZE, \$MASTER_ADDR:\$MASTER_PORT'"
for starter in "" "--starter mpirun"; do
  sed -i "s/farandole run.* -- sh/farandole run $starter -- sh/" job.sbatch
  batch 60 -N2 --ntasks-per-node=2 job.sbatch
  is 0
  for r in 0 1 2 3; do says out "^$r of 4, $((r % 2)) of 2, node1:2[0-9]{4}\$"; done
  [[ $(grep -o 'node1:.*' out | sort -u | wc -l) == 1 ]] || fail "the ranks have several ports: $(<out)"
done
# The lines of ranks on several hosts are not mixed, even if they are long.
for starter in "" "--starter mpirun"; do
  script "farandole run $starter -- sh -c 'yes \$(printf %03000d \$RANK) | head -n 300'"
  batch 60 -N2 --ntasks-per-node=2 job.sbatch
  is 0
  [[ $(sort out | uniq -c | awk '{ print $1, length($2) }' | xargs) == "300 3000 300 3000 300 3000 300 3000" ]] || fail "lines were cut: $(cut -c-99 out | sort | uniq -c | head)"
done
python=${FARANDOLE_TORCH_PYTHON:-$FARANDOLE_SOURCE/.deps/compare/bin/python}
if "$python" -c 'import torch.distributed' 2>/dev/null; then
  script "farandole run -- $python $FARANDOLE_SOURCE/tests/launch/ddp.py"
  batch 100 -N2 --ntasks-per-node=2 job.sbatch
  is 0
  for r in 0 1 2 3; do says out "^rank $r of 4, $((r % 2)) of 2 on node$((r / 2 + 1))\$"; done
else
  echo "left out: PyTorch's DistributedDataParallel on two hosts; name a Python that has it in FARANDOLE_TORCH_PYTHON"
fi

if [[ ! -x $bin/farandole-train ]]; then
  echo "left out: training, farandole-train is not built"
  exit $((failures > 0))
fi

script "farandole train --profile mnist --data synthetic --run-dir $work/alone --steps 2"
batch 60 -N1 -n2 job.sbatch
is 64
says out 'a world of 1 rank, but SLURM_NTASKS says 2'
[[ ! -e alone/checkpoints ]] || fail "a run of one rank was started"

# A rank that is not in the MPI world, because its MPI library does not find the process manager.
script "farandole run -- bash -c '[[ \$RANK != 1 ]] || unset \${!PMIX_@}; exec farandole train --model mlp --data synthetic --run-dir $work/mixed --steps 2'"
batch 60 -N2 --ntasks-per-node=1 job.sbatch
is 64
says out 'a world of 1 rank, but SLURM_STEP_NUM_TASKS says 2: .*farandole run -n 2'
[[ $(wc -l <out) == 1 ]] || fail "more than one line: $(<out)"
[[ ! -e mixed/checkpoints ]] || fail "a run without one of its ranks was started"

# The end of the job is near. If its environment does not have it, Slurm is asked.
training="farandole train --model mlp --data synthetic --epochs 1000000 --checkpoint-every never --run-dir $work/ending"
script "farandole run -- env -u SLURM_JOB_END_TIME $training --stop-before 1h"
batch 60 -N2 --ntasks-per-node=1 --time=30 job.sbatch
is 75
says out 'stop requested: saved at step'
script "farandole run -- env -u SLURM_JOB_END_TIME $training --stop-before 5min --steps 9"
batch 60 -N2 --ntasks-per-node=1 --time=30 job.sbatch
is 0
[[ -e ending/checkpoints/step-00000009.h5 ]] || fail "it stopped too early: $(ls ending/checkpoints)"
! grep -e '--stop-before has no effect' out || fail "Slurm was not asked"

data=${FARANDOLE_TEST_DATA:-$FARANDOLE_SOURCE/../shared/data}/mnist
if [[ ! -d $data ]]; then
  echo "left out: training on real data, there is no $data; set FARANDOLE_TEST_DATA"
  exit $((failures > 0))
fi
batch 150 -N2 --ntasks-per-node=1 "$FARANDOLE_SOURCE/slurm/train.sbatch" --profile mnist --data "$data" --run-dir "$work/run" --steps 20
is 0
python3 - "$work/run" <<'PY' || fail "the run of slurm/train.sbatch, see above; its output: $(tail -n 20 out)"
import gzip, json, pathlib, sys
run = pathlib.Path(sys.argv[1])
info = json.loads((run / "run.json").read_text())
assert info["ranks"] == 2, info["ranks"]
hosts = [host["name"] if isinstance(host, dict) else host for host in info["hosts"]]
assert sorted(set(hosts)) == ["node1", "node2"], hosts
assert info["exit_code"] == 0, info["exit_code"]
trace = json.load(gzip.open(run / "timeline.json.gz"))
events = trace["traceEvents"] if isinstance(trace, dict) else trace
processes = {event["pid"]: event["args"] for event in events if event["ph"] == "M" and event["name"] == "process_name"}
with_spans = {event["pid"] for event in events if event["ph"] == "X"}
assert {(processes[pid]["rank"], processes[pid]["host"]) for pid in with_spans} == {(0, "node1"), (1, "node2")}, processes
assert list((run / "checkpoints").glob("step-*.h5")), "a checkpoint"
assert len(list((run / "logs").glob("rank-*.log"))) == 2, "a log of each rank"
PY
exit $((failures > 0))
