#!/usr/bin/env bash
# User errors end with one line on stderr and the right exit code, on 1 and 2 ranks, and do not change existing files.
source "$(dirname "$0")/common.sh"

# refused CODE PATTERN OPTION…
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

small=(--model mlp --data synthetic --width 8 --steps 2 --timeline off)
for ranks in 1 2; do refused 64 'unknown option --epoch; did you mean --epochs' "${small[@]}" --run-dir r --epoch 3; done
refused 64 "unknown option.*widht.*did you mean width" "${small[@]}" --run-dir r --set widht=3
refused 64 "'--?epochs'|--epochs" "${small[@]}" --run-dir r --epochs many
refused 64 '--epochs is 0' "${small[@]}" --run-dir r --epochs 0
refused 64 '--batch is 9223372036854775807; it must be between 1 and' "${small[@]}" --run-dir r --batch 9223372036854775807
refused 64 '--lr is inf; it must be finite' "${small[@]}" --run-dir r --lr inf
refused 64 '--heads' --model gpt --data synthetic --width 10 --heads 3 --run-dir r
refused 64 '--data is missing' --model mlp --run-dir r
refused 64 '--run-dir is missing' --model mlp --data synthetic
refused 64 "no profile 'mnits'.*did you mean mnist" --profile mnits --data synthetic --run-dir r
refused 64 'timeline' "${small[@]}" --run-dir r --timeline sometimes
printf 'model=mlp\nwidth=8\n# a comment\nwdith=9\n' >profile.ini
refused 64 'profile.ini:4: .*wdith.*did you mean width' --profile profile.ini --data synthetic --run-dir r
refused 64 'nowhere' --model mnist --data nowhere --run-dir r
refused 64 'mnist' --model mnist --data /usr/share/common-licenses --run-dir r
mkdir empty
refused 64 'empty' --model gpt --data empty --run-dir r
printf 'short' >short.txt
refused 64 'short.txt' --model gpt --data short.txt --run-dir r
refused 64 'samples' --model mlp --data synthetic --synthetic-samples 0 --run-dir r
touch file
refused 64 'file' "${small[@]}" --run-dir file/run

# IDX: wrong magic number, truncated, a label out of range. HDF5: truncated, no /y.
/usr/bin/python3 - <<'PYTHON'
import gzip, os, struct
import h5py, numpy
def idx(folder, images=b"", labels=b"", magic=2051, n=4):
    os.makedirs(folder)
    for prefix in ("train", "t10k"):
        open(f"{folder}/{prefix}-images-idx3-ubyte", "wb").write(struct.pack(">4I", magic, n, 28, 28) + images)
        gzip.open(f"{folder}/{prefix}-labels-idx1-ubyte.gz", "wb").write(struct.pack(">2I", 2049, n) + labels)
idx("good", bytes(4 * 784), bytes([0, 1, 2, 3]))
idx("magic", bytes(4 * 784), bytes(4), magic=2052)
idx("cut", bytes(4 * 784 - 1), bytes(4))
idx("label", bytes(4 * 784), bytes([0, 1, 2, 10]))
with h5py.File("no_y.h5", "w") as f:
    f["x"] = numpy.zeros((10, 4), "f4")
with h5py.File("whole.h5", "w") as f:
    f["x"] = numpy.zeros((100, 40), "f4")
    f["y"] = numpy.zeros(100, "i8")
open("cut.h5", "wb").write(open("whole.h5", "rb").read()[:-3000])
PYTHON
refused 65 'magic.*2052|2052.*magic' --model mnist --data magic --run-dir r
refused 65 'cut/train-images-idx3-ubyte' --model mnist --data cut --run-dir r
refused 65 'label.*offset|offset.*label' --model mnist --data label --run-dir r
refused 64 'no_y.h5.*y' --model mlp --data no_y.h5 --run-dir r
refused 65 'cut.h5' --model mlp --data cut.h5 --run-dir r
[[ ! -e r ]] || fail "a refused run left its run directory: $(find r)"
train 5 --model mnist --data good --run-dir r
[[ $? == 64 ]] && grep -q '4 training samples for 5 ranks' err || fail "more ranks than samples"

# Ranks with other data or options are refused. Without the check, the run ends as if all were well, or hangs.
head -c 30000 /usr/share/common-licenses/GPL-3 >data.0
cat >as_rank <<'SCRIPT'
#!/usr/bin/env bash
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-$SLURM_PROCID}}
exec "$@" --data "data.$rank" --seed "$((rank / $ranks_with_a_seed))"
SCRIPT
chmod +x as_rank
differ() {  # RANKS PATTERN: so many ranks share a seed
  ranks_with_a_seed=$1 timeout 60 "$bin/farandole" run -n 2 -- ./as_rank "$bin/farandole" train --model gpt --layers 1 --width 8 \
    --heads 1 --context 32 --steps 200 --epochs 9 --timeline off --run-dir differ >out 2>err
  [[ $? == 64 && $(grep -c . err) == 1 ]] && grep -qE -- "$2" err || fail "ranks that differ: $2"
}
head -c 29900 data.0 >data.1
differ 2 'same data, but there are data of .* samples with hash [0-9a-f]* on rank 0, data of .* on rank 1$'
head -c 25000 data.0 >data.1
differ 2 'data of .* on rank 0, data of .* on rank 1$'
{ head -c 29999 data.0; printf '\1'; } >data.1
differ 2 'data of .* on rank 0, data of .* on rank 1$'
cp data.0 data.1
differ 1 'same options .* there are --seed 0 on rank 0, --seed 1 on rank 1$'

refused 64 "gpu-activity cannot be 'some'; give off, steps=A-B or all" "${small[@]}" --gpu-activity some --run-dir gpu
train 1 "${small[@]}" --gpu-activity all --run-dir gpu || fail "asking for a GPU's activity"
[[ -e /dev/nvidiactl ]] || grep -q 'gpu-activity: no GPU activity is recorded' err || fail "nobody says that there is no GPU"

# A run that diverges ends on all ranks, and run.json records it.
train 2 --model mlp --data good --run-dir diverged --lr 1e30 --epochs 100 --timeline off
[[ $? == 1 && $(grep -c 'the loss is .* at step [0-9]*; lower --lr' err) == 1 ]] || fail "a diverging run"
grep -q '"exit_code": 1' diverged/run.json || fail "run.json of a diverged run: $(cat diverged/run.json)"

# A run directory of another model, or of a run that must not be overwritten, is not changed.
train 2 "${small[@]}" --run-dir kept || fail "a small run"
before=$(find kept -type f | sort | xargs sha256sum)
refused 64 'another model.*width 8.*width 9' --model mlp --data synthetic --width 9 --steps 2 --timeline off --run-dir kept
refused 64 'already holds a run' "${small[@]}" --run-dir kept --resume none
refused 64 'nosuch.h5' "${small[@]}" --run-dir kept --resume nosuch.h5
refused 64 'another optimizer .sgd. than this run .adam.; .*--resume-optimizer fresh' "${small[@]}" --optimizer adam --run-dir kept
[[ $before == "$(find kept -type f | sort | xargs sha256sum)" ]] || fail "a refused run changed the run directory"
longer=(--model mlp --data synthetic --width 8 --timeline off --run-dir optimizers)
train 2 "${longer[@]}" --optimizer adam --steps 2 || fail "a run with adam"
refused 64 'another optimizer .adam. than this run .rmsprop.' "${longer[@]}" --optimizer rmsprop --steps 4
refused 64 'another optimizer .adam. than this run .sgd.' "${longer[@]}" --optimizer sgd --steps 4
train 2 "${longer[@]}" --optimizer rmsprop --steps 4 --resume-optimizer fresh || fail "--resume-optimizer fresh"
grep -q 'continuing from step 2' out || fail "it did not resume"
refused 64 '.rmsprop. than this run .rmsprop with momentum.' "${longer[@]}" --optimizer rmsprop --momentum 0.9 --steps 6
train 2 "${longer[@]}" --optimizer rmsprop --steps 6 --resume-optimizer fresh || fail "--resume-optimizer fresh with the same optimizer"
for file in kept/checkpoints/*.h5; do printf 'x' | dd of="$file" bs=1 seek=3000 conv=notrunc status=none; done
before=$(sha256sum kept/checkpoints/*)
train 2 "${small[@]}" --run-dir kept
[[ $? == 65 ]] || fail "damaged checkpoints must end with 65"
[[ $before == "$(sha256sum kept/checkpoints/*)" ]] || fail "damaged checkpoints were changed"
