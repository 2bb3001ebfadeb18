# Sourced by the tests of `farandole bench`: a temporary folder, and checks of the files out and err.
set -uo pipefail
bin=${FARANDOLE_BIN:?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
fail() { echo "FAILED: $*" >&2; cat out err >&2; exit 1; }
