#!/usr/bin/env bash
# Run directories that were copied, partly deleted or damaged. The doctor reports what is known, and why
# the rest is unknown.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

FARANDOLE_STALL_SECONDS=0 job 137 3 kill 2 --log-dir run/logs
cp -r run whole
printf '{"ranks": 3, "exit_code": 0, "started": "2026-01-01T00:00:00Z", "hosts": ["a", "b", "c"]}' >whole/run.json
printf '{"step":2,"loss":1.5}\n{"step":3,"lo' >whole/metrics.jsonl
mkdir whole/checkpoints
touch whole/checkpoints/step-00000002.h5
fresh() { rm -rf copy; cp -r whole copy; }
# found CAUSE [VERDICT]: what the doctor finds in the copy.
found() {
  diagnosed copy
  field cause "$1"
  [[ -z ${2-} ]] || verdict "$2"
}

fresh
found killed '^Rank 2 on .* was killed by signal 9'
field checkpoint_step 2
field troubles '[]'
says out 'metrics.jsonl ends at step 2'
says out 'the same command continues from step 2 if the program calls resume\(\) of farandole::Run'

# The doctor needs neither MPI nor LibTorch nor any other program.
expect 0 env -i PATH=/proc/nonexistent "$doctor" copy
if ldd "$doctor" | grep -E 'libmpi|libtorch|libc10|libhdf5'; then fail "it links what it is to do without"; fi

# Without the launcher's records the cause comes from the logs, then from the recorders, then from run.json.
rm -r copy/launch
found killed '^Rank 2 on .* was killed by signal 9 .* in step 3, in backward; ranks 0, 1 waited in allreduce #3'
field time None
rm -r copy/logs
diagnosed copy
verdict 'exit code 0|ended normally|unknown'
rm copy/run.json
found unknown "^Why the run ended is unknown: .*; according to the flight recorders, ranks 0, 1 waited in allreduce #3 'bucket 0' for rank 2 on"
rm copy/recorder/rank-0000.ftl copy/recorder/rank-0001.ftl
found unknown
rm -r copy/recorder
found unknown
rm copy/metrics.jsonl copy/pid.*
rm -r copy/checkpoints
expect 64 "$doctor" copy
[[ $(wc -l <"$work/err") == 1 ]] || fail "more than a line: $(<"$work/err")"
expect 64 "$doctor" nowhere

# Damaged files: one line each, and the verdict is unchanged.
fresh
printf '{"ranks": 3, ' >copy/run.json
for r in 0 1; do truncate -s 3000 copy/recorder/rank-000$r.ftl; done
printf 'what is this' >copy/launch/job.json
head -c 100 /dev/urandom >copy/launch/rank-0001.json
head -c 10000 /dev/urandom >>copy/logs/rank-0000.log
found killed '^Rank 2 on .* was killed by signal 9 .* in step 3, in backward'
for file in run.json job.json rank-0000.ftl rank-0001.ftl; do says out "$file"; done
[[ $(python3 -c 'import json; print(len(json.load(open("out.json"))["troubles"]))') -ge 4 ]] || fail "troubles: $(<out.json)"

# Records with wrong contents.
for json in '{}' '[]' '7' '{"rank":-1,"host":"x","exit_code":0,"signal":9,"told":false,"time_ns":1}' \
  '{"rank":2000000000,"host":"x","exit_code":0,"signal":9,"told":false,"time_ns":1}' \
  '{"rank":"a","host":3,"exit_code":{},"signal":9,"told":false,"time_ns":1}'; do
  fresh
  printf '%s' "$json" >copy/launch/rank-0000.json
  found killed '^Rank 2 on .* was killed by signal 9'
done

# A FIFO in the place of a file is named, and nobody waits for its writer.
fresh
for file in run.json metrics.jsonl launch/job.json launch/rank-0000.json logs/rank-0000.log recorder/rank-0000.ftl; do
  rm -f "copy/$file"
  mkfifo "copy/$file"
done
ln -s /proc/nonexistent copy/recorder/rank-0000.node
expect 0 timeout 300 "$doctor" copy
for file in run.json metrics.jsonl job.json rank-0000.json rank-0000.ftl; do
  [[ $(tr '\n' ' ' <out | grep -oE "$file +cannot +be +read: +it +is +not +a" | wc -l) == 1 ]] || fail "$file is not named: $(<out)"
done
expect 0 timeout 300 "$bin/farandole-doctor" copy --format json

# What would take the stack or all memory is named.
for text in '{"config": '"$(printf '[%.0s' {1..100000})" hole; do
  fresh
  printf '%s' "$text" >copy/run.json
  [[ $text != hole ]] || truncate -s 60G copy/run.json
  found killed '^Rank 2 on .* was killed by signal 9'
  tr '\n' ' ' <out | grep -qE 'copy/run.json +is +damaged' || fail "run.json is not named: $(<out)"
  expect 0 "$bin/farandole" status copy
  says err '^farandole status: copy/run.json is damaged'
done

# Escape characters do not reach the terminal.
expect 64 "$bin/farandole-doctor" $'no\e[31mwhere'
grep -q $'\e' err && fail "an escape character is printed"

# Nothing is known: exit code 65.
rm -rf ruin
mkdir -p ruin/recorder
printf 'no json' >ruin/run.json
printf 'no recorder' >ruin/recorder/rank-0000.ftl
expect 65 "$doctor" ruin
[[ $(wc -l <"$work/err") == 1 ]] || fail "more than a line: $(<"$work/err")"
silent out

# Every flipped bit: no crash.
fresh
python3 - <<'PY'
import os, random, subprocess, shutil
random.seed(int(os.environ.get("FARANDOLE_TEST_SEED", "1")))
doctor = os.path.join(os.environ["FARANDOLE_BIN"], "farandole-doctor")
files = [os.path.join(folder, name) for folder, _, names in os.walk("copy") for name in names]
sound = {file: open(file, "rb").read() for file in files}
for round in range(200 if "FARANDOLE_TEST_SEED" in os.environ else 20):
    for file in random.sample(files, 3):
        data = bytearray(sound[file])
        if random.random() < 0.3:
            del data[random.randrange(len(data) + 1):]
        for _ in range(random.choice([1, 10, 100])):
            if data:
                data[min(int(random.expovariate(1 / 3000)), len(data) - 1)] = random.randrange(256)
        open(file, "wb").write(data)
    code = subprocess.run([doctor, "copy", "--format", random.choice(["text", "json"])], capture_output=True, timeout=20).returncode
    assert code in (0, 64, 65), f"exit code {code} in round {round}"
    if round % 10 == 9:
        for file in files:
            open(file, "wb").write(sound[file])
PY
[[ $? == 0 ]] || fail "a damaged copy"
exit $((failures > 0))
