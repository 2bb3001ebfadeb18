#!/usr/bin/env bash
# The mistakes of a first day, each on two ranks: the job ends, with the right exit code and one line that names the mistake and
# the rank. The rest of stderr is short and has no stacks.
source "$(dirname "$0")/../../trainer/common.sh"

# LAUNCHERS MISTAKE CODE RANK PATTERN: under both launchers what they can end in different ways, and else under farandole run. RANK
# begins the line, if only that rank knows; "-" if any may say it.
table() {
  cat <<'END'
both error 1 1 the batch has no samples$
both agreed_error 64 1 the file x\.csv does not exist$
both exit 3 1 exit\(3\) was called inside of the session, .*; return from main
both early_return 64 any deadlock: rank 0 waits in the making of an optimizer or group, rank 1 has ended its .*; let no rank return before the others$
both segfault 139 any rank 1 .*(SIGSEGV|signal 11)
one other_call 64 - the ranks make different calls of the same collective
one no_broadcast 64 - the parameters of rank 1 differ from those of rank 0 at the first step \(4 of 4, the first is 0\.weight\); call session\.broadcast\(\*net\)
one farandole_error 65 1 x\.csv: line 3 is damaged$
one strange_error 1 1 an exception that is no std::exception was thrown$
one error_of_thread 1 1 the loader has failed$
one error_of_all 1 - no rank can do this$
one shape 1 1 mat1 and mat2 shapes cannot be multiplied \(5x7 and 4x8\)$
one last_inner_step 64 - the parameters were changed after backward, but not by step\(\) of the DistributedOptimizer
one no_step 64 - gradients were reduced and discarded, but step\(\) of the DistributedOptimizer was never called$
one one_rank_changes 64 - the parameters of rank 1 differ from those of rank 0 at the end of the training \(.*; do not use this model
one error_in_join 65 1 the sixth batch is damaged$
one agreed_error_in_join 65 1 the sixth batch is damaged$
one exit_0 64 1 exit\(0\) was called inside of the session
END
}

# Counts lines without those of mpirun, which are between two rulers.
own_lines() { awk '/^------------*$/ { inside = !inside; next } !inside && NF && !/^  /' err; }

mistaken() {  # LAUNCHER MISTAKE...
  local starter=("$bin/farandole" run -n 2 --)
  [[ $1 == farandole ]] || starter=(mpirun -n 2)
  timeout 100 "${starter[@]}" "$bin/mistaken" "${@:2}" >out 2>err </dev/null
}

check() {  # LAUNCHER MISTAKE CODE RANK PATTERN
  local launcher=$1 mistake=$2 code=$3 rank=$4 pattern=$5 got prefix
  mistaken "$launcher" "$mistake"
  got=$?
  [[ $got == "$code" ]] || fail "$mistake with $launcher: exit code $got instead of $code"
  [[ $(own_lines | wc -l) -le 4 ]] || fail "$mistake with $launcher: stderr is long"
  ! grep -qE 'terminate called|Process received signal|\[ ?[0-9]+\] /' err || fail "$mistake with $launcher: stacks"
  case $rank in
    any) prefix='' ;;
    -) prefix='^farandole: (rank [01] on [^ ]+: )?(.*: )?' ;;
    *) prefix="^farandole: rank $rank on [^ ]+: " ;;
  esac
  [[ $(own_lines | grep -cE -- "$prefix$pattern") -ge 1 ]] || fail "$mistake with $launcher: stderr lacks '$prefix$pattern'"
  [[ $rank == any || $(own_lines | grep -c '^farandole: rank') -le 1 ]] || fail "$mistake with $launcher: several ranks say it"
}

while read -r launchers mistake code rank pattern; do
  [[ -z ${1:-} || $1 == "$mistake" ]] || continue
  check farandole "$mistake" "$code" "$rank" "$pattern"
  [[ $launchers == one ]] || check mpirun "$mistake" "$code" "$rank" "$pattern"
done < <(table)

# What is right, and what looks similar.
right=(nothing best_on_one_rank two_optimizers frozen_part)
for launcher in farandole mpirun; do
  mistaken $launcher "${right[@]}" || fail "exit code $? of what is right, with $launcher"
  [[ $(grep -c 'has ended' out) == 8 && ! -s err ]] || fail "refused with $launcher"
done

# Errors that all ranks get from the optimizer. mpi_misuse.cc has more of them.
told=("inner_zero_grad: the parameters were changed after backward, but not by step\(\) of the DistributedOptimizer"
  "missing_parameter: .*the parameter 1\.weight requires a gradient, but the optimizer does not have it"
  "extra_parameter: .*the optimizer has a parameter of shape \[3\], which is not among the named parameters"
  "nan: .*the gradient of .* has a NaN or an infinity on rank 1"
  "second_backward: .*Trying to backward through the graph a second time")
mistaken farandole "${told[@]%%:*}" nothing || fail "exit code $? after errors that were caught"
for pattern in "${told[@]}"; do [[ $(grep -cE "^$pattern" out) == 2 ]] || fail "not '$pattern' on both ranks"; done
