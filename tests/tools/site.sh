#!/usr/bin/env bash
# The scripts for those who run a site: what they print and write for users who have asked for the recorder, and for others nothing.
source "$(dirname "${BASH_SOURCE[0]}")/../launch/expect.sh"
site=$work/share/farandole/site python=$work/lib64/farandole/python
mkdir -p "$site" "$python/start" "$work/home"
cp "$FARANDOLE_SOURCE"/tools/site/*.sh "$site"
# task VARIABLE=VALUE...: the environment of a task after the prolog, as slurmd reads what it prints
task() { env -i PATH="$PATH" HOME="$work/home" "$@" "$site/task_prolog.sh" | sed -n 's/^export //p'; }
container() {  # VARIABLE=VALUE...: sets environ and mounts
  echo "PYTHONPATH=/image" >"$work/environ"
  : >"$work/mounts"
  env -i PATH="$PATH" HOME="$work/home" ENROOT_ENVIRON="$work/environ" ENROOT_MOUNTS="$work/mounts" "$@" "$site/enroot_hook.sh" || fail "the hook ended with $?"
}
nothing() {
  [[ -z $(task "$@") ]] || fail "the prolog with $*: $(task "$@")"
  container "$@"
  [[ $(<"$work/environ") == PYTHONPATH=/image && ! -s $work/mounts ]] || fail "the hook with $*: $(<"$work/environ")"
}
paths=PYTHONPATH=$python/start:$python
nothing
[[ $(task FARANDOLE_TRACE=1) == "$paths" ]] || fail "asked by a variable: $(task FARANDOLE_TRACE=1)"
container FARANDOLE_TRACE=1
[[ $(xargs <"$work/environ") == "PYTHONPATH=/image FARANDOLE_TRACE=1 $paths:/image" ]] || fail "a container: $(<"$work/environ")"
[[ $(<"$work/mounts") == "$work $work none "*,bind,ro,* ]] || fail "mounts: $(<"$work/mounts")"
mkdir -p "$work/home/.config/farandole"
touch "$work/home/.config/farandole/trace"
[[ $(task PYTHONPATH=/mine | xargs) == "FARANDOLE_TRACE=1 $paths:/mine" ]] || fail "asked by a file: $(task)"
[[ $(task "$paths") == FARANDOLE_TRACE=1 ]] || fail "it is on PYTHONPATH already: $(task "$paths")"
container
[[ $(xargs <"$work/environ") == "PYTHONPATH=/image FARANDOLE_TRACE=1 $paths:/image" ]] || fail "a container, by a file: $(<"$work/environ")"
nothing FARANDOLE=off FARANDOLE_TRACE=1
nothing FARANDOLE_TRACE=0
exit $((failures > 0))
