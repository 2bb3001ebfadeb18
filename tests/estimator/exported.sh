#!/usr/bin/env bash
# A model that PyTorch itself exports, by torch.jit.script and by torch.jit.trace, is fitted and applied; PyTorch loads the results.
source "$(dirname "$0")/../trainer/common.sh"
need_h5py
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
export PATH=$bin:$PATH
wheel_python "$work/stand-ins" || { echo "skipped: PyTorch cannot be imported from the wheel in .deps"; exit 77; }

cat >net.py <<'PYTHON'
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Conv1d(1, 4, 3), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Flatten(),
                                          torch.nn.Dropout(0.1), torch.nn.Linear(40, 3))
    def forward(self, x):
        return torch.log_softmax(self.layers(x.unsqueeze(1)), 1)
PYTHON
/usr/bin/python3 -W ignore - <<'PYTHON' || fail "export"
import h5py, numpy, torch
from net import Net
torch.manual_seed(1)
net = Net()
torch.jit.script(net).save("script.pt")
torch.jit.trace(net.eval(), torch.zeros(2, 12)).save("trace.pt")  # Without dropout, in training, too.
random = numpy.random.default_rng(1)
with h5py.File("train.h5", "w") as file:
    file["digit"] = random.integers(0, 3, 600)
    file["x"] = (random.normal(size=(600, 12)) + numpy.eye(3).repeat(4, 1)[file["digit"][()]] * 2).astype("f4")
    file["held"] = numpy.arange(600) % 4 == 0
    with h5py.File("held.h5", "w") as held:
        for name in "digit", "x":
            held[name] = file[name][::4]
PYTHON

# Other files of models are named as what they are.
/usr/bin/python3 -W ignore - <<'PYTHON' || fail "other files"
import json, struct, torch
from net import Net
net = Net()
old = {"_use_new_zipfile_serialization": False}
torch.save(net.state_dict(), "state.pt")
torch.save(net.state_dict(), "old-state.pt", **old)
torch.save(dict(net.state_dict()), "state-4.pt", pickle_protocol=4)
torch.save({"model": net.state_dict(), "epoch": 3}, "checkpoint.pt")
torch.save(net, "module.pt")
torch.save(net, "old-module.pt", **old)
torch.save(net, "module-4.pt", pickle_protocol=4)
torch.save({"net": net}, "dict.pt")
torch.save(torch.zeros(3), "tensor.pt")
header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
open("net.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + bytes(4))
open("net.onnx", "wb").write(b"\x08\x07\x12\x07pytorch\x1a\x051.0.0\x3a\x02\x12\x00")
script = open("script.pt", "rb").read()
open("half.pt", "wb").write(script[:len(script) // 2])
PYTHON
is_named() {  # FILE CODE PATTERN
  local got=0
  timeout 300 farandole fit --store other --table train.h5 --features x --label digit --model "$1" --loss nll >out 2>err || got=$?
  [[ $got == "$2" && $(grep -c . err) == 1 ]] && grep -qE "$1 (is $3; .*|cannot be loaded .* export it) with torch.jit.script\(model\).save\(FILE\)$" err || fail "$1 has another name, or code $got"
}
for file in state old-state; do is_named $file.pt 64 'a state_dict: weights without the model'; done
for file in state-4 checkpoint; do is_named $file.pt 64 'a dict with tensors, such as a checkpoint: weights without the model'; done
for file in module old-module module-4; do is_named $file.pt 64 'a pickled nn.Module \(net.Net\), which needs its Python code'; done
is_named dict.pt 64 'a pickled dict with Python objects \(net.Net\)'
is_named tensor.pt 64 'a file of tensors without a model \(torch.save\)'
is_named net.safetensors 64 'a safetensors file: weights without the model'
is_named net.onnx 64 'an ONNX file'
is_named half.pt 65 'nothing known'
[[ ! -e other ]] || fail "left behind: $(ls other)"

# The ranks have the same running statistics when they validate and save: the recorded loss is that of the published model, and a
# run that is continued gives the same results.
of_batches=(-n 2 --store runs --table train.h5 --features x --label digit --model script.pt --loss nll --lr 0.05 --validation-column held)
timeout 300 farandole fit "${of_batches[@]}" --run whole --epochs 3 >out 2>err || fail "fit with batch normalization"
for epochs in 2 3; do
  timeout 300 farandole fit "${of_batches[@]}" --run parts --epochs $epochs >out 2>err || fail "fit of $epochs epochs"
done
grep -q '^continuing' out || fail "the second fit does not continue the first one"
timeout 300 farandole evaluate --store runs --run whole --table held.h5 --format json >score.json 2>err || fail "evaluate"
/usr/bin/python3 - <<'PYTHON' || fail "the validation loss is not that of the model"
import json
whole, parts = (json.load(open(f"runs/{run}/fit.json"))["history"] for run in ("whole", "parts"))
score = json.load(open("score.json"))
assert abs(whole[-1]["validation_loss"] - score["loss"]) < 1e-5, (whole[-1], score)
assert [e["validation_loss"] for e in whole] == [e["validation_loss"] for e in parts], (whole, parts)
PYTHON
for model in script trace; do
  timeout 300 farandole fit -n 2 --store runs --run $model --table train.h5 --features x --label digit --model $model.pt --loss nll --lr 0.05 \
    --epochs 4 --metrics accuracy >out 2>err || fail "fit of $model"
  grep -qE '^epoch 4 .*training accuracy (0\.[89]|1)' out || fail "$model learns nothing"
  timeout 300 farandole transform --store runs --run $model --table train.h5 --output $model.h5 >out 2>err || fail "transform of $model"
done
/usr/bin/python3 -W ignore - <<'PYTHON' || fail "PyTorch does not read the results"
import h5py, numpy, torch
from net import Net
x = torch.from_numpy(h5py.File("train.h5")["x"][()])
for model in ("script", "trace"):
    expected = h5py.File(f"{model}.h5")["digit__output"][()]
    state = {name: torch.from_numpy(numpy.asarray(data[()])) for name, data in h5py.File(f"runs/{model}/state.h5").items()}
    net = Net()
    net.load_state_dict(state)
    assert (state["layers.1.num_batches_tracked"] > 0) == (model == "script")
    net.eval()
    with torch.no_grad():
        assert numpy.allclose(net(x), expected, atol=1e-4), model
        assert numpy.allclose(torch.jit.load(f"runs/{model}/model.pt")(x), expected, atol=1e-4), model
PYTHON

# Weights with two names are one parameter, and have both names in the result; the optimizer keeps its state once.
cat >>net.py <<'PYTHON'
class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = torch.nn.Linear(12, 8), torch.nn.Linear(8, 3), torch.nn.Linear(12, 8)
        self.c.weight = self.a.weight
    def forward(self, x):
        return torch.log_softmax(self.b(torch.tanh(self.a(x)) * self.c(x)), 1)
class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 3))
    def forward(self, x):
        return torch.log_softmax(self.layers(x), 1)
class Raises(Tied):
    def forward(self, x):
        if x.size(0) > 1:
            raise ValueError("it is too hot")
        return x
PYTHON
/usr/bin/python3 -W ignore - <<'PYTHON' || fail "export of tied weights"
import h5py, torch, net
torch.manual_seed(1)
for name in "Tied", "Norm", "Raises":
    torch.jit.script(getattr(net, name)()).save(name.lower() + ".pt")
with h5py.File("train.h5") as whole, h5py.File("65.h5", "w") as part:
    for name in "x", "digit":
        part[name] = whole[name][:65]
PYTHON
of_few=(--store few --table 65.h5 --features x --label digit --loss nll --lr 0.01)
for optimizer in adam adamw rmsprop "sgd --momentum 0.9"; do
  for epochs in 1 2; do  # The second fit continues the first.
    timeout 300 farandole fit "${of_few[@]}" --model tied.pt --run "${optimizer%% *}" --optimizer $optimizer --batch-size 65 --epochs $epochs >out 2>err ||
      fail "tied weights with $optimizer"
  done
done
/usr/bin/python3 -W ignore - <<'PYTHON' || fail "tied weights are not trained as PyTorch does"
import h5py, torch
from net import Tied
torch.manual_seed(1)
net = Tied()
net.load_state_dict(torch.jit.load("tied.pt").state_dict())
adam = torch.optim.Adam(net.parameters(), 0.01)
table = h5py.File("65.h5")
for step in range(2):
    adam.zero_grad()
    torch.nn.functional.nll_loss(net(torch.from_numpy(table["x"][()])), torch.from_numpy(table["digit"][()])).backward()
    adam.step()
state = {name: torch.from_numpy(data[()]) for name, data in h5py.File("few/adam/state.h5").items()}
trained = torch.jit.load("few/adam/model.pt")
assert trained.a.weight is trained.c.weight or torch.equal(trained.a.weight, trained.c.weight)
assert set(state) == set(net.state_dict()) == set(trained.state_dict()), set(state)
for name, value in net.state_dict().items():
    for other in state[name], trained.state_dict()[name]:
        assert torch.allclose(value, other, atol=1e-5), name
PYTHON

# Batch normalization does not train on one row. That is said before the first step, or the row is left out.
refused() {  # PATTERN OPTION...
  local got=0
  timeout 300 farandole fit "${of_few[@]}" --store refused "${@:2}" >out 2>err || got=$?
  [[ $got == 64 && $(grep -c . err) == 1 ]] && grep -qE "$1" err || fail "code $got, not 64 with '$1': ${*:2}"
  [[ ! -e refused ]] || fail "left behind: $(ls refused)"
}
reason='ValueError: Expected more than 1 value per channel when training, got input size .*1, 8'
for options in '--batch-size 64' '--batch-size 32' '-n 2 --batch-size 32'; do
  refused "norm.pt does not train on a batch of one row, which the last batch .*$reason.*--batch-size, or .* with --drop-last" --model norm.pt $options
done
refused "norm.pt does not train on a batch of one row, which --batch-size 1 asks for \($reason.*; choose another --batch-size$" --model norm.pt --batch-size 1
refused '65.h5 has 65 rows to train on, which fill no batch of 33 rows on 2 ranks' --model norm.pt -n 2 --batch-size 33 --drop-last
for options in '--batch-size 64 --drop-last' '-n 2 --batch-size 32 --drop-last' '--batch-size 33'; do
  timeout 300 farandole fit "${of_few[@]}" --model norm.pt $options --epochs 2 >out 2>err || fail "batch normalization with $options"
done
[[ $(tail -n 1 few/fit-0001/metrics.jsonl) == *'"step":2,'* ]] || fail "other steps: $(<few/fit-0001/metrics.jsonl)"
# What the model raises has nothing to do with the features.
refused 'raises.pt failed on features of shape \[32, 12\]: ValueError: it is too hot$' --model raises.pt
