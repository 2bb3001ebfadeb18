#!/usr/bin/env bash
# A job step in which one task runs another program: the others would wait for it for ever. The other ranks of its host say so and end.
hosts=2 needs=session_program
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
step=(timeout 300 srun --quiet --mpi=pmix --nodes=2 --ntasks=4 --overcommit --kill-on-bad-exit=1 --multi-prog programs)

# The task has ended. Its host's other task ends with 64. Slurm then ends the tasks of the other host by a signal, which becomes
# the exit code of srun.
printf '0-2 %s world\n3 /bin/true\n' "$bin/session_program" >programs
expect 143 "${step[@]}"
says err "node2: task 2: Exited with exit code 64"
says err '^farandole: \[rank 2\] rank 3 of this job has ended on node2 before the ranks have met, so the others cannot start; all ranks of a job must start the same program'

# The task goes on. A start is not called stalled before 30 s.
printf '0-2 %s world\n3 /bin/sleep 600\n' "$bin/session_program" >programs
FARANDOLE_STALL_SECONDS=1 "${step[@]}" >out 2>err &
srun=$! job=none
until_true 100 grep -q '^farandole: \[rank 0\] stall: the ranks of the job have not met on node1 for [0-9.]* s: all ranks of this host wait (ranks 0, 1), so a rank of another host has not come' err
until_true 100 grep -q '^farandole: \[rank 2\] stall: the ranks of the job have not met on node2 for [0-9.]* s: on this host, rank 3 runs sleep; all ranks of a job must' err
scancel --user=root
wait $srun
exit $((failures > 0))
