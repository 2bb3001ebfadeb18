#!/usr/bin/env bash
# install.sh HEADER...: an installed tree works wherever it is moved to: its programs, its examples built with CMake and with
# pkg-config, a project of `farandole new`, its manual pages and its completion; and it has the public headers, no more and no less.
source "$(dirname "$0")/../trainer/common.sh"
export LC_ALL=C
build=$(dirname "$bin")

cmake --install "$build" --prefix "$work/staging" >out 2>err || fail "cmake --install"
mkdir elsewhere && mv staging elsewhere/farandole || fail "the tree cannot be moved"
prefix=$work/elsewhere/farandole
lib=$(dirname "$(find "$prefix" -name 'libfarandole_timeline.so')")
share=$prefix/share/farandole
printf 'farandole/%s\n' "$@" | sort >declared
(cd "$prefix/include" && find . -type f -printf '%P\n') | sort >installed
diff declared installed >out || fail "the installed headers are not the public ones"
for folder in profiles slurm site examples examples/python new; do
  [[ -n $(ls -A "$share/$folder") ]] || fail "there is no share/farandole/$folder"
done
# The module: with Lmod, where there is one.
module=$share/modulefiles/farandole/$("$prefix/bin/farandole" --version | cut -d' ' -f2).lua
[[ -s $module ]] && ! grep '@' "$module" >out || fail "the modulefile $module"
lmod=/usr/share/lmod/lmod/libexec/lmod
if [[ -x $lmod ]]; then
  MODULEPATH=${module%/farandole/*} "$lmod" bash load farandole >out 2>err || fail "loading the module"
  grep -q "^PATH=$prefix/bin:" <(tr ';' '\n' <out) && grep -q "FARANDOLE_SLURM=$share/slurm" out || fail "what the module sets"
fi
# What the programs say of themselves; none needs the build, nor a library that is not there.
for program in "$prefix"/bin/farandole*; do
  "$program" --version >out 2>err || fail "$program --version"
  grep -qE "^${program##*/} [0-9.]+\$" out || fail "$program --version says something else"
  ! ldd "$program" | grep -E "not found|$build/" >out || fail "$program does not find its libraries"
done
for library in "$lib"/libfarandole_*.so; do
  ! ldd "$library" | grep -E "not found|$build/" >out || fail "$library does not find its libraries"
done
if ldd "$lib"/libfarandole_{timeline,analyzer}.so "$prefix"/bin/farandole-{analyze,doctor} | grep -E 'libmpi|libtorch|libc10|libhdf5|cuda' >out; then
  fail "timeline or analyzer needs MPI, HDF5, CUDA or LibTorch"
fi

# The examples, as share/farandole/examples/CMakeLists.txt says.
cmake -G Ninja -S "$share/examples" -B examples -DCMAKE_PREFIX_PATH="$prefix" >out 2>err ||
  fail "the examples cannot be configured"
cmake --build examples --target record reduce >out 2>&1 || fail "the examples cannot be built"  # the build has the others
examples/record runs/record >out 2>err || fail "examples/record"
[[ -s runs/record/timeline.json.gz ]] || fail "examples/record leaves no trace"
# Without CMake.
export PKG_CONFIG_PATH=$lib/pkgconfig
read -ra flags < <(pkg-config --cflags --libs farandole-analyzer farandole-timeline)
"${CXX:-c++}" -std=c++20 "$share/examples/analyze.cc" "${flags[@]}" -o examples/analyze >out 2>err || fail "c++ with pkg-config"
examples/analyze runs/record >record.json 2>err || fail "examples/analyze"
grep -q '^throughput: ' err || fail "examples/analyze prints no figures"
if [[ -e $lib/libfarandole_runtime.so ]]; then
  # Linked with the installed library; the build has compiled it.
  read -ra runtime < <(pkg-config --libs farandole-runtime)
  "${CXX:-c++}" "$(find "$build/tests/CMakeFiles/example_train.dir" -name '*.o')" "${runtime[@]}" -o examples/train >out 2>err ||
    fail "link with pkg-config"
  # On one rank without mpirun and on two ranks, with the same loss except for the order of sums.
  timeout 300 examples/train >one 2>err || fail "examples/train on one rank"
  timeout 300 "$prefix/bin/farandole" run -n 2 --run-dir runs/train -- examples/train >two 2>err || fail "examples/train"
  for ranks in one two; do
    grep -qE '^loss 0\.[0-4]' $ranks || fail "examples/train on $ranks prints another loss: $(<$ranks)"
  done
  examples/analyze runs/train >train.json 2>err || fail "the analysis of examples/train"
  [[ $("$prefix/bin/farandole" analyze runs/train --format json | md5sum) == $(md5sum <train.json) ]] ||
    fail "farandole analyze says something else than the library"
fi
/usr/bin/python3 - record.json $([[ -e train.json ]] && echo train.json) <<'PYTHON' || fail "the reports"
import json
import sys
for name in sys.argv[1:]:
    assert json.load(open(name))["farandole_report"] == 1, name
PYTHON

if [[ -x examples/train ]]; then
  read -ra flags < <(pkg-config --cflags farandole-runtime)
  "${CXX:-c++}" -std=c++20 -E "$share/examples/train.cc" "${flags[@]}" -o train.ii 2>err || fail "headers with pkg-config"
  # launch finds the launcher of the installed tree, although no folder of it is in PATH.
  "${CXX:-c++}" "$(find "$build/tests/CMakeFiles/example_launch.dir" -name '*.o')" "${runtime[@]}" -o launch >out 2>err || fail "link of launch"
  timeout 300 env PATH="$(dirname "$(command -v mpirun)"):/usr/bin:/bin" ./launch 2 >out 2>err && grep -qE '^accuracy on 2 ranks: [89]' out || fail "launch"
  "$(dirname "$0")/new.sh" "$prefix/bin" || fail "a project of farandole new"
fi
! examples/analyze nowhere >out 2>err || fail "a run that is not there is no failure"

# The C interface: nothing that it loads is LibTorch or CUDA. The same in C, and in Fortran where there is a compiler for it.
! ldd "$lib/libfarandole_c.so" | grep -iE 'torch|cuda' >out || fail "the C interface needs LibTorch or CUDA"
read -ra flags < <(pkg-config --libs farandole-c)
command -v gfortran >/dev/null && { gfortran -J "$work" "$share/examples/reduce.f90" "${flags[@]}" -o examples/reduce_fortran >out 2>err || fail "Fortran"; }
sed -n '/^```c$/,/^```$/{//!p}' "$FARANDOLE_SOURCE/docs/c-interface.md" >sum.c
cc -std=c11 -Wall -Werror sum.c $(pkg-config --cflags --libs farandole-c) -o sum >out 2>err || fail "cc with pkg-config"
timeout 300 "$prefix/bin/farandole" run -n 2 -- ./sum >out 2>err && grep -qx 'the sum over 2 ranks is 39' out || fail "the program of docs/c-interface.md"
for program in examples/reduce*; do
  [[ -x $program && -f $program ]] || continue
  rm -rf runs/reduce
  timeout 300 "$prefix/bin/farandole" run -n 3 --run-dir runs/reduce -- "$program" >out 2>err && grep -q '^the mean over 3 ranks is 20' out || fail "$program"
  "$prefix/bin/farandole" analyze runs/reduce --format json >out 2>err || fail "the analysis of $program"
  /usr/bin/python3 -c 'import json; run, = json.load(open("out"))["runs"]; assert run["steps"] + run["warmup_steps"] == 20, run' 2>err || fail "the steps of $program"
done

# Completion, from the programs' own --help.
completed() {  # WORD...: what the last one can become
  PATH=$prefix/bin:$PATH bash -c 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _farandole
    printf "%s\n" "${COMPREPLY[@]}"' "$prefix/share/bash-completion/completions/farandole" "$@"
}
completed farandole ana | grep -qx analyze || fail "farandole ana<Tab>"
completed farandole analyze --fo | grep -qx -- --format || fail "farandole analyze --fo<Tab>"
completed farandole timeline sal | grep -qx salvage || fail "farandole timeline sal<Tab>"
completed farandole timeline slice --ra | grep -qx -- --ranks || fail "farandole timeline slice --ra<Tab>"

# Manual pages, where help2man was there for the build.
if [[ -d $prefix/share/man ]]; then
  for program in "$prefix"/bin/farandole*; do
    page=$prefix/share/man/man1/${program##*/}.1
    [[ -s $page ]] || fail "there is no ${page##*/}"
    ! command -v man >/dev/null || MANPATH=$prefix/share/man man "${program##*/}" 2>err | grep -q '[A-Za-z]' || fail "man ${program##*/}"
  done
  for section in NAME SYNOPSIS DESCRIPTION OPTIONS EXAMPLES '"EXIT STATUS"' '"SEE ALSO"'; do
    grep -qx ".SH $section" "$prefix/share/man/man1/farandole-analyze.1" || fail "farandole-analyze.1 has no $section"
  done
  grep -q '^75$' "$prefix/share/man/man1/farandole-analyze.1" || fail "farandole-analyze.1 lacks an exit code"
fi
