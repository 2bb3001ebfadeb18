#!/usr/bin/env bash
# farandole run on one machine: exit codes, the first failing rank, logs and signals. No files remain. With the argument own, there is
# no mpirun in PATH, so that farandole run starts the ranks itself.
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT "${!SLURM_@}"
export TMPDIR=$work/tmp MARK=farandole-test-$$ PATH=$bin:$PATH
mkdir "$TMPDIR"
own=${1:-}
if [[ $own ]]; then
  mkdir "$work/programs"
  ln -s /usr/bin/* "$work/programs"
  rm -f "$work"/programs/{mpirun,mpiexec,orterun}*
  PATH=$bin:$work/programs
fi
run=("$bin/farandole" run)
rank='[ "$RANK" =' # e.g. $rank 1 ]

# Ranks, threads, streams.
for n in 1 3; do
  expect 0 "${run[@]}" -n $n -- sh -c 'echo "rank $RANK of $WORLD_SIZE"; echo oops >&2'
  [[ $(sort "$work/out" | xargs) == "$(for ((i = 0; i < n; i++)); do echo "rank $i of $n"; done | xargs)" ]] || fail "ranks of -n $n"
  [[ $(grep -cx oops "$work/err") == "$n" ]] || fail "stderr of -n $n"
done
for all in all -1; do expect 0 "${run[@]}" -n $all sh -c 'echo $OMP_NUM_THREADS'; done
[[ $(wc -l <"$work/out") -ge 1 && $(sort -u "$work/out") == 1 ]] || fail "-n -1: one thread on each core"
# As users of srun and mpirun write it.
for ranks in "-np 2" "-N1 -n 2"; do
  expect 0 "${run[@]}" $ranks sh -c 'echo $WORLD_SIZE'
  [[ $(xargs <"$work/out") == "2 2" ]] || fail "$ranks: $(<"$work/out")"
done
expect 64 "${run[@]}" -N2 true
says err '^farandole run: -N 2: without a Slurm job, all ranks are on this machine; '
expect 0 env OMP_NUM_THREADS=7 "${run[@]}" sh -c 'echo $OMP_NUM_THREADS'
says out '^7$'
expect 0 "${run[@]}" -n 2 farandole --version
[[ $(wc -l <"$work/out") == 2 ]] || fail "farandole is in PATH of the ranks"
expect 0 "${run[@]}" -n 3 --prefix -n 1 sh -c 'echo $WORLD_SIZE'
says out '\] 1$'
"${run[@]}" -n 1 printf 'a\nb\n' >/dev/full 2>"$work/err" || fail "output for a full disk: exit code $?"
says err '^farandole run: 2 lines of output are lost, because stdout is on a full disk$'
echo input | expect 0 "${run[@]}" -n 1 cat
says out '^input$'

# Two programs at once use two ports. A port of the user's stays.
expect 0 env MASTER_PORT=123 MASTER_ADDR=here "$bin/farandole" run -- sh -c 'echo $MASTER_ADDR:$MASTER_PORT'
says out '^here:123$'
ports() { "$bin/farandole" run -- sh -c 'echo $MASTER_ADDR:$MASTER_PORT'; }
expect 0 bash -c "$(declare -f ports); bin=$bin; ports & ports; wait"
[[ $(grep -cE '^127\.0\.0\.1:2[0-9]{4}$' "$work/out") == 2 && $(sort -u "$work/out" | wc -l) == 2 ]] || fail "ports: $(<"$work/out")"

if [[ ! $own ]]; then
# Open MPI binds each rank to one core.
expect 0 env -u OMP_NUM_THREADS OMPI_MCA_hwloc_base_binding_policy=core "$bin/farandole" run -n 1 -- sh -c 'echo $OMP_NUM_THREADS of $(nproc)'
threads=$(sed 's/ of.*//' "$work/out")
[[ $(<"$work/out") == "$threads of $threads" ]] || fail "threads of a bound rank: $(<"$work/out")"
fi

# Lines are not mixed, even if many ranks write at once.
expect 0 "${run[@]}" -n 4 -- sh -c 'yes "$RANK$RANK-0123456789-0123456789-0123456789" | head -n 50000'
[[ $(sort "$work/out" | uniq -c | awk '{ print $1 }' | xargs) == "50000 50000 50000 50000" ]] || fail "lines were cut"

# Long lines and any bytes come through, too.
expect 0 "${run[@]}" -n 4 -- sh -c 'for i in $(seq 20); do head -c 20000 /dev/zero | tr "\0" "$RANK"; echo; done'
[[ $(sort "$work/out" | uniq -c | awk '{ print $1, length($2) }' | xargs) == "20 20000 20 20000 20 20000 20 20000" ]] || fail "long lines were cut"
head -c 300000 /dev/urandom >"$work/bytes"
expect 0 "${run[@]}" cat "$work/bytes"
cmp "$work/bytes" "$work/out" || fail "bytes were changed"

# Prefix and logs.
expect 0 "${run[@]}" -n 2 --prefix --log-dir "$work/logs" sh -c 'echo hello; printf end >&2'
says out '^\[1 [0-9:.]{12}\] hello$'
says err '^\[0 [0-9:.]{12}\] end$'
for r in 0 1; do grep -q '\] end$' "$work/logs/rank-000$r.log" || fail "log of rank $r"; done

expect 0 "${run[@]}" --report true
says err '^farandole run: there is no report, because the program has no run directory; add --run-dir$'
(cd "$work" && expect 64 "${run[@]}" -n 1 --run-dir -- true)
[[ ! -e $work/-- ]] || fail "a folder named --"

# The rank that failed first.
expect 3 "${run[@]}" -n 3 sh -c "$rank 1 ] && exit 3; exec sleep 600"
[[ $(wc -l <"$work/err") == 1 ]] || fail "one line on failure: $(<"$work/err")"
says err "^farandole run: rank 1 \(host $(hostname)\) failed first: exit code 3\$"
expect 137 "${run[@]}" -n 2 --log-dir "$work/logs" sh -c "$rank 1 ] && kill -9 \$\$; exec sleep 600"
says err 'rank 1 .* was killed by signal 9 \(Killed\); its log is .*/logs/rank-0001.log$'
for code in 70 255; do
  expect $code "${run[@]}" -n 2 sh -c "exit $code"
  says err "exit code $code"
done
# A rank that lost a peer can end before that peer has.
expect 3 "${run[@]}" -n 2 sh -c "$rank 0 ] && { echo \$\$ >$work/pid.new; mv $work/pid.new $work/pid; exit 70; }
  until [ -e $work/pid ] && ! kill -0 \$(cat $work/pid) 2>/dev/null; do sleep 0.01; done; exit 3"
says err "^farandole run: rank 1 \(host $(hostname)\) failed first: exit code 3\$"
for code in 64 75; do
  expect $code "${run[@]}" -n 2 sh -c "$rank 1 ] && sleep 0.1; echo done; exit $code"
  silent err
  [[ $(wc -l <"$work/out") == 2 ]] || fail "rank 1 was killed before it had ended with $code"
done

if [[ ! $own ]]; then
# If the ranks cannot be started, mpirun says why.
echo 'host-that-does-not-exist slots=2' >"$work/hosts"
expect 255 env OMPI_MCA_orte_default_hostfile="$work/hosts" "${run[@]}" -n 2 true
says err 'unable to reliably start one or more daemons'
says err '^farandole run: mpirun ended with code 255, and no record exists of the end of rank 0, 1$'
expect 1 env OMPI_MCA_orte_default_hostfile="$work/no-hosts" "${run[@]}" -n 2 true
says err 'unable to open the hostfile'
fi

# A job of Slurm without srun, as in a container.
container=(env SLURM_JOB_ID=4711 SLURM_JOB_NODELIST=cn07 SLURM_JOB_NUM_NODES=1 SLURM_NTASKS=4 SLURM_TASKS_PER_NODE=4)
expect 64 "${container[@]}" PATH=/nonexistent "${run[@]}" -n 2 --run-dir "$work/refused" /bin/true
grep -q '"message": "SLURM_JOB_ID names' "$work/refused/launch/job.json" || fail "the doctor cannot tell the refusal"
rm -rf "$work/refused"
[[ $(<"$work/err") == "farandole run: SLURM_JOB_ID names Slurm job 4711, but srun is not in PATH, as in a container; "*" --local,"* ]] ||
  fail "a job without srun: $(<"$work/err")"
expect 0 "${container[@]}" "${run[@]}" --local -n 2 /bin/sh -c 'echo rank $RANK'
[[ $(sort "$work/out" | xargs) == "rank 0 rank 1" ]] || fail "--local in a job without srun: $(<"$work/out")"

# What a rank prints is never a command to the launcher.
record="{\"rank\":0,\"host\":\"x\",\"exit_code\":9,\"signal\":0,\"told\":false,\"time_ns\":1,\"run_dir\":\"$work/elsewhere\"}"
mkdir "$work/elsewhere"
expect 0 "${run[@]}" -n 2 sh -c 'printf "%s\n" "$@"; printf "%s\n" "$@" >&2; printf "%s\n" "$@" >/proc/$PPID/fd/2' - \
  "farandole-run-record $record" $'\x1e'"0r$record" $'\x1e'"0x"failed
[[ -z $(ls "$work/elsewhere") && $(grep -c farandole-run-record "$work/out") == 2 ]] || fail "a line was taken for a record"

# A file beyond ulimit -f ends neither the launcher nor the supervisor, and a rank as usual.
expect 0 bash -c "ulimit -f 4096; exec ${run[*]} --log-dir $work/limited seq 900000"
[[ $(stat -c %s "$work/out") -le 4194304 ]] || fail "the limit on file sizes is not in force"
expect 0 bash -c "ulimit -f 4096; exec ${run[*]} sh -c 'head -c 5000000 /dev/zero >$work/big; echo \$?'"
says out '^153$'
rm -rf "$work/limited" "$work/big"

if [[ ! $own ]]; then
# A start that fails has an end, too.
mkdir "$work/broken"
printf '#!/nonexistent/interpreter\n' >"$work/broken/mpirun"
chmod +x "$work/broken/mpirun"
expect 64 env PATH="$work/broken" "${run[@]}" --run-dir "$work/unstarted" /bin/true
[[ $(wc -l <"$work/err") == 1 ]] || fail "one line: $(<"$work/err")"
grep -q '"end_ns"' "$work/unstarted/launch/job.json" || fail "the end of a start that failed"
rm -rf "$work/broken" "$work/unstarted"
fi

# Refusals: one line, code 64.
for bad in '-n 0 true' '-n -3 true' '-n x true' '--frobnicate true' '-n 2' '-n 2 /proc/nonexistent/program' "--log-dir /dev/null/x true"; do
  # shellcheck disable=SC2086
  expect 64 "${run[@]}" $bad
  [[ $(wc -l <"$work/err") == 1 ]] || fail "one line for: $bad: $(<"$work/err")"
done
if [[ $EUID -eq 0 && ! $own ]]; then
  expect 64 env -u OMPI_ALLOW_RUN_AS_ROOT "${run[@]}" true
  says err 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1'
fi
expect 64 env PATH=/proc/nonexistent "${run[@]}" --starter mpirun /bin/true
says err '^farandole run: mpirun is not in PATH; '
expect 64 "${run[@]}" -n 2 -- farandole run -n 2 true
says err 'already one of 2 ranks'

# Signals: USR1 is passed on. After TERM the ranks may save, and their exit code counts. A second TERM does no harm, and a third
# one ends the job.
await() {  # COMMAND...: until it succeeds, at most 120 s
  for ((i = 0; i < 2400; i++)); do "$@" && return; sleep 0.05; done
  fail "not in time: $*"
}
both_ready() { [[ -e $work/ready.0 && -e $work/ready.1 ]]; }
both_told() { [[ -e $work/told.0 && -e $work/told.1 ]]; }
has_warned() { grep -q 'a third one kills them' "$work/err"; }
has_ended() { ! kill -0 $launcher 2>/dev/null; }
start_ranks() {  # SCRIPT: two ranks, which run it and then wait for a signal
  rm -f "$work"/{ready,told}.* "$work/go"
  # A shell without job control ignores INT in background processes.
  env --default-signal=INT "${run[@]}" -n 2 bash -c "$1; touch $work/ready.\$RANK; while :; do sleep 0.05; done" >"$work/out" 2>"$work/err" &
  launcher=$!
  await both_ready
}
await_ranks() {
  wait $launcher
  code=$?
}
# mpirun would kill ranks that need longer than one second after TERM.
saves='trap "touch '$work'/told.\$RANK; until [[ -e '$work'/go ]]; do sleep 0.05; done; sleep 1.5; echo saved; exit 75" TERM'
last="signals"
start_ranks 'trap "echo saved; exit 75" USR1'
kill -USR1 $launcher
await_ranks
[[ $code == 75 && $(grep -c saved "$work/out") == 2 ]] || fail "USR1: $code"
start_ranks "$saves"
kill -TERM $launcher
await both_told
touch "$work/go"
await_ranks
[[ $code == 75 && $(grep -c saved "$work/out") == 2 ]] || fail "TERM: $code, $(<"$work/out")"
grep -q 'farandole run' "$work/err" && fail "a stop that was asked for is no failure: $(<"$work/err")"
start_ranks "$saves"
kill -TERM $launcher
await both_told
kill -TERM $launcher
await has_warned
touch "$work/go"
await_ranks
[[ $code == 75 && $(grep -c saved "$work/out") == 2 ]] || fail "two TERMs: $code, $(<"$work/out")"
# One of these signals is lost if the launcher has not run since the one before it.
start_ranks 'trap "" TERM'
ends_after_one_more() { kill -TERM $launcher 2>/dev/null; has_ended; }
await ends_after_one_more
await_ranks
[[ $code == 143 || $code == 137 || $code == 1 ]] || fail "many TERMs: $code"
start_ranks ':'
kill -INT $launcher
await_ranks
[[ $code == 130 ]] || fail "INT: $code, $(<"$work/err")"
rm -f "$work"/{ready,told}.* "$work/go"

# SIGUSR1 after the ranks have failed: there is no time for another start, and nothing is left to save.
rm -f "$work/go"
"${run[@]}" --max-restarts 3 bash -c "[[ ! -e $work/first ]] || exit 0; touch $work/first; until [[ -e $work/go ]]; do sleep 0.05; done; exit 3" \
  >"$work/out" 2>"$work/err" &
launcher=$!
await test -e "$work/first"
starter=$(pgrep -P $launcher)
kill -STOP $launcher
touch "$work/go"
is_zombie() { grep -q '^State:.*Z' "/proc/$starter/status"; }
await is_zombie
kill -USR1 $launcher
kill -CONT $launcher
await_ranks
[[ $code == 75 ]] || fail "SIGUSR1 between two starts: $code, $(<"$work/err")"
says err 'not started again, because SIGUSR1 asks them to save'

# A program with a run directory may be asked for a trace before it can answer.
expect 0 "${run[@]}" --run-dir "$work/traced" bash -c 'kill -USR2 $$; echo alive'
says out '^alive$'
expect 140 "${run[@]}" bash -c 'kill -USR2 $$'
rm -rf "$work/traced"

nohup "${run[@]}" sh -c "touch $work/ready.0; while [ ! -e $work/go ]; do sleep 0.05; done" </dev/null >/dev/null 2>&1 &
until [[ -e $work/ready.0 ]] || ! kill -0 $!; do sleep 0.05; done
kill -HUP $!
touch "$work/go"
wait $! || fail "nohup: $?"

# If the reader of the output ends, the job ends.
"${run[@]}" -n 2 yes "$MARK" 2>"$work/err" | head -n 1 >"$work/out"
says out "$MARK"
# The ranks have time to save, their ends are recorded, and they are not started again.
unread='echo start >>"$TMPDIR/starts"; trap "sleep 2; touch \"$TMPDIR/saved.$RANK\"; exit 75" TERM
while :; do echo line; sleep 0.1; done'
"${run[@]}" -n 2 --max-restarts 3 --run-dir "$work/unread" sh -c "$unread" 2>"$work/err" | head -n 3 >"$work/out"
[[ ${PIPESTATUS[0]} == 75 && -e $TMPDIR/saved.0 && -e $TMPDIR/saved.1 ]] || fail "a reader that has ended: $(<"$work/err")"
[[ $(wc -l <"$TMPDIR/starts") == 2 && $(ls "$work"/unread/launch/rank-*.json | wc -l) == 2 ]] || fail "starts and records: $(<"$work/err")"
says err '^farandole run: the reader of the output has ended, so the ranks are asked to end$'
rm "$TMPDIR/starts" "$TMPDIR"/saved.?

# The reader of the output stalls: logs and records are complete before it continues, and no line is lost.
mkfifo "$work/output"
exec {hold}<>"$work/output"
stalled() {  # PROGRAM...: starts it in a run directory, with an output that nobody reads
  rm -rf "$work/stalled"
  "${run[@]}" -n 2 --run-dir "$work/stalled" --log-dir "$work/stalled/logs" "$@" >"$work/output" 2>"$work/err" {hold}>&- &
  launcher=$!
}
is_recorded() { grep -q '"end_ns"' "$work/stalled/launch/job.json" 2>/dev/null; }
last="a stalled reader"
stalled seq 60000
await is_recorded
kill -0 $launcher || fail "the launcher did not wait for its reader"
head -n 120000 <&"$hold" | sort -n | uniq -c | awk '$1 != 2' >"$work/out"
silent out
wait $launcher || fail "the code of a job whose reader had stalled: $?"

# Beyond a bound, only the logs get the lines. A signal is served, and a second one ends the waiting.
rm -f "$work"/ready.*
stalled bash -c "seq 400000; touch $work/ready.\$RANK; exec sleep 600"
await both_ready
kill -TERM $launcher
await is_recorded
for r in 0 1; do grep -q '\] 400000$' "$work/stalled/logs/rank-000$r.log" || fail "the log of rank $r is incomplete"; done
kill -TERM $launcher
await has_ended
kill -KILL $launcher 2>/dev/null
wait $launcher
[[ $? == 143 ]] || fail "TERM with a stalled reader: $?"
rm -rf "$work"/ready.* "$work/stalled"
exec {hold}>&-

# A job that was stopped continues.
last="stop and continue"
rm -f "$work"/ready.* "$work/go"
"${run[@]}" -n 2 bash -c "touch $work/ready.\$RANK; until [[ -e $work/go ]]; do sleep 0.05; done; echo continued" >"$work/out" 2>"$work/err" &
launcher=$!
await both_ready
kill -TSTP $launcher
is_stopped() { [[ $(awk '{ print $3 }' /proc/$launcher/stat) == T ]]; }
await is_stopped
kill -CONT $launcher
touch "$work/go"
await has_ended
wait $launcher
[[ $? == 0 && $(grep -c continued "$work/out") == 2 ]] || fail "a job that was stopped: $(<"$work/err")"
rm -f "$work"/ready.* "$work/go"

# Without mpirun, the launcher itself starts the ranks, kills those that ignore SIGTERM after a failure, and keeps their records.
if [[ $own ]]; then
  expect 0 "${run[@]}" -n 2 sh -c 'echo $FARANDOLE_RANK/$FARANDOLE_SIZE $FARANDOLE_LOCAL_RANK/$FARANDOLE_LOCAL_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE
    [ ! -e $FARANDOLE_MEETING ] && touch $FARANDOLE_MEETING.$RANK'
  [[ $(sort "$work/out" | xargs) == "0/2 0/2 0/2 1/2 1/2 1/2" ]] || fail "variables of the ranks: $(<"$work/out")"
  echo input | expect 0 "${run[@]}" -n 2 cat
  [[ $(<"$work/out") == input ]] || fail "input of rank 0 only"
  expect 3 "${run[@]}" -n 3 --run-dir "$work/ignored" bash -c "trap '' TERM; touch $work/ready.\$RANK; $rank 1 ] || while :; do sleep 0.1; done
    until [[ -e $work/ready.0 && -e $work/ready.2 ]]; do sleep 0.1; done; exit 3"
  [[ $(wc -l <"$work/err") == 1 && $(grep -l '"signal":9' "$work"/ignored/launch/rank-*.json | wc -l) == 2 ]] || fail "ranks that ignore SIGTERM"
  rm -rf "$work"/ready.* "$work/ignored"
  expect 137 "${run[@]}" -n 2 --run-dir "$work/unsupervised" sh -c "$rank 1 ] && kill -9 \$PPID; exec sleep 600"
  [[ $(<"$work/err") == *"the supervisor of rank 1 was killed by signal 9 (Killed), and no record exists of the end of rank 1" ]] || fail "a killed supervisor: $(<"$work/err")"
  "$bin/farandole" doctor "$work/unsupervised" >"$work/out"
  says out 'Rank 1 on .* was killed together with its supervisor'
  rm -rf "$work/unsupervised"
  # With the launcher, the ranks end.
  start_ranks "trap '' TERM"
  mapfile -t supervisors < <(pgrep -P $launcher)
  { kill -KILL $launcher; wait $launcher; } 2>/dev/null
  for pid in "${supervisors[@]}"; do await bash -c "! kill -0 $pid 2>/dev/null"; done
  expect 0 "${run[@]}" true  # removes the folder
fi

# A background process of a rank ends with the rank.
expect 0 "${run[@]}" -n 2 sh -c "sleep 601 & echo started"
for pid in $(pgrep -x sleep); do
  tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "MARK=$MARK" && fail "process $pid was left behind: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
done
left=$(find "$TMPDIR" -name "farandole-*")
[[ -z $left ]] || fail "left behind: $left"
exit $((failures > 0))
