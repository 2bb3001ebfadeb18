#!/usr/bin/env bash
# The mistakes of a first day, each on two ranks: the job ends, with the right exit code and one line that names the mistake and
# the rank. The rest of stderr is short and has no stacks.
source "$(dirname "$0")/../../trainer/common.sh"

# MISTAKE CODE RANK PATTERN: RANK begins the line, if only that rank knows; "-" if any may say it. With code 0, nothing is said.
table() {
  cat <<'END'
nothing 0 -
best_on_one_rank 0 -
two_optimizers 0 -
frozen_part 0 -
farandole_error 65 1 x\.csv: line 3 is damaged$
error 1 1 the batch has no samples$
strange_error 1 1 an exception that is no std::exception was thrown$
error_of_thread 1 1 the loader has failed$
error_of_all 1 - no rank can do this$
agreed_error 64 1 the file x\.csv does not exist$
shape 1 1 mat1 and mat2 shapes cannot be multiplied \(5x7 and 4x8\)$
label 1 1 Target 12 is out of bounds\.$
exit 3 1 exit\(3\) was called inside of the session, .*; return from main
exit_0 64 1 exit\(0\) was called inside of the session
other_shape 64 - the ranks make different calls of the same collective
other_call 64 - the ranks make different calls of the same collective
device 64 - the device cannot be 'gpu'; use cpu, cuda .* or auto
no_broadcast 64 - the parameters of rank 1 differ from those of rank 0 at the first step \(4 of 4, the first is 0\.weight\); call session\.broadcast\(\*net\)
inner_step 64 - the parameters were changed after backward, but not by step\(\) of the DistributedOptimizer
inner_zero_grad 64 - the parameters were changed after backward, but not by step\(\) of the DistributedOptimizer
last_inner_step 64 - the parameters were changed after backward, but not by step\(\) of the DistributedOptimizer
no_step 64 - gradients were reduced and discarded, but step\(\) of the DistributedOptimizer was never called$
missing_parameter 64 - the parameter 1\.weight requires a gradient, but the optimizer does not have it
extra_parameter 64 - the optimizer has a parameter of shape \[3\], which is not among the named parameters
one_rank_changes 64 - the parameters of rank 1 differ from those of rank 0 at the end of the training \(.*; do not use this model
second_backward 1 - Trying to backward through the graph a second time
nan 1 - the gradient of .* has a NaN or an infinity on rank 1$
early_return 64 any deadlock: rank 0 waits in the making of an optimizer or group, rank 1 has ended its .*; let no rank return before the others$
segfault 139 any rank 1 .*(SIGSEGV|signal 11)
END
}

# Counts lines without those of mpirun, which are between two rulers.
own_lines() { awk '/^------------*$/ { inside = !inside; next } !inside && NF && !/^  /' err; }

check() {  # LAUNCHER MISTAKE CODE RANK PATTERN
  local launcher=$1 mistake=$2 code=$3 rank=$4 pattern=$5 got prefix
  if [[ $launcher == farandole ]]; then
    timeout 100 "$bin/farandole" run -n 2 -- "$bin/mistaken" "$mistake" >out 2>err </dev/null
  else
    timeout 100 mpirun -n 2 "$bin/mistaken" "$mistake" >out 2>err </dev/null
  fi
  got=$?
  [[ $got == "$code" ]] || fail "$mistake with $launcher: exit code $got instead of $code"
  [[ $(own_lines | wc -l) -le 4 ]] || fail "$mistake with $launcher: stderr is long"
  ! grep -qE 'terminate called|Process received signal|\[ ?[0-9]+\] /' err || fail "$mistake with $launcher: stacks"
  if [[ $code == 0 ]]; then
    [[ $(grep -c 'has ended' out) == 2 && ! -s err ]] || fail "$mistake with $launcher: refused"
    return
  fi
  case $rank in
    any) prefix='' ;;
    -) prefix='^farandole: (rank [01] on [^ ]+: )?(.*: )?' ;;
    *) prefix="^farandole: rank $rank on [^ ]+: " ;;
  esac
  [[ $(own_lines | grep -cE -- "$prefix$pattern") -ge 1 ]] || fail "$mistake with $launcher: stderr lacks '$prefix$pattern'"
  [[ $rank == any || $(own_lines | grep -c '^farandole: rank') -le 1 ]] || fail "$mistake with $launcher: several ranks say it"
}

while read -r mistake code rank pattern; do
  for launcher in farandole mpirun; do
    [[ -z ${1:-} || $1 == "$mistake" ]] || continue
    check "$launcher" "$mistake" "$code" "$rank" "$pattern"
  done
done < <(table)
