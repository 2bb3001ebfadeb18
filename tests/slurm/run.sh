#!/usr/bin/env bash
# farandole run in real Slurm jobs on two hosts of a sandbox, which this test starts and stops.
hosts=2
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
source "$(dirname "${BASH_SOURCE[0]}")/batch.sh"

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

# Without PMIx and mpirun, the ranks meet in a file that all of them see.
mkdir bare
ln -s /usr/bin/* bare
rm -f bare/{mpirun,mpiexec,orterun}*
ln -sf "$(command -v srun)" bare/true-srun
rm -f bare/srun
printf '#!/bin/bash\n[[ $1 == --mpi=list ]] && exec echo none\n[[ " $* " == *" --mpi=none "* ]] || exit 9\nexec true-srun "$@"\n' >bare/srun
chmod +x bare/srun
script "PATH=$bin:$work/bare
farandole run -- sh -c 'if [ \$SLURM_PROCID = 0 ]; then echo here >\$FARANDOLE_MEETING; fi
  until [ -e \$FARANDOLE_MEETING ]; do sleep 0.1; done; echo \$RANK of \$WORLD_SIZE: \$(cat \$FARANDOLE_MEETING) in \${FARANDOLE_MEETING%/*/*}'"
batch 60 -N2 --ntasks-per-node=2 job.sbatch
is 0
for r in 0 1 2 3; do says out "^$r of 4: here in $work\$"; done
! compgen -G 'farandole-*' || fail "the launcher's folder was left behind"

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
exit $((failures > 0))
