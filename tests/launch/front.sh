#!/usr/bin/env bash
# The front `farandole`: finds the commands beside it, hands arguments on, helps with what it does not know.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
trap 'rm -rf "$work"' EXIT
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

# Arguments arrive as they are; so does the exit code. A copy finds the commands beside itself, also through a link.
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
