#!/usr/bin/env bash
# Several launchers at once: each mpirun has a session folder of its own, and none stays, also of a launcher that is killed.
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
unset "${!SLURM_@}" "${!OMPI_MCA_orte_@}" "${!PRTE_MCA_@}"
export TMPDIR=$work/tmp
mkdir "$TMPDIR"
mkfifo "$work/sessions" "$work/end"
exec {sessions}<>"$work/sessions" {end}<>"$work/end"
# A rank that says where its job's session files are, and stays until it is told to end.
rank="echo \"\$OMPI_COMM_WORLD_RANK \${PMIX_SERVER_TMPDIR:-none}\" >$work/sessions; read -r line <$work/end"

together=4 folders=() launchers=()
for ((i = 0; i < together; i++)); do
  "$bin/farandole" run -n 1 sh -c "$rank" >>"$work/log" 2>&1 {sessions}>&- {end}>&- &
  launchers+=($!)
done
for ((i = 0; i < together; i++)); do
  read -rt 60 -u "$sessions" number folder || { fail "only $i of $together jobs have started: $(<"$work/log")"; break; }
  folder=${folder#"$TMPDIR"/}
  folders+=("${folder%%/*}")
done
for ((i = 0; i < together; i++)); do echo >&"$end"; done
for launcher in "${launchers[@]}"; do wait "$launcher" || fail "a job ended with $?: $(<"$work/log")"; done
[[ $(printf '%s\n' "${folders[@]}" | sort -u | grep -c '^farandole-') == "$together" ]] || fail "session folders are shared: ${folders[*]}"
[[ -z $(ls "$TMPDIR") ]] || fail "left behind: $(ls "$TMPDIR")"

"$bin/farandole" run -n 1 sh -c "$rank" >>"$work/log" 2>&1 {sessions}>&- {end}>&- &
launcher=$!
read -rt 60 -u "$sessions" number folder || fail "the job to be killed has not started: $(<"$work/log")"
mpirun=$(pgrep -P $launcher -x mpirun) || fail "the launcher has no mpirun"
{ kill -KILL $launcher; wait $launcher; } 2>/dev/null
echo >&"$end"
tail --pid="$mpirun" -f /dev/null
[[ -n $(ls "$TMPDIR") ]] || fail "a killed launcher has removed its folder"
expect 0 "$bin/farandole" run -n 1 true
[[ -z $(ls "$TMPDIR") ]] || fail "a killed launcher's folder stays: $(ls -R "$TMPDIR")"

# In a Slurm job, the session is beside the logs.
logs=$work/logs
expect 0 env SLURM_JOB_ID=1 SLURM_JOB_END_TIME=9999999999 "$bin/farandole" run --local -n 1 --log-dir "$logs" sh -c 'echo printed'
grep -qx printed "$work/out" || fail "no output of a job in Slurm"
[[ -z $(ls "$TMPDIR") && -z $(ls "$logs" | grep -v '^rank') ]] || fail "left behind: $(ls "$TMPDIR" "$logs")"
exit $((failures > 0))
