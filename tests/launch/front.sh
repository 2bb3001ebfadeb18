#!/usr/bin/env bash
# The program `farandole`: finds the commands in its folder, passes arguments on, and explains unknown ones.
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
front=$bin/farandole

expect 0 "$front" --help
says out '^  run +start a program'
expect 64 "$front"
expect 0 "$front" --version
version=$(sed -n 's/^project(farandole VERSION \([0-9.]*\).*/\1/p' "${FARANDOLE_SOURCE:?}/CMakeLists.txt")
says out "^farandole ${version//./\\.}\$"

expect 64 "$front" rnu -n 2
says err "^farandole: no command 'rnu'; did you mean run\?\$"
for bad in xylophone ../sh '' a/b; do
  expect 64 "$front" "$bad"
done
expect 64 "$front" --frobnicate
says err 'unknown option --frobnicate'

# A known command that is not built: the message says how to build it, with and without LibTorch, and
# outside a build folder.
mkdir -p "$work/build/bin" "$work/prefix/bin"
cp "$front" "$bin/farandole-run" "$work/build/bin/"
cp "$front" "$work/prefix/bin/"
echo 'FARANDOLE_TORCH:BOOL=ON' >"$work/build/CMakeCache.txt"
expect 64 "$work/build/bin/farandole" bench step
says err "^farandole: farandole bench is not built. Build it with: cmake --build $work/build --target farandole-bench\$"
expect 64 "$work/build/bin/farandole" run --run-dir "$work/run" --trace-mpi true
says err "libfarandole_pmpi.so, which is not built. Build it with: cmake --build $work/build --target farandole_pmpi\$"
echo 'FARANDOLE_TORCH:BOOL=OFF' >"$work/build/CMakeCache.txt"
expect 64 "$work/build/bin/farandole" train
says err "Build it with: cmake -D FARANDOLE_TORCH=ON $work/build && cmake --build $work/build --target farandole-train\$"
expect 64 "$work/build/bin/farandole" doctor
says err "Build it with: cmake --build $work/build --target farandole-doctor\$"
expect 64 "$work/prefix/bin/farandole" bench
says err 'farandole bench is not built. Build farandole-bench and install Farandole again; it needs LibTorch: '

# Arguments and exit code are passed unchanged. A copy finds the commands in its own folder, also through a link.
mkdir "$work/bin"
cp "$front" "$work/bin/"
ln -s "$work/bin/farandole" "$work/link"
printf '#!/bin/sh\nfor a; do printf "<%%s>" "$a"; done\nexit 65\n' >"$work/bin/farandole-hello"
chmod +x "$work/bin/farandole-hello"
expect 65 "$work/link" hello 'a b' '' --help '*'
says out '^<a b><><--help><\*>$'
expect 65 "$work/link" help hello
says out '^<--help>$'
expect 0 "$work/link" --help
says out '^  hello'
chmod -x "$work/bin/farandole-hello"
expect 1 env "$work/link" hello
says err 'Permission denied'
exit $((failures > 0))
