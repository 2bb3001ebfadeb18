// Writes models for the tests into the current folder: of TorchScript with the compiler and the file format
// of torch.jit.script, and of torch.export.
#include <cmath>
#include <torch/script.h>

#include "train/torch_program.h"

#include "farandole/estimator/exported/archive.h"

namespace {

torch::jit::Module linear(std::int64_t inputs, std::int64_t outputs) {
  torch::jit::Module module("Linear");
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  module.register_parameter("weight",
                            torch::empty({outputs, inputs}).uniform_(-bound, bound).requires_grad_(), false);
  module.register_parameter("bias", torch::empty({outputs}).uniform_(-bound, bound).requires_grad_(), false);
  module.define("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias)\n");
  return module;
}

torch::jit::Module script(const std::string& forward) {
  torch::jit::Module module("Net");
  module.define(forward);
  return module;
}

// Layers with dropout, a buffer that forward changes, and a different result in training and evaluation.
void export_classifier(std::int64_t inputs, std::int64_t hidden, std::int64_t classes,
                       const std::string& file) {
  torch::jit::Module net("Net");
  net.register_module("fc1", linear(inputs, hidden));
  net.register_module("fc2", linear(hidden, classes));
  net.register_attribute("training", c10::BoolType::get(), true);
  net.register_buffer("calls", torch::zeros({}, torch::kInt64));
  net.define(R"(
def forward(self, x):
  if self.training:
    self.calls.add_(1)
  x = torch.flatten(x, 1) / 255
  x = torch.relu(self.fc1.forward(x))
  x = torch.dropout(x, 0.1, self.training)
  return torch.log_softmax(self.fc2.forward(x), 1)
)");
  net.save(file);
}

torch::jit::Module conv(std::int64_t inputs, std::int64_t outputs) {
  torch::jit::Module module("Conv");
  const double bound = 1 / std::sqrt(static_cast<double>(25 * inputs));
  module.register_parameter(
      "weight", torch::empty({outputs, inputs, 5, 5}).uniform_(-bound, bound).requires_grad_(), false);
  module.register_parameter("bias", torch::empty({outputs}).uniform_(-bound, bound).requires_grad_(), false);
  module.define("def forward(self, x):\n  return torch.conv2d(x, self.weight, self.bias)\n");
  return module;
}

// The network of PyTorch's and Horovod's example for MNIST, on bytes.
void export_mnist() {
  torch::jit::Module net("Net");
  net.register_module("conv1", conv(1, 10));
  net.register_module("conv2", conv(10, 20));
  net.register_module("fc1", linear(320, 50));
  net.register_module("fc2", linear(50, 10));
  net.register_attribute("training", c10::BoolType::get(), true);
  net.define(R"(
def forward(self, x):
  x = (x / 255 - 0.1307) / 0.3081
  x = torch.relu(torch.max_pool2d(self.conv1.forward(x), [2, 2]))
  x = self.conv2.forward(x)
  x = torch.relu(torch.max_pool2d(torch.feature_dropout(x, 0.5, self.training), [2, 2]))
  x = torch.relu(self.fc1.forward(torch.flatten(x, 1)))
  return torch.log_softmax(self.fc2.forward(torch.dropout(x, 0.5, self.training)), 1)
)");
  net.save("mnist.pt");
}

// As torch.export writes a linear layer and log_softmax on bytes, which are the same in
// training and evaluation.
void export_program(const std::string& file) {
  const auto weight = torch::empty({10, 784}).uniform_(-1.0 / 784, 1.0 / 784).requires_grad_();
  farandole::ExportedArchiveWriter writer(file);
  writer.add("model", R"({"graph_module": {
    "graph": {"inputs": [{"as_tensor": {"name": "p_weight"}}, {"as_tensor": {"name": "x"}}], "outputs": [{"as_tensor": {"name": "y"}}],
      "nodes": [
        {"target": "torch.ops.aten.flatten.using_ints", "outputs": [{"as_tensor": {"name": "flat"}}],
         "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}}, {"name": "start_dim", "arg": {"as_int": 1}}]},
        {"target": "torch.ops.aten.div.Tensor", "outputs": [{"as_tensor": {"name": "div"}}],
         "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "flat"}}}, {"name": "other", "arg": {"as_int": 255}}]},
        {"target": "torch.ops.aten.linear.default", "outputs": [{"as_tensor": {"name": "linear"}}],
         "inputs": [{"name": "input", "arg": {"as_tensor": {"name": "div"}}}, {"name": "weight", "arg": {"as_tensor": {"name": "p_weight"}}}]},
        {"target": "torch.ops.aten.log_softmax.int", "outputs": [{"as_tensor": {"name": "y"}}],
         "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "linear"}}}, {"name": "dim", "arg": {"as_int": 1}}]}],
      "tensor_values": {"p_weight": {"dtype": 7, "sizes": [{"as_int": 10}, {"as_int": 784}], "requires_grad": true,
        "device": {"type": "cpu", "index": null}, "strides": [], "storage_offset": {"as_int": 0}, "layout": 7}, "x": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "s0", "hint": {"as_int": 2}}}, {"as_int": 28}, {"as_int": 28}],
        "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [], "storage_offset": {"as_int": 0}, "layout": 7}}},
    "signature": {"input_specs": [{"parameter": {"arg": {"name": "p_weight"}, "parameter_name": "weight"}},
                                  {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}],
                  "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "y"}}}}]}, "module_call_graph": []},
    "schema_version": {"major": 8, "minor": 17}, "torch_version": "2.11.0"})",
             "", {{{"weight", weight, true}}, ""}, {});
  writer.close();
}

}  // namespace

int export_models(int, char**) {
  torch::manual_seed(1);
  export_mnist();
  for (const auto* const file : {"train.pt2", "eval.pt2"}) export_program(file);
  export_classifier(784, 64, 10, "net.pt");
  export_classifier(12, 16, 3, "small.pt");
  torch::jit::Module line("Net");
  line.register_module("fc", linear(2, 1));
  line.define("def forward(self, x, y):\n  return self.fc.forward(torch.stack([x, y], 1))\n");
  line.save("line.pt");
  script("def forward(self, x):\n  return torch.flatten(x, 1)\n").save("empty.pt");
  torch::jit::Module pair("Net");
  pair.register_module("fc", linear(12, 3));
  pair.define("def forward(self, x):\n  return self.fc.forward(x), x\n");
  pair.save("pair.pt");
  // A class and a value for each row.
  torch::jit::Module two("Net");
  two.register_module("digit", linear(12, 3));
  two.register_module("total", linear(12, 1));
  two.define(R"(
def forward(self, x):
  x = torch.flatten(x, 1) / 255
  return torch.log_softmax(self.digit.forward(x), 1), self.total.forward(x)
)");
  two.save("two.pt");
  // Two values for each row.
  torch::jit::Module wide("Net");
  wide.register_module("fc", linear(12, 2));
  wide.define("def forward(self, x):\n  return self.fc.forward(torch.flatten(x, 1) / 255)\n");
  wide.save("wide.pt");
  // A function of the mean of each row, whatever its length.
  torch::jit::Module mean("Net");
  mean.register_module("fc", linear(1, 1));
  mean.define("def forward(self, x):\n  return self.fc.forward(torch.mean(x, 1, True) / 100 - 1)\n");
  mean.save("mean.pt");
  // Whose parameter number i changes if and only if row i is trained on, with this loss.
  torch::jit::Module rows("Net");
  rows.register_parameter("seen", torch::zeros({60'000}).requires_grad_(), false);
  rows.define("def forward(self, x):\n  return torch.index_select(self.seen, 0, x)\n");
  rows.save("rows.pt");
  script("def forward(self, output, label):\n  return output\n").save("output.pt");
  script("def forward(self, output, label):\n  return torch.flatten(output) - label\n").save("bias.pt");
  script("def forward(self, output, label):\n  return torch.mean(torch.abs(torch.flatten(output) - label))\n")
      .save("loss.pt");
  return 0;
}
