# Sourced by the script tests: a folder for each test (readable by others, which munge needs), which is removed at the end, and
# checks that report failures.
set -uo pipefail
bin=${FARANDOLE_BIN:?the folder of the built programs}
work=$(mktemp -d "${TMPDIR:-/tmp}/farandole-test.XXXXXX")
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
failures=0
fail() { echo "FAILED: $*" >&2; failures=$((failures + 1)); }

# expect CODE COMMAND...: runs the command; standard output and error are in $work/out and $work/err.
expect() {
  local code=$1 got=0
  shift
  last="$*"
  "$@" >"$work/out" 2>"$work/err" || got=$?
  [[ $got -eq $code ]] || fail "exit code $got, not $code, of: $last
$(tail -n 20 "$work/out" "$work/err")"
}
says() { grep -qE -- "$2" "$work/$1" || fail "no '$2' in $1 of: $last
$(tail -n 20 "$work/$1")"; }
silent() { [[ ! -s $work/$1 ]] || fail "$1 is not empty: $last
$(tail -n 20 "$work/$1")"; }
