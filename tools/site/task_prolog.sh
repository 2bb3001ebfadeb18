#!/bin/sh
# TaskProlog of Slurm: has the recorder wait for PyTorch in the tasks of users who have asked for it, by FARANDOLE_TRACE=1 or by a
# file ~/.config/farandole/trace. Slurm puts the variables that this prints into the environment of the task. In slurm.conf:
#   TaskProlog=/opt/farandole/0.1.0/share/farandole/site/task_prolog.sh
[ "${FARANDOLE:-}" != off ] || exit 0
if [ -z "${FARANDOLE_TRACE:-}" ]; then
  [ -e "${HOME:-}/.config/farandole/trace" ] || exit 0
  echo "export FARANDOLE_TRACE=1"
elif [ "$FARANDOLE_TRACE" != 1 ]; then
  exit 0
fi
prefix=$(readlink -f "$(dirname "$(readlink -f "$0")")/../../..")
for python in "$prefix"/lib*/farandole/python "$prefix"/lib/*/farandole/python; do
  case :${PYTHONPATH:-}: in *":$python:"*) continue ;; esac
  [ ! -d "$python/start" ] || echo "export PYTHONPATH=$python/start:$python${PYTHONPATH:+:$PYTHONPATH}"
done
exit 0
