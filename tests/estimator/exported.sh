#!/usr/bin/env bash
# A model that PyTorch itself exports, by torch.jit.script and by torch.jit.trace, is fitted and applied; PyTorch loads the results.
source "$(dirname "$0")/models.sh"
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python || { echo "skipped: PyTorch cannot be imported from the wheel in .deps"; exit 77; }

cat >net.py <<'PYTHON'
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Conv1d(1, 4, 3), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Flatten(),
                                          torch.nn.Dropout(0.1), torch.nn.Linear(40, 3))
    def forward(self, x):
        return torch.log_softmax(self.layers(x.unsqueeze(1)), 1)
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
/usr/bin/python3 -W ignore - <<'PYTHON' || fail "export"
import h5py, json, numpy, struct, torch
import net as net_module
torch.manual_seed(1)
net = net_module.Net()
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
    with h5py.File("65.h5", "w") as part:
        for name in "x", "digit":
            part[name] = file[name][:65]
for name in "Tied", "Norm", "Raises":
    torch.jit.script(getattr(net_module, name)()).save(name.lower() + ".pt")

# Other files of models are named as what they are.
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
  refuse "$2" "$1 (is $3; .*|cannot be loaded .* export it) with torch.jit.script\(model\).save\(FILE\)$" \
    --store other --table train.h5 --features x --label digit --model "$1" --loss nll
}
for file in state old-state; do is_named $file.pt 64 'a state_dict: weights without the model'; done
for file in state-4 checkpoint; do is_named $file.pt 64 'a dict with tensors, such as a checkpoint: weights without the model'; done
for file in module old-module module-4; do is_named $file.pt 64 'a pickled nn.Module \(net.Net\), which needs its Python code'; done
is_named dict.pt 64 'a pickled dict with Python objects \(net.Net\)'
is_named tensor.pt 64 'a file of tensors without a model \(torch.save\)'
is_named net.safetensors 64 'a safetensors file: weights without the model'
is_named net.onnx 64 'an ONNX file'
is_named half.pt 65 'nothing known'
all_refused 1
[[ ! -e other ]] || fail "left behind: $(ls other)"

# The ranks have the same running statistics when they validate and save: the recorded loss is that of the published model, and a
# run that is continued gives the same results.
of_batches="--store runs --table train.h5 --features x --label digit --loss nll --lr 0.05"
script="$of_batches --model script.pt --validation-column held"
many 2 "$script --run whole --epochs 3" "$script --run parts --epochs 2" "$script --run parts --epochs 3" \
  "$of_batches --run script --model script.pt --epochs 4 --metrics accuracy" "$of_batches --run trace --model trace.pt --epochs 4 --metrics accuracy" ||
  fail "fits of exported models"
[[ $(grep -c '^continuing from' out) == 1 ]] || fail "the second fit does not continue the first one"
[[ $(grep -cE '^epoch 4 .*training accuracy (0\.[89]|1)' out) == 2 ]] || fail "a model learns nothing"
timeout 300 farandole evaluate --store runs --run whole --table held.h5 --format json >score.json 2>err || fail "evaluate"
/usr/bin/python3 - <<'PYTHON' || fail "the validation loss is not that of the model"
import json
whole, parts = (json.load(open(f"runs/{run}/fit.json"))["history"] for run in ("whole", "parts"))
score = json.load(open("score.json"))
assert abs(whole[-1]["validation_loss"] - score["loss"]) < 1e-5, (whole[-1], score)
assert [e["validation_loss"] for e in whole] == [e["validation_loss"] for e in parts], (whole, parts)
PYTHON
for model in script trace; do
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
of_few="--table 65.h5 --features x --label digit --loss nll --lr 0.01"
fits=()
for optimizer in adam adamw rmsprop "sgd --momentum 0.9"; do
  for epochs in 1 2; do  # The second fit continues the first.
    fits+=("--store few $of_few --model tied.pt --run ${optimizer%% *} --optimizer $optimizer --batch-size 65 --epochs $epochs")
  done
done
# Batch normalization does not train on one row, which is left out.
norm="$of_few --model norm.pt --epochs 2"
many 1 "${fits[@]}" "--store few $norm --batch-size 64 --drop-last" "--store few $norm --batch-size 33" ||
  fail "fits of tied weights or with batch normalization"
many 2 "--store two $norm --batch-size 32 --drop-last" || fail "batch normalization on 2 ranks"
for run in few two; do [[ $(tail -n 1 $run/fit-0001/metrics.jsonl) == *'"step":2,'* ]] || fail "other steps: $(<$run/fit-0001/metrics.jsonl)"; done
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

# That is said before the first step.
reason='ValueError: Expected more than 1 value per channel when training, got input size .*1, 8'
one_row="norm.pt does not train on a batch of one row, which the last batch .*$reason.*--batch-size, or .* with --drop-last"
few=(--store refused $of_few)
refuse 64 "$one_row" "${few[@]}" --model norm.pt --batch-size 64
refuse 64 "$one_row" "${few[@]}" --model norm.pt --batch-size 32
refuse 64 "norm.pt does not train on a batch of one row, which --batch-size 1 asks for \($reason.*; choose another --batch-size$" "${few[@]}" --model norm.pt --batch-size 1
# What the model raises has nothing to do with the features.
refuse 64 'raises.pt failed on features of shape \[32, 12\]: ValueError: it is too hot$' "${few[@]}" --model raises.pt
all_refused 1
refuse 64 "$one_row" "${few[@]}" --model norm.pt --batch-size 32
refuse 64 '65.h5 has 65 rows to train on, which fill no batch of 33 rows on 2 ranks' "${few[@]}" --model norm.pt --batch-size 33 --drop-last
all_refused 2
[[ ! -e refused ]] || fail "left behind: $(ls refused)"
