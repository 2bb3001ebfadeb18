# Sourced by tests that kill a program: `alive` says whether a process that this script has started from now on is left.
export MARK=farandole-alive-$$
alive() {
  local file
  for file in /proc/[0-9]*/environ; do
    [[ $file == "/proc/$$/environ" || $file == "/proc/$BASHPID/environ" ]] || ! grep -qsz "^MARK=$MARK\$" "$file" || return 0
  done
  return 1
}
