#!/usr/bin/env bash
# The tests of collectives on 5 ranks of 3 hosts (2 + 2 + 1): ranks in order, ranks in round-robin order, and on a slow
# network; also their clocks.
hosts=3 needs=comm_mpi_test
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
over_tcp
export OMP_NUM_THREADS=1

# on_hosts TITLE DISTRIBUTION FILTER: all ranks pass these tests, with the layout of the title.
on_hosts() {
  timeout 300 srun -N3 -n5 --overcommit --mpi=pmix --distribution="$2" "$bin/${program:-comm_mpi_test}" --gtest_filter="$3" >out 2>&1 \
    || fail "$1: exit code $?
$(grep -vE '^\[ *(OK|RUN|-+|=+)' out | head -n 20)
[...]
$(grep -vE '^\[ *(OK|RUN|-+|=+)' out | tail -n 20)"
  grep -qE 'PASSED.* [1-9][0-9]* test' out || fail "$1: no test has passed"
}
# A busy machine must not decide which communicator is tested. How ranks of one host wait for each other is tested by comm.mpi-N; to
# spin, they would need a core each.
export FARANDOLE_TRANSPORT=hierarchical
on_hosts "2 + 2 + 1 ranks" block '*/Yielding:Groups.*:RankLayout.*'
[[ $(srun -N3 -n5 --overcommit --distribution=block hostname | sort | uniq -c | tr -s ' \n' ' ') == ' 2 node1 2 node2 1 node3 ' ]] \
  || fail "the ranks do not lie 2 + 2 + 1"
on_hosts "ranks dealt in turns" cyclic '*/Yielding:Groups.*:RankLayout.*'
FARANDOLE_TRANSPORT=mpi on_hosts "MPI's collectives" cyclic '*/Yielding'
on_hosts "made-up nodes across hosts" block '*RandomReductions*/Cyclic:*Broadcast*/Pairs:*ReduceScatter*/OneAlone'
# FARANDOLE_TEST_RESIDUAL_US=20 also checks the clock error, on a quiet machine.
on_hosts "clocks of three hosts" block 'Clocks.*'
# The program needs LibTorch.
[[ ! -x $bin/train_mpi_test ]] || program=train_mpi_test on_hosts "shared parameters" block 'Sharding.*'
unset FARANDOLE_TRANSPORT
for n in 1 2 3; do
  "$sandbox" exec "node$n" tc qdisc add dev eth0 root tbf rate 1gbit burst 128kb latency 50ms || skip "the network cannot be slowed"
done
on_hosts "a slow network" block '*RandomReductions*/Yielding:*Bitwise*/Yielding:*OtherCount*/Yielding'
exit $((failures > 0))
