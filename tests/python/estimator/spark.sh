#!/usr/bin/env bash
# The notebook of the estimator with real Spark on three ranks of ours, where pyspark, Java and MNIST are there.
source "$(dirname "${BASH_SOURCE[0]}")/../../launch/expect.sh"
unset "${!SLURM_@}" MASTER_ADDR MASTER_PORT
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mnist=${FARANDOLE_TEST_DATA:-}/mnist
[[ -d $mnist ]] || { echo "skipped: FARANDOLE_TEST_DATA names no folder with mnist/"; exit 77; }
java -version 2>/dev/null || { echo "skipped: no Java"; exit 77; }
wheel_python 2>/dev/null || { echo "skipped: no Python here has the PyTorch of tools/setup"; exit 77; }
export PYTHONPATH=$FARANDOLE_SOURCE/src/farandole/python:$PYTHONPATH:$FARANDOLE_SOURCE/.deps/spark
for package in pyspark pandas pyarrow cloudpickle; do
  /usr/bin/python3 -c "import $package" 2>/dev/null || { echo "skipped: Python here has no $package"; exit 77; }
done
export FARANDOLE_LIBRARY=${FARANDOLE_LIBRARY:-$bin/../lib/libfarandole_c.so} FARANDOLE_PROGRAM=${FARANDOLE_PROGRAM:-$bin/farandole}
export FARANDOLE_PYTHON=/usr/bin/python3 PYSPARK_PYTHON=/usr/bin/python3 SPARK_LOCAL_IP=127.0.0.1 SPARK_LOCAL_DIRS=$work
export PYTHONWARNINGS=ignore JAVA_TOOL_OPTIONS="-Djava.io.tmpdir=$work"
cd "$work" || exit 1

expect 0 timeout 900 "$FARANDOLE_PROGRAM" python "$FARANDOLE_SOURCE/src/farandole/python/examples/spark_estimator.py" "$mnist" --store "$work/store"
says out '^\[0 [0-9:.]+\] epoch 3 of 3: loss [0-9.]+, validation loss [0-9.]+, '
says out '^\[0 [0-9:.]+\] epoch 1, batch 1 of '
accuracy=$(sed -n 's/^Test accuracy: //p' "$work/out")
awk -v accuracy="${accuracy:-0}" 'BEGIN { exit !(accuracy > 0.7) }' || fail "the accuracy is '$accuracy': $(tail -n 20 "$work/out" "$work/err")"
expect 0 "$bin/farandole" runs list --store "$work/store"
says out '^pytorch_[0-9]+ +finished +3 +[0-9.]+ +Net$'

# Vectors, pipelines, other types of labels, and the columns that transform() adds.
expect 0 timeout 900 /usr/bin/python3 "$here/spark.py" "$work/others"
says out '^equal$'
exit $((failures > 0))
