#!/usr/bin/env bash
# Bad input of fit, transform, evaluate and runs ends with one line and exit code 64 or 65 on all ranks.
source "$(dirname "$0")/models.sh"
/usr/bin/python3 - <<'PYTHON' || fail "tables"
import h5py, numpy
random = numpy.random.default_rng(1)
with h5py.File("train.h5", "w") as file:
    file["x"] = random.normal(size=(200, 12)).astype("f4")
    file["wide"] = random.normal(size=(200, 13)).astype("f4")
    file["digit"] = random.integers(0, 3, 200)
    wrong = file["digit"][()]
    wrong[150] = 7
    file["wrong"] = wrong
    gap = file["x"][()]
    gap[123, 4] = numpy.nan
    file["gap"] = gap
    target = file["digit"][()].astype("f4")
    target[199] = numpy.nan
    file["target"], file["held"] = target, numpy.arange(200) >= 190
    file["name"] = ["text"] * 200
PYTHON

refused() {  # CODE PATTERN OPTION...
  local code=$1 pattern=$2
  shift 2
  check "$code" "$pattern" fit -n 2 --store runs --table train.h5 --features x --label digit --model small.pt --loss nll "$@"
}
# On two ranks: errors that both meet, and errors that only one of them meets. tests/estimator/table_training_test.cc has all others.
refused 64 "no column pixels; its columns are digit, gap, held, target, wide, wrong, x" --features pixels
refused 65 'train.h5: column wrong has the label 7 in row 150; the model has 3 classes' --label wrong
refused 65 'train.h5: column gap has a NaN in row 123; .*--nan skip' --features gap
refused 65 'train.h5: column target has a NaN in row 199; .*--nan skip' --label target --validation-column held
# Before ranks are started.
refused 64 'did you mean --epochs' --epoch 3
[[ ! -e runs || -z $(ls runs | grep -v '^fit-') ]] || fail "left behind: $(ls runs)"
# What is no error.
timeout 300 farandole fit -n 2 --store good --table train.h5 --features gap --label digit --model small.pt --loss nll --nan skip >out 2>err ||
  fail "--nan skip"
check 64 'no finished run' evaluate --store runs --table train.h5
check 64 'no run fit-0009; its runs are fit-0001' evaluate --store good --run fit-0009 --table train.h5
check 64 'no table given' evaluate --store good
check 64 'no output given' transform --store good --table train.h5
check 64 'a file of the table itself' transform --store good --table train.h5 --output train.h5
check 64 'did you mean list' runs lsit --store good
check 64 'no store nowhere' runs list --store nowhere
check 64 'needs the id' runs show --store good
[[ -z $(find . -maxdepth 1 -name '.*.h5*') && ! -e out.h5 ]] || fail "left behind: $(ls -A)"
