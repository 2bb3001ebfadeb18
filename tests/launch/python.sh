#!/usr/bin/env bash
# farandole python and farandole run --horovod: what the script gets, and what is refused.
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
python=("$bin/farandole" python)
export FARANDOLE_PYTHON=/usr/bin/python3
[[ -x $FARANDOLE_PYTHON ]] || { echo "skipped: there is no $FARANDOLE_PYTHON"; exit 77; }
unset "${!SLURM_@}" FARANDOLE_RUNS FARANDOLE_HOROVOD PYTHONPATH
cd "$work" || exit 1
cat >script.py <<'PYTHON'
import json, os, sys
import farandole
names = ("PYTHONPATH", "FARANDOLE_HOROVOD", "FARANDOLE_PROGRAM", "FARANDOLE_RUNS", "WORLD_SIZE")
print(json.dumps([sys.argv[1:], [os.environ.get(name) for name in names], farandole.__file__]))
sys.exit(65 if "fail" in sys.argv else 0)
PYTHON
package=$(readlink -m "$bin/../lib")/farandole/python
gets() { # ARGUMENTS RUNS RANKS PROGRAM
  says out "^\[\[$1\], \[\"$package/start:$package\", \"1\", $4, $2, $3\], \"$package/farandole/__init__.py\"\]\$"
}
program="\"$(readlink -f "$bin")/farandole\""

expect 0 "${python[@]}" script.py
gets '' null null "$program"
expect 65 "${python[@]}" --run-dir 'my runs' -- script.py --run-dir 'a b' -m fail ''
gets '"--run-dir", "a b", "-m", "fail", ""' "\"$work/my runs\"" null "$program"
expect 0 "${python[@]}" -W ignore -m script --help
gets '"--help"' null null "$program"
expect 0 "${python[@]}" -c 'import runpy; runpy.run_path("script.py")'
gets '' null null "$program"
expect 0 "${python[@]}" - one <script.py
gets '"one"' null null "$program"
PATH=$work:$PATH
ln -s "$FARANDOLE_PYTHON" python3
expect 0 env -u FARANDOLE_PYTHON PYTHONPATH=/mine "${python[@]}" -c 'import os, sys; print(sys.argv, os.environ["PYTHONPATH"])'
says out "'-c'.* .*/start:.*/python:/mine$"

expect 0 "$bin/farandole" run -n 2 --horovod -- "$FARANDOLE_PYTHON" script.py
gets '' null '"2"' null
[[ $(wc -l <"$work/out") == 2 ]] || fail "two ranks"
expect 0 "$bin/farandole" run --torch-backend farandole -- "$FARANDOLE_PYTHON" -c 'import os; assert "FARANDOLE_HOROVOD" not in os.environ'

# Each is refused with one line.
refused() { # PATTERN COMMAND...
  expect 64 "${@:2}"
  says err "$1"
  [[ $(grep -c . "$work/err") == 1 ]] || fail "not one line: $last"
}
refused "^farandole python: there is no script 'scrpt.py'; give" "${python[@]}" scrpt.py
refused "^farandole python: .*--run-dri.*--run-dir" "${python[@]}" --run-dri x script.py
refused "^farandole python: FARANDOLE_PYTHON is '/no/python'" env FARANDOLE_PYTHON=/no/python "${python[@]}" script.py
refused "^farandole python: there is no python3 on PATH" env -u FARANDOLE_PYTHON PATH=/no "${python[@]}" script.py
mkdir bare
cp "$bin/farandole" "$bin/farandole-python" "$bin/farandole-run" bare
refused "^farandole python: this command needs .*sitecustomize.py, which does not exist" bare/farandole python script.py
refused "^farandole run: --horovod needs .*sitecustomize.py, which does not exist" bare/farandole run --horovod true
exit $((failures > 0))
