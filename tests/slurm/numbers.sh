#!/usr/bin/env bash
# Concurrent sandboxes use different network numbers, even if their scripts have equal process ids, as in containers. A
# fake sandbox is used, because only the choice of the number is tested.
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
if [[ -n ${NUMBERS_WORK:-} ]]; then  # one of the sandboxes: says its number, and stays until it is told to end
  hosts=1
  source "$here/sandbox.sh"
  echo "$SLURM_SANDBOX_NET $SLURM_SANDBOX_BRIDGE $SLURM_SANDBOX_PORT" >"$NUMBERS_WORK/numbers"
  read -r <"$NUMBERS_WORK/end"
  exit 0
fi
source "$here/../launch/expect.sh"
((EUID == 0)) && unshare --pid --fork --mount-proc true 2>/dev/null || { echo "skipped: no namespaces can be made here"; exit 77; }
printf '#!/bin/sh\n' >"$work/sandbox"
chmod +x "$work/sandbox"
mkfifo "$work/end" "$work/numbers"
exec {end}<>"$work/end" {numbers}<>"$work/numbers"

together=5 taken=()
for ((i = 0; i < together; i++)); do
  NUMBERS_WORK=$work FARANDOLE_SLURM_SANDBOX=$work/sandbox unshare --pid --fork --mount-proc "${BASH_SOURCE[0]}" >>"$work/log" 2>&1 &
done
for ((i = 0; i < together; i++)); do
  read -rt 20 -u "$numbers" number || { fail "only $i of $together sandboxes have a number: $(<"$work/log")"; break; }
  taken+=("$number")
done
for ((i = 0; i < together; i++)); do echo >&"$end"; done
wait
for column in 1 2 3; do
  [[ $(printf '%s\n' "${taken[@]}" | cut -d' ' -f$column | sort -u | wc -l) == "$together" ]] || fail "numbers are shared: ${taken[*]}"
done
exit $((failures > 0))
