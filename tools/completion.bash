# Bash completion of farandole: commands and options as the programs' own --help lists them.
_farandole_names() {  # COMMAND...: the names that its --help explains in lines of their own
  "$@" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p'
}

_farandole() {
  local word=${COMP_WORDS[COMP_CWORD]} command=("${COMP_WORDS[0]}") words i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD && i < 3; ++i)); do
    _farandole_names "${command[@]}" | grep -qx -- "${COMP_WORDS[i]}" || break
    command+=("${COMP_WORDS[i]}")
  done
  if [[ $word == -* ]]; then
    words=$({ "${command[@]}" --help all || "${command[@]}" --help; } 2>/dev/null | grep -oE -- '--[a-z][a-z-]+' | sort -u)
  elif ((${#command[@]} == COMP_CWORD)); then
    words=$(_farandole_names "${command[@]}")
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -o default -F _farandole farandole
