#!/bin/bash
# Hook of enroot: does in containers what task_prolog.sh does elsewhere, and lets them see this installation. On every node:
#   ln -s /opt/farandole/0.1.0/share/farandole/site/enroot_hook.sh /etc/enroot/hooks.d/50-farandole.sh
# It does not end a start with an error, because the container can start without the recorder.
site=$(dirname "$(readlink -f "$0")")
prefix=$(readlink -f "$site/../../..")
asked=${FARANDOLE_TRACE:-}
PYTHONPATH=$(sed -n 's/^PYTHONPATH=//p' "$ENROOT_ENVIRON" | tail -n 1)
export PYTHONPATH
changes=$("$site/task_prolog.sh")
[[ $changes ]] || exit 0
echo "$prefix $prefix none x-create=dir,bind,ro,nosuid,nodev" >>"$ENROOT_MOUNTS"
{ [[ ! $asked ]] || echo "FARANDOLE_TRACE=$asked"; sed 's/^export //' <<<"$changes"; } >>"$ENROOT_ENVIRON"
exit 0
