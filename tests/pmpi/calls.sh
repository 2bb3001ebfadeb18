#!/usr/bin/env bash
# farandole run --trace-mpi: the trace contains every MPI call of a program as it was made, and no call of Farandole itself.
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/../launch/expect.sh"
cd "$work" || exit 1
unset FARANDOLE_RUN_DIR "${!SLURM_@}"
# The sanitizers' runtime must be loaded first; directly after a preloaded library works too.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
run=("$bin/farandole" run)
# A program that does not use Farandole: calls, order, bytes, peers.
expect 0 "${run[@]}" -n 3 --run-dir run --trace-mpi "$bin/calling_program" .
silent err
expect 0 "$bin/farandole" timeline merge run
for r in 0 1 2; do
  python3 "$here/read_calls.py" run/timeline.json.gz $r >calls-$r
  diff "expected-$r" calls-$r >difference || fail "calls of rank $r, expected and recorded: $(<difference)"
done
expect 0 "$bin/farandole" analyze run
expect 0 "$bin/farandole" doctor run
says out 'ended normally'

# Without the option nothing is recorded.
expect 0 "${run[@]}" -n 3 --run-dir quiet "$bin/calling_program" .
[[ ! -e quiet/recorder ]] || fail "recorded without --trace-mpi: $(ls quiet/recorder)"

# A program with a session: its calls are inside its phases, and Farandole's calls appear only as collectives.
expect 0 "${run[@]}" -n 2 --run-dir session --trace-mpi "$bin/session_program" session
silent err
python3 - session/timeline.json.gz <<'PY' || fail "the session's trace"
import collections, gzip, json, sys
events = [e for e in json.load(gzip.open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"]
names = collections.Counter((e["pid"], e["name"]) for e in events)
assert names == {(pid, name): 5 for pid in (1, 2) for name in
                 ("step", "backward", "bucket 0", "MPI_Allreduce", "MPI_Send" if pid == 1 else "MPI_Recv")}, names
own = [e for e in events if e["name"] == "MPI_Allreduce"]
assert all(e["args"] == {"step": e["args"]["step"], "bytes": 8, "ranks": 2} for e in own), own
for e in own:
    around = [b for b in events if b["name"] == "backward" and b["pid"] == e["pid"] and b["args"]["step"] == e["args"]["step"]]
    assert around[0]["ts"] <= e["ts"] and e["ts"] + e["dur"] <= around[0]["ts"] + around[0]["dur"] + 0.001, (e, around)
assert all(e["tid"] == next(b["tid"] for b in events if b["pid"] == e["pid"] and b["name"] == "step") for e in own)
PY
expect 0 "$bin/farandole" analyze session

# Farandole's programs call no function that would be recorded, because it would appear twice.
library=$(find "$bin/.." -name libfarandole_pmpi.so | head -n 1)
nm -D --defined-only "$library" | awk '$3 ~ /^MPI_/ { print $3 }' | sort >recorded
[[ $(wc -l <recorded) -gt 170 ]] || fail "the library records $(wc -l <recorded) functions only"
for program in "$bin"/farandole-* "$library"; do
  nm -D --undefined-only "$program" | awk '{ print $2 }' | sort | comm -12 - recorded >calls
  [[ ! -s calls ]] || fail "$program calls $(xargs <calls)"
done
nm -D --defined-only "$library" | awk '$3 !~ /^(MPI_|farandole_trace_mpi_calls_3$)/ { print $3 }' >leaks
[[ ! -s leaks ]] || fail "the library shows $(xargs <leaks)"

# A program that is killed in a call: the doctor names the call.
expect 137 "${run[@]}" -n 3 --run-dir killed --trace-mpi "$bin/calling_program" . killed
expect 0 "$bin/farandole" doctor killed
says out "^Rank 2 .* was killed by signal 9"
says out "^ +0 .* (in|after) communication 'MPI_(Recv|Barrier)'"

# A program that forks and exits without MPI_Finalize.
expect 3 timeout 300 "${run[@]}" -n 1 --run-dir leaves --trace-mpi "$bin/calling_program" . leaves
expect 0 "$bin/farandole" timeline merge leaves

# A program with another MPI library runs as if nothing were preloaded.
cat >other.c <<'C'
#include <string.h>
int PMPI_Init(int* argc, char*** argv) { return 0; }
int PMPI_Finalize(void) { return 0; }
int PMPI_Get_library_version(char* version, int* length) { *length = (int)strlen(strcpy(version, "Another MPI 1")); return 0; }
int MPI_Init(int* argc, char*** argv) { return PMPI_Init(argc, argv); }
int MPI_Finalize(void) { return PMPI_Finalize(); }
C
echo 'int MPI_Init(int*, char***); int MPI_Finalize(void); int main() { return MPI_Init(0, 0) + MPI_Finalize(); }' >foreign.c
if cc -shared -fPIC other.c -o libother.so 2>/dev/null && cc foreign.c -o foreign -L. -lother -Wl,-rpath,"$work"; then
  expect 0 "${run[@]}" -n 2 --run-dir foreign.run --trace-mpi ./foreign
  says err "calls are not recorded: the program uses another MPI library than Open MPI"
fi

# Each refusal is one line.
expect 64 "${run[@]}" -n 2 --trace-mpi "$bin/calling_program" .
says err '^farandole run: --trace-mpi needs a run directory to record in; add --run-dir RUN$'
printf 'int main() {}' | cc -x c -static -o static - 2>/dev/null && {
  expect 64 "${run[@]}" -n 2 --run-dir run --trace-mpi ./static
  says err 'static, which is statically linked; link it dynamically$'
}

for folder in nothing run; do  # also if an earlier job has recorded there
  expect 0 "${run[@]}" -n 1 --run-dir $folder --trace-mpi true
  says err '^farandole run: --trace-mpi has recorded nothing: '
done

# If nothing can be recorded, the program runs anyway.
expect 0 "${run[@]}" -n 3 --log-dir logs env FARANDOLE_RUN_DIR=/proc/none LD_PRELOAD="$library" "$bin/calling_program" .
says err "^farandole: the program's MPI calls are not recorded: .*/proc/none"
exit $((failures > 0))
