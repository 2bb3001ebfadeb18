# Sourced by the script tests of the trainer: a temporary folder, the programs, and checks.
set -uo pipefail
bin=${FARANDOLE_BIN:?}
source_folder=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
text=/usr/share/common-licenses  # a folder with some 100 KB of text
[[ -e $text/GPL-3 ]] || text=$source_folder/../../docs

# short_text BYTES: makes the folder short with so much of that text.
short_text() { mkdir short && cat "$text"/* 2>/dev/null | head -c "$1" >short/text; }

fail() {
  echo "FAILED: $*" >&2
  [[ ! -s out ]] || sed 's/^/  stdout: /' out >&2
  [[ ! -s err ]] || sed 's/^/  stderr: /' err >&2
  exit 1
}

# train RANKS OPTION…: runs a training; the output is in the files out and err, and the exit code is
# that of the launcher.
train() {
  local ranks=$1
  shift
  timeout 240 "$bin/farandole" run -n "$ranks" -- "$bin/farandole" train "$@" >out 2>err
}

# await WHAT COMMAND…: until the command is true; the test fails with WHAT if $launcher has ended before
exec {never}<> <(:)  # which nobody writes into: to wait without a process
await() {
  until "${@:2}"; do
    kill -0 "$launcher" 2>/dev/null || fail "$1"
    read -rt 0.05 -u "$never" || true
  done
}
more_lines() { [[ $(grep -cs "${3:-.}" "$1") -gt $2 ]]; }  # FILE N [PATTERN]: more than N

# refused CODE PATTERN OPTION…: a user's error ends with one line on stderr and the exit code, on $ranks ranks.
ranks=2
refused() {
  local code=$1 pattern=$2
  shift 2
  train "$ranks" "$@"
  local got=$?
  [[ $got == "$code" ]] || fail "exit code $got instead of $code on $ranks ranks: $*"
  grep -qE -- "$pattern" err || fail "stderr lacks '$pattern' on $ranks ranks: $*"
  [[ $(grep -c . err) == 1 ]] || fail "stderr is not one line on $ranks ranks: $*"
}

need_data() {  # FOLDER: of FARANDOLE_TEST_DATA; skips the test without it
  data=${FARANDOLE_TEST_DATA:-}/$1
  [[ -e $data ]] || { echo "skipped: FARANDOLE_TEST_DATA has no $1"; exit 77; }
}

need_h5py() {  # equal_arrays needs it, too
  /usr/bin/python3 -c 'import h5py' 2>/dev/null || { echo "skipped: /usr/bin/python3 has no h5py"; exit 77; }
}

equal_arrays() { "$source_folder/checkpoints/equal_arrays" "$@"; }  # FILE FILE [PREFIX...]
