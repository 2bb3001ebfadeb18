#!/usr/bin/env bash
# Data that cannot be read, are not the same on all ranks or make training diverge.
source "$(dirname "$0")/../common.sh"

# Four images in IDX files, and the same with one byte less. dataset_test.cc has all other damage.
/usr/bin/python3 - <<'PYTHON'
import gzip, os, struct
for folder, images in (("good", bytes(4 * 784)), ("cut", bytes(4 * 784 - 1))):
    os.makedirs(folder)
    for prefix in ("train", "t10k"):
        open(f"{folder}/{prefix}-images-idx3-ubyte", "wb").write(struct.pack(">4I", 2051, 4, 28, 28) + images)
        gzip.open(f"{folder}/{prefix}-labels-idx1-ubyte.gz", "wb").write(struct.pack(">2I", 2049, 4) + bytes([0, 1, 2, 3]))
PYTHON
refused 65 'cut/train-images-idx3-ubyte' --model mnist --data cut --run-dir r
# The folder for the copy is there: it belongs to somebody else.
mkdir node
export FAILING_FOLDERS=farandole-data- LD_PRELOAD=$bin/failing_writes.so
refused 64 '^farandole train: --data-scratch: .*/node/farandole-data-.* cannot be made: File exists; name another folder$' --model mnist --data good \
  --data-scratch "$work/node" --run-dir r
unset FAILING_FOLDERS LD_PRELOAD
[[ $(ls node | wc -l) == 1 ]] || fail "somebody else's folder: $(ls node)"
[[ ! -e r ]] || fail "a refused run left its run directory: $(find r)"
train 5 --model mnist --data good --run-dir r
[[ $? == 64 ]] && grep -q '4 training samples for 5 ranks' err || fail "more ranks than samples"

# Ranks with other data or options are refused. Without the check, the run ends as if all were well, or hangs.
cat "$text"/* | head -c 30000 >data.0
cat >as_rank <<'SCRIPT'
#!/usr/bin/env bash
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-$SLURM_PROCID}}
exec "$@" --data "data.$rank" --seed "$((rank / $ranks_with_a_seed))"
SCRIPT
chmod +x as_rank
differ() {  # RANKS PATTERN: so many ranks share a seed
  ranks_with_a_seed=$1 timeout 300 "$bin/farandole" run -n 2 -- ./as_rank "$bin/farandole" train --model gpt --layers 1 --width 8 \
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

# A run that diverges ends on all ranks, and run.json records it.
train 2 --model mlp --data good --run-dir diverged --lr 1e30 --epochs 100 --timeline off
[[ $? == 1 && $(grep -c 'step 2: .* on ranks 0, 1; the loss is not finite on ranks 0, 1; lower --lr' err) == 1 ]] || fail "a diverging run"
grep -q '"exit_code": 1' diverged/run.json || fail "run.json of a diverged run: $(cat diverged/run.json)"

# A model of bytes generates any bytes. What is printed is text, without characters that control a terminal.
head -c 20000 /dev/urandom >bytes
train 2 --model gpt --layers 1 --width 8 --heads 1 --context 32 --data bytes --steps 3 --sample 300 --timeline off --run-dir bytes.run ||
  fail "training on random bytes"
iconv -f utf-8 -t utf-8 out >/dev/null && ! grep -qP '[\x00-\x08\x0b-\x1f\x7f]' out && grep -q 'A sample of the generated text' out ||
  fail "the sample of a model of random bytes"
