#!/usr/bin/env bash
# farandole new: writes the project and refuses names. tests/install builds and runs the project.
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
new=("$bin/farandole" new)
cd "$work" || exit 1

expect 0 "${new[@]}" net-2.a_b
says out '^  farandole run -n 2 --run-dir runs/net-2.a_b -- build/train$'
[[ $(ls -A net-2.a_b) == "$(ls -A "$FARANDOLE_SOURCE/tools/new")" ]] || fail "other files"
grep -qx 'project(net-2.a_b LANGUAGES CXX)' net-2.a_b/CMakeLists.txt || fail "the project's name"
grep -qx '#SBATCH --job-name=net-2.a_b' net-2.a_b/job.sbatch || fail "the job's name"
! grep -r my-training net-2.a_b || fail "the template's name is left"
expect 0 "${new[@]}" "$work/net-2.a_b/runs-of-it/"
[[ -f net-2.a_b/runs-of-it/main.cc ]] || fail "a path"

# Each is refused with one line, and nothing is left.
mkdir empty
ln -s nowhere link
touch file
for name in empty link file file/net no/such/net . .. / .net -- 'a b' 'a/b;c' 'x$(id)' $'a\nb' ''; do
  expect 64 "${new[@]}" -- "$name"
  [[ $(grep -c . "$work/err") == 1 ]] || fail "not one line for '$name'"
done
expect 64 "${new[@]}"
expect 64 "${new[@]}" one two
says err '^farandole new: '
[[ $(ls -A) == "$(printf '%s\n' empty err file link net-2.a_b out | sort)" ]] || fail "something is left: $(ls -A)"
exit $((failures > 0))
