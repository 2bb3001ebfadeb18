# Sourced by the tests of this folder. Skips the test if no Slurm sandbox can run; otherwise starts one with $hosts
# hosts of $cpus CPUs and stops it at the end. Sets $sandbox, and the variables of tests/launch/expect.sh, and goes to $work.
# $needs: the test is skipped if this program is not built.
set -uo pipefail
: "${FARANDOLE_SOURCE:=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../..}"
skip() { echo "skipped: $*"; exit 77; }

sandbox=${FARANDOLE_SLURM_SANDBOX:-$FARANDOLE_SOURCE/../shared/slurm-sandbox/slurm-sandbox}
[[ -x $sandbox ]] || skip "no Slurm sandbox; name its script in FARANDOLE_SLURM_SANDBOX"
((EUID == 0)) || skip "the Slurm sandbox needs root"
unshare --net --uts --ipc --mount --pid --fork true 2>/dev/null || skip "no namespaces can be made here"

source "$FARANDOLE_SOURCE/tests/launch/expect.sh"
[[ -z ${needs:-} || -x $bin/$needs ]] || skip "$needs is not built"
source "$FARANDOLE_SOURCE/tests/slurm/number.sh"
take_number || skip "no number for the sandbox"
export SLURM_SANDBOX_DIR=$work/sandbox
# Open MPI names its files in TMPDIR after host, user and job, and every sandbox has a job 1 on a host node1.
mkdir -m 1777 "$work/tmp"
export TMPDIR=$work/tmp
stop_sandbox() {
  "$sandbox" down
  remove_links
  rm -rf "$work"
}
trap stop_sandbox EXIT
trap 'exit 1' INT TERM
"$sandbox" up --hosts "$hosts" --cpus "${cpus:-2}" ${gpus:+--gpus "$gpus"} >"$work/up" 2>&1 || skip "the Slurm sandbox does not come up: $(tail -n 3 "$work/up")"
eval "$("$sandbox" env)"
unset OMP_NUM_THREADS
export PATH=$bin:$PATH
cd "$work" || exit 1

# Open MPI 4.1 sometimes crashes in MPI_Init if ranks of several hosts start under load: with srun unless SLURM_PMIX_FENCE is
# set, as `farandole run` does. Over TCP it also sometimes fails ("connect() … failed") if two ranks connect to each other at
# the same time. With an odd number of ranks, or two, MPI_Init can be told to open each connection from one side only.
over_tcp() { export SLURM_PMIX_FENCE=ring OMPI_MCA_btl=self,tcp OMPI_MCA_mpi_preconnect_mpi=1; }

# For the job $job, whose output is in out.$job.
state() { scontrol show job "$job" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'; }
# until_true SECONDS COMMAND...: waits up to four times as long, because the machine may be busy.
until_true() {
  for ((i = 0; i < $1 * 20; i++)); do "${@:2}" && return; sleep 0.2; done
  fail "in vain for $1 s: ${*:2}; job is $(state): $(tail -n 5 "out.$job")"
}
