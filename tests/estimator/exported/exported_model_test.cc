#include "farandole/estimator/models/exported_model.h"

#include <ATen/autocast_mode.h>
#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>
#include <random>
#include <torch/utils.h>

#include "estimator/fixtures.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/estimator/models/show_model.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ExportedModelTest : public testing::Test {
 protected:
  // Parts of torch.export's documents.
  static std::string tensor(const std::string& name) {
    return fmt::format(R"({{"as_tensor": {{"name": "{}"}}}})", name);
  }

  static std::string meta(const std::string& sizes, int dtype = 7, const std::string& strides = "[]") {
    return fmt::format(
        R"({{"dtype": {}, "sizes": {}, "requires_grad": false, "device": {{"type": "cpu", "index": null}}, "strides": {},
           "storage_offset": {{"as_int": 0}}, "layout": 7}})",
        dtype, sizes, strides);
  }

  static std::string rows() { return R"({"as_expr": {"expr_str": "s0", "hint": {"as_int": 4}}})"; }

  // A node. `inputs` is a JSON object: the operator's parameters.
  static std::string node(const std::string& target, const std::string& inputs, const std::string& outputs) {
    const auto members = parse_json(inputs);
    Json list = Json::array();
    for (const auto& [name, value] : members.items())
      list.push_back({{"name", name.starts_with("#") ? "" : name}, {"arg", value}, {"kind", 1}});
    return json_text({{"target", target},
                      {"inputs", list},
                      {"outputs", parse_json(outputs)},
                      {"metadata", Json::object()}});
  }

  static std::string graph(const std::string& inputs, const std::string& nodes, const std::string& outputs) {
    const auto weight = meta(R"([{"as_int": 3}, {"as_int": 3}])");
    return fmt::format(
        R"({{"inputs": {}, "outputs": {}, "nodes": [{}], "tensor_values": {{"x": {}, "i": {}, "p_a": {}, "p_b": {}, "b_calls": {}}}}})",
        inputs, outputs, nodes, meta(fmt::format(R"([{}, {{"as_int": 3}}])", rows())),
        meta(fmt::format("[{}]", rows()), 5), weight, weight, meta("[]"));
  }

  // A program with an input x [rows, 3], a parameter a.weight [3, 3] that is also b.weight, a buffer "calls"
  // and an output y.
  static std::string program(const std::string& nodes, const std::string& output = "y", int major = 8) {
    const auto inputs =
        fmt::format("[{}, {}, {}, {}]", tensor("p_a"), tensor("p_b"), tensor("b_calls"), tensor("x"));
    return fmt::format(
        R"({{"graph_module": {{"graph": {}, "signature": {{
          "input_specs": [{{"parameter": {{"arg": {{"name": "p_a"}}, "parameter_name": "a.weight"}}}},
                          {{"parameter": {{"arg": {{"name": "p_b"}}, "parameter_name": "b.weight"}}}},
                          {{"buffer": {{"arg": {{"name": "b_calls"}}, "buffer_name": "calls", "persistent": true}}}},
                          {{"user_input": {{"arg": {}}}}}],
          "output_specs": [{{"user_output": {{"arg": {}}}}}]}}, "module_call_graph": []}},
        "schema_version": {{"major": {}, "minor": 17}}, "torch_version": "2.11.0"}})",
        graph(inputs, nodes, fmt::format("[{}]", tensor(output))), tensor("x"), tensor(output), major);
  }

  static std::string linear() {
    return node("torch.ops.aten.linear.default",
                fmt::format(R"({{"input": {}, "weight": {}}})", tensor("x"), tensor("p_a")),
                fmt::format("[{}]", tensor("h")));
  }
  static std::string call(const std::string& operation, const std::string& inputs,
                          const std::string& output = "y") {
    return linear() + "," + node("torch.ops.aten." + operation, inputs, fmt::format("[{}]", tensor(output)));
  }
  static std::string dropout(bool trains) {
    return call("dropout.default",
                fmt::format(R"({{"input": {}, "p": {{"as_float": 0.5}}, "train": {{"as_bool": {}}}}})",
                            tensor("h"), trains));
  }
  static std::string relu() { return call("relu.default", fmt::format(R"({{"self": {}}})", tensor("h"))); }

  using Programs = std::vector<std::pair<std::string, std::string>>;

  std::string written(const std::string& name, const Programs& programs) const {
    torch::manual_seed(1);
    auto weight = torch::rand({3, 3});
    weight.set_requires_grad(true);
    const ExportedTensors weights{
        {{"a.weight", weight, true}, {"b.weight", weight, true}, {"calls", torch::zeros({}), false}}, ""};
    const auto file = (folder_ / name).string();
    ExportedArchiveWriter writer(file);
    const ExportedTensors constants{{{"calls", torch::zeros({}), false}}, ""};
    for (const auto& [program, document] : programs) writer.add(program, document, "", weights, constants);
    writer.close();
    return file;
  }
  // The output of a model with these nodes, on x.
  torch::Tensor result(const std::string& nodes) const {
    ExportedModel model(written("net.pt2", {{"model", program(nodes)}}), {}, torch::kCPU);
    return model.forward({x_}, 1)[0];
  }
  std::string refusal(const Programs& programs) const {
    const auto file = written("net.pt2", programs);
    return message_of<UserError>([&] { ExportedModel(file, {}, torch::kCPU); });
  }
  std::string damage(const std::string& document) const {
    const auto file = written("net.pt2", {{"model", document}});
    message_of<CorruptInput>([&] { show_model(file); });
    return message_of<CorruptInput>([&] { ExportedModel(file, {}, torch::kCPU); });
  }

  const TemporaryFolder folder_;
  const torch::Tensor x_ = torch::tensor({{1.0F, -2.0F, 3.0F}, {-4.0F, 5.0F, -6.0F}});
};

TEST_F(ExportedModelTest, TrainsTheTensorsOfTheArchive) {
  ExportedModel model(written("net.pt2", {{"model", program(relu())}}), {}, torch::kCPU);
  EXPECT_THAT(model.module().named_parameters().keys(), ElementsAre("a.weight"));
  EXPECT_THAT(model.module().named_buffers().keys(), ElementsAre("calls"));
  const auto weight = model.trained_parameters().at(0);
  const auto y = model.forward({x_}, 1)[0];
  EXPECT_TRUE(torch::equal(y, torch::relu(torch::linear(x_, weight))));
  y.sum().backward();
  EXPECT_TRUE(weight.grad().defined());
  weight.detach().fill_(0.5);
  model.save(folder_ / "trained.pt2");
  model.save_state(folder_ / "state.h5");
  ExportedModel trained(folder_ / "trained.pt2", {}, torch::kCPU);
  EXPECT_TRUE(torch::equal(trained.forward({x_}, 1)[0], torch::relu(torch::linear(x_, weight))));
  EXPECT_EQ(trained.trained_parameters().size(), 1U);
  EXPECT_EQ(model.why_not_trained_on({torch::ones({1, 3})}), "");
  EXPECT_THAT(
      show_model(folder_ / "trained.pt2"),
      AllOf(HasSubstr("inputs      x float32 [rows, 3]"), HasSubstr("aten.linear.default, aten.relu.default"),
            HasSubstr("9 numbers in 1 tensors"), HasSubstr("missing     none")));
}

// What torch.ops does with arguments in Python.
TEST_F(ExportedModelTest, ConvertsArgumentsAsPythonDoes) {
  const torch::NoGradGuard no_grad;
  const auto h = result(call("alias.default", fmt::format(R"({{"self": {}}})", tensor("h"))));
  const auto self = fmt::format(R"("self": {})", tensor("h"));
  const auto of = [&](const std::string& operation, const std::string& inputs) {
    return result(call(operation, fmt::format("{{{}, {}}}", self, inputs)));
  };
  EXPECT_TRUE(torch::equal(of("add.Tensor", R"("other": {"as_int": 2}, "alpha": {"as_float": 0.5})"), h + 1));
  EXPECT_TRUE(
      torch::equal(of("leaky_relu.default", R"("negative_slope": {"as_int": 2})"), torch::leaky_relu(h, 2)));
  EXPECT_TRUE(
      torch::equal(of("mean.dim", R"("dim": {"as_int": 1}, "keepdim": {"as_bool": true})"), h.mean(1, true)));
  EXPECT_TRUE(torch::equal(of("clamp.default", R"("min": {"as_float": "-Infinity"}, "max": {"as_int": 1})"),
                           h.clamp_max(1)));
  EXPECT_EQ(of("to.dtype", R"("dtype": {"as_scalar_type": 8})").scalar_type(), torch::kFloat64);
  EXPECT_TRUE(torch::equal(of("sum.dim_IntList", R"("dim": {"as_none": true}, "keepdim": {"as_bool": true})"),
                           h.sum().reshape({1, 1})));
  const auto places = node("torch.ops.aten.arange.default",
                           R"({"end": {"as_int": 2}, "device": {"as_device": {"type": "cuda", "index": 7}}})",
                           R"([{"as_tensor": {"name": "i"}}])");
  const auto indexed =
      R"("indices": {"as_optional_tensors": [{"as_none": true}, {"as_tensor": {"name": "i"}}]})";
  EXPECT_TRUE(
      torch::equal(result(places + "," + call("index.Tensor", fmt::format("{{{}, {}}}", self, indexed))),
                   h.slice(1, 0, 2)));
}

TEST_F(ExportedModelTest, ComputesSizesAsPythonDoes) {
  const torch::NoGradGuard no_grad;
  const auto value = [&](const std::string& function, const std::string& arguments) {
    Json named = Json::object();
    for (const auto& argument : parse_json(arguments)) named[fmt::format("#{}", named.size())] = argument;
    const auto size = node(function, json_text(named), R"([{"as_sym_int": {"as_name": "n"}}])");
    const auto add = node(
        "torch.ops.aten.mul.Scalar",
        fmt::format(R"({{"self": {}, "other": {{"as_sym_int": {{"as_name": "n"}}}}}})", tensor("b_calls")),
        fmt::format("[{}]", tensor("z")));
    const auto sum =
        node("torch.ops.aten.add.Scalar",
             fmt::format(R"({{"self": {}, "other": {{"as_sym_int": {{"as_name": "n"}}}}}})", tensor("z")),
             fmt::format("[{}]", tensor("y")));
    return result(size + "," + add + "," + sum).item<double>();
  };
  const auto whole = [](int a, int b) {
    return fmt::format(R"([{{"as_int": {}}}, {{"as_int": {}}}])", a, b);
  };
  EXPECT_EQ(value("_operator.add", whole(3, 4)), 7);
  EXPECT_EQ(value("_operator.sub", whole(3, 4)), -1);
  EXPECT_EQ(value("_operator.mul", whole(3, 4)), 12);
  EXPECT_EQ(value("_operator.floordiv", whole(-7, 2)), -4);
  EXPECT_EQ(value("_operator.mod", whole(-7, 3)), 2);
  EXPECT_EQ(value("_operator.truediv", whole(7, 2)), 3.5);
  EXPECT_EQ(value("_operator.pow", whole(2, 10)), 1024);
  EXPECT_EQ(value("_operator.rshift", whole(9, 1)), 4);
  EXPECT_EQ(value("torch.sym_max", whole(3, 4)), 4);
  EXPECT_EQ(value("torch.sym_int", R"([{"as_float": -2.5}])"), -2);
  EXPECT_THAT(message_of<UserError>([&] { value("_operator.floordiv", whole(1, 0)); }),
              HasSubstr("divided by 0"));
  EXPECT_THAT(message_of<UserError>([&] { value("_operator.pow", whole(2, 64)); }), HasSubstr("too large"));
}

TEST_F(ExportedModelTest, ChoosesTheProgramOfEachModeByContent) {
  for (const bool first : {true, false}) {
    ExportedModel model(written("net.pt2", {{"a", program(dropout(first))}, {"b", program(dropout(!first))}}),
                        {}, torch::kCPU);
    const auto whole = torch::linear(x_, model.trained_parameters()[0]);
    const auto trained = model.forward({x_}, 1)[0];
    EXPECT_TRUE(((trained == 0) | (trained == 2 * whole)).all().item<bool>());
    EXPECT_FALSE(torch::equal(trained, whole));
    model.train(false);
    EXPECT_TRUE(torch::equal(model.forward({x_}, 1)[0], whole));
  }
  const auto training = written("training.pt2", {{"model", program(dropout(true))}});
  const auto evaluation = written("evaluation.pt2", {{"model", program(dropout(false))}});
  ExportedModel model(training, evaluation, torch::kCPU);
  model.save(folder_ / "both.pt2");
  EXPECT_THAT(show_model(folder_ / "both.pt2"),
              AllOf(HasSubstr("model, for evaluation"), HasSubstr("train, for training")));
  EXPECT_THAT(message_of<UserError>([&] { ExportedModel(training, training, torch::kCPU); }),
              AllOf(HasSubstr("are for training (aten.dropout)"),
                    HasSubstr("torch.export.export(net.eval(), example")));
}

TEST_F(ExportedModelTest, NamesWhatMakesAModelUsable) {
  EXPECT_THAT(
      refusal({{"model", program(dropout(true))}}),
      AllOf(
          HasSubstr("net.pt2 cannot be used: it has only the program for training, and aten.dropout differs"),
          HasSubstr(
              "torch.export.export(net.eval(), example, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))"),
          HasSubstr("--eval-model")));
  EXPECT_THAT(refusal({{"model", program(dropout(false))}}),
              HasSubstr("torch.export.export(net.train(), example"));
  EXPECT_THAT(refusal({{"model", program(relu(), "y", 9)}}), HasSubstr("version 9 of torch.export's schema"));
  EXPECT_THAT(refusal({{"model", program(call("no_such.default", "{}"))}}),
              HasSubstr("it needs torch.ops.aten.no_such.default, which"));
  EXPECT_THAT(refusal({{"model", program(call("from_file.default", "{}"))}}),
              HasSubstr("it needs torch.ops.aten.from_file.default"));
  EXPECT_THAT(
      refusal({{"model", program(linear() + "," +
                                 node("torch.ops.higher_order.scan", "{}", "[" + tensor("y") + "]"))}}),
      AllOf(HasSubstr("it needs torch.ops.higher_order.scan"), HasSubstr("by a loop of Python")));
  auto returns = parse_json(program(relu()));
  const auto also = [&](const char* kind, int value) {
    returns["graph_module"]["graph"]["outputs"].push_back({{kind, value}});
    returns["graph_module"]["signature"]["output_specs"].push_back(
        {{"user_output", {{"arg", {{kind, value}}}}}});
    return json_text(returns);
  };
  ExportedModel with_none(written("net.pt2", {{"model", also("as_none", 1)}}), {}, torch::kCPU);
  EXPECT_TRUE(with_none.forward({x_}, 1)[0].defined());
  EXPECT_THAT(refusal({{"model", also("as_int", 7)}}), HasSubstr("torch.as_tensor"));
  auto fixed = parse_json(program(relu()));
  fixed["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0] = {{"as_int", 4}};
  EXPECT_THAT(refusal({{"model", json_text(fixed)}}),
              AllOf(HasSubstr("x has shape float32 [4, 3]"), HasSubstr("dynamic_shapes=")));
  ExportedModel model(written("net.pt2", {{"model", program(relu())}}), {}, torch::kCPU);
  for (const auto& wrong : {torch::ones({2, 4}), torch::ones({2})})
    EXPECT_THAT(message_of<UserError>([&] { model.forward({wrong}, 1); }),
                HasSubstr("net.pt2 takes x float32 [rows, 3], and gets float32 [2"));
}

TEST_F(ExportedModelTest, RunsBlocks) {
  const auto inner = [&](const std::string& operation) {
    return fmt::format(R"({{"as_graph": {{"name": "g", "graph": {}}}}})",
                       graph("[" + tensor("v") + "]",
                             node("torch.ops.aten." + operation,
                                  fmt::format(R"({{"self": {}}})", tensor("v")), "[" + tensor("w") + "]"),
                             "[" + tensor("w") + "]"));
  };
  const auto block = [&](const std::string& name, const std::string& arguments) {
    return program(linear() + "," +
                   node("torch.ops.higher_order." + name, arguments, "[" + tensor("y") + "]"));
  };
  const auto run = [&](const std::string& document) {
    ExportedModel model(written("net.pt2", {{"model", document}}), {}, torch::kCPU);
    return model.forward({x_}, 1)[0];
  };
  EXPECT_FALSE(run(block("wrap_with_set_grad_enabled",
                         fmt::format(R"({{"#0": {{"as_bool": false}}, "#1": {}, "#2": {}}})",
                                     inner("relu.default"), tensor("h"))))
                   .requires_grad());
  const auto autocast = fmt::format(
      R"({{"#0": {{"as_string": "cpu"}}, "#1": {{"as_scalar_type": 13}}, "#2": {{"as_bool": true}}, "#3": {{"as_none": true}}, "#4": {}, "#5": {}}})",
      inner("t.default"), tensor("h"));
  EXPECT_TRUE(run(block("wrap_with_autocast", autocast)).requires_grad());
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  for (const bool yes : {true, false}) {
    const auto condition =
        node("torch.ops.aten.gt.Scalar",
             fmt::format(R"({{"self": {}, "other": {{"as_int": {}}}}})", tensor("b_calls"), yes ? -1 : 1),
             "[" + tensor("c") + "]");
    const auto taken = run(program(
        linear() + "," + condition + "," +
        node("torch.ops.higher_order.cond",
             fmt::format(R"({{"#0": {}, "#1": {}, "#2": {}, "#3": {{"as_tensors": [{{"name": "h"}}]}}}})",
                         tensor("c"), inner("relu.default"), inner("neg.default"), tensor("h")),
             "[" + tensor("y") + "]")));
    EXPECT_EQ((taken < 0).any().item<bool>(), !yes) << taken;
  }
}

// Dropout of whole layers, for example, leaves no operator that says which program trains.
TEST_F(ExportedModelTest, ChoosesTheProgramOfEachModeByNameIfContentDoesNotTell) {
  const auto negated = program(call("neg.default", fmt::format(R"({{"self": {}}})", tensor("h"))));
  const auto trained = [&](const std::string& file, const std::string& other) {
    ExportedModel model(file, other, torch::kCPU);
    return (model.forward({x_}, 1)[0] >= 0).all().item<bool>();
  };
  const auto file = written("net.pt2", {{"model", negated}, {"train", program(relu())}});
  EXPECT_TRUE(trained(file, ""));
  EXPECT_THAT(refusal({{"a", negated}, {"b", program(relu())}}), HasSubstr("call it \"train\""));
  const auto one = written("one.pt2", {{"model", negated}}),
             other = written("other.pt2", {{"model", program(relu())}});
  EXPECT_TRUE(trained(other, one));
  EXPECT_FALSE(trained(one, other));
}

TEST_F(ExportedModelTest, ChangesBuffersInBothModes) {
  const auto counts = program(
      node("torch.ops.aten.add_.Scalar",
           fmt::format(R"({{"self": {}, "other": {{"as_int": 1}}}})", tensor("b_calls")),
           "[" + tensor("c") + "]") +
      "," + call("add.Tensor", fmt::format(R"({{"self": {}, "other": {}}})", tensor("h"), tensor("c"))));
  EXPECT_THAT(refusal({{"model", counts}}), HasSubstr("aten.add_ differs in evaluation"));
  auto other = parse_json(counts);
  other["graph_module"]["signature"]["input_specs"][2]["buffer"]["persistent"] = false;
  for (const auto& document : {counts, json_text(other)}) {
    const auto file = written("net.pt2", {{"train", document}, {"eval", document}});
    ExportedModel model(file, {}, torch::kCPU);
    EXPECT_EQ(model.why_not_trained_on({x_}), "");
    const auto whole = torch::linear(x_, model.trained_parameters()[0]);
    EXPECT_TRUE(torch::equal(model.forward({x_}, 1)[0], whole + 1));
    model.train(false);
    EXPECT_TRUE(torch::equal(model.forward({x_}, 1)[0], whole + 2));
  }
}

// A Python `if` on sizes has chosen the graph; for other sizes, it would be another.
TEST_F(ExportedModelTest, RefusesSizesForWhichTheProgramWasNotRecorded) {
  const SizeGuards none(
      {"L['x'].size()[2] == 7", "L['y'].size()[0] == 7", "Max(1, 2) == 7", "1.5 < 1", "1 <"}, {"x"});
  EXPECT_EQ(none.violated_by({x_}), "");
  for (const std::string part : {"not ", "(", "-"}) {
    std::string deep;
    for (int i = 0; i < 1'000'000; ++i) deep += part;
    EXPECT_EQ(SizeGuards({deep + "1 == 2"}, {"x"}).violated_by({x_}), "");
  }
  const std::vector<std::pair<std::string, bool>> cases = {
      {"L['x'].size()[0] < 10", true},
      {"L['x'].size()[0] % 2 != 0", false},
      {"(4*L['x'].size()[0]) // 3 == 2", true},
      {"2 <= L['x'].size()[0] < 2", false},
      {"-L['x'].size()[1] // 2 == -2", true},
      {"-L['x'].size()[1] % 2 == 1", true},
      {"L['x'].size()[0] - 2 - 1 == -1", true},
      {"not (L['x'].size()[0] == 2 and L['x'].size()[1] != 3) or 1 > 2", true},
      {"not L['x'].size()[0] == 2", false},
      {"L['x'].size()[0] == 3 or L['x'].size()[1] == 2", false},
  };
  for (const auto& [expression, holds] : cases)
    EXPECT_EQ(SizeGuards({expression}, {"x"}).violated_by({x_}), holds ? "" : expression);

  auto document = parse_json(program(relu()));
  const auto refused = [&](std::int64_t rows) {
    ExportedModel model(written("net.pt2", {{"model", json_text(document)}}), {}, torch::kCPU);
    return message_of<UserError>([&] { model.forward({torch::ones({rows, 3})}, 1); });
  };
  document["guards_code"] = {"L['x'].size()[0] < 10"};
  EXPECT_THAT(refused(12),
              AllOf(HasSubstr("net.pt2 holds for inputs with L['x'].size()[0] < 10 only, and gets 12 rows"),
                    HasSubstr("torch.cond")));
  document["guards_code"] = Json::array();
  auto& size = document["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0]["as_expr"]["expr_str"];
  size = "Symbol('s7', positive=True, integer=True)";
  document["range_constraints"]["s7"] = {{"min_val", 3}, {"max_val", 9}};
  EXPECT_THAT(refused(12), HasSubstr("L['x'].size()[0] <= 9"));
  EXPECT_THAT(refused(2), HasSubstr("L['x'].size()[0] >= 3"));
  document["range_constraints"]["s7"] = {{"min_val", 2}, {"max_val", 2}};
  EXPECT_THAT(refused(3), HasSubstr("L['x'].size()[0] <= 2"));
}

TEST_F(ExportedModelTest, RefusesProgramsOfDifferentModels) {
  auto other = parse_json(program(dropout(false)));
  other["graph_module"]["graph"]["tensor_values"]["p_a"]["sizes"][0] = {{"as_int", 4}};
  EXPECT_THAT(refusal({{"train", program(dropout(true))}, {"eval", json_text(other)}}),
              AllOf(HasSubstr("its a.weight is float32 [4, 3], and that of the model is float32 [3, 3]"),
                    HasSubstr("export both programs from one model")));
  other["graph_module"]["graph"]["tensor_values"]["p_a"]["sizes"][0] = {{"as_int", 3}};
  other["graph_module"]["signature"]["input_specs"][0]["parameter"]["parameter_name"] = "c.weight";
  EXPECT_THAT(refusal({{"train", program(dropout(true))}, {"eval", json_text(other)}}),
              HasSubstr("its c.weight is float32 [3, 3], and the model has none"));
}

TEST_F(ExportedModelTest, RefusesParametersThatShareMemoryInOtherWays) {
  const auto file = (folder_ / "net.pt2").string();
  const auto load = [&](const torch::Tensor& one, const torch::Tensor& other) {
    ExportedArchiveWriter writer(file);
    writer.add("model", program(relu()), "",
               {{{"a.weight", one.detach().set_requires_grad(true), true},
                 {"b.weight", other.detach().set_requires_grad(true), true},
                 {"calls", torch::zeros({}), false}},
                ""},
               {});
    writer.close();
    ExportedModel(file, {}, torch::kCPU);
  };
  const auto refused = [&](const torch::Tensor& one, const torch::Tensor& other) {
    return message_of<UserError>([&] { load(one, other); });
  };
  const auto weight = torch::rand({3, 3}), both = torch::rand({6, 3});
  EXPECT_THAT(refused(weight, weight.t()), HasSubstr("its a.weight shares memory with b.weight"));
  EXPECT_THAT(refused(both.slice(0, 0, 3), both.slice(0, 2, 5)), HasSubstr("shares memory"));
  EXPECT_NO_THROW(load(both.slice(0, 0, 3), both.slice(0, 3, 6)));
}

// Each tensor is looked up by its name, and compared with those in the same memory. In quadratic time, this
// would last longer than CTest allows.
TEST_F(ExportedModelTest, ReadsManyTensors) {
  constexpr int count = 100'000;
  const auto weight = torch::rand({3, 3}).set_requires_grad(true), more = torch::zeros({count});
  ExportedTensors weights{
      {{"a.weight", weight, true}, {"b.weight", weight, true}, {"calls", torch::zeros({}), false}}, ""};
  for (int i = 0; i < count; ++i)
    weights.items.push_back({fmt::format("x{:06}", i), more.slice(0, i, i + 1), true});
  const auto file = (folder_ / "many.pt2").string();
  ExportedArchiveWriter writer(file);
  writer.add("model", program(relu()), "", weights, {});
  writer.close();
  EXPECT_NO_THROW(ExportedModel(file, {}, torch::kCPU));
}

// Documents that no exporter writes: one line, and no crash.
TEST_F(ExportedModelTest, RefusesWrongDocuments) {
  EXPECT_THAT(damage("{"),
              AllOf(HasSubstr("net.pt2 is damaged: "), HasSubstr("torch.export.save(program, FILE)")));
  EXPECT_THAT(damage("[]"), HasSubstr("is damaged"));
  EXPECT_THAT(damage(program(call("relu.default", fmt::format(R"({{"self": {}}})", tensor("y"))))),
              HasSubstr("the graph uses y before it is computed"));
  EXPECT_THAT(damage(program(relu() + "," + linear())), HasSubstr("the graph has two values h"));
  EXPECT_THAT(damage(program(relu(), "nowhere")), HasSubstr("uses nowhere before it is computed"));
  EXPECT_THAT(damage(program(call("relu.default", "{}"))), HasSubstr("has no argument self"));
  EXPECT_THAT(damage(program(call("relu.default", R"({"self": {"as_string": "x"}})"))),
              HasSubstr("self of torch.ops.aten.relu.default"));
  EXPECT_THAT(damage(program(call("relu.default", R"({"self": {}})"))),
              HasSubstr("no union with one member"));
  EXPECT_THAT(damage(program(call("relu.default", R"({"self": {"as_int": 1e300}})"))),
              HasSubstr("is no integer"));
  EXPECT_THAT(
      damage(program(relu() + "," +
                     node("torch.ops.higher_order.cond",
                          R"({"#0": {"as_int": 1}, "#1": {"as_int": 1}, "#2": {"as_int": 1}})", "[]"))),
      HasSubstr("torch.ops.higher_order.cond lacks argument"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += R"({"as_graph":{"graph":{"nodes":[)";
  EXPECT_THAT(
      damage(
          program(call("relu.default", fmt::format(R"({{"self": {}}})", tensor("h")))).replace(10, 0, deep)),
      HasSubstr("is damaged"));
}

// Tensors that lie outside of their records, or have sizes whose product is too large.
TEST_F(ExportedModelTest, RefusesWrongTensors) {
  const auto refused = [&](const char* path, const Json& value) {
    Json entry = parse_json(fmt::format(
        R"({{"path_name": "weight_0", "is_param": true, "use_pickle": false, "tensor_meta": {}}})",
        meta(R"([{"as_int": 3}, {"as_int": 3}])", 7, R"([{"as_int": 3}, {"as_int": 1}])")));
    entry[Json::json_pointer(path)] = value;
    const auto file = (folder_ / "net.pt2").string();
    caffe2::serialize::PyTorchStreamWriter writer(file);
    const std::vector<float> numbers(9);
    const auto write = [&](const std::string& name, const std::string& text) {
      writer.writeRecord(name, text.data(), text.size());
    };
    writer.writeRecord("data/weights/weight_0", numbers.data(), numbers.size() * sizeof numbers[0]);
    write("data/weights/model_weights_config.json",
          json_text({{"config", {{"a.weight", entry}, {"b.weight", entry}, {"calls", entry}}}}));
    write("data/constants/model_constants_config.json", R"({"config": {}})");
    write("models/model.json", program(relu()));
    write("data/sample_inputs/model.pt", "");
    write("archive_format", "pt2");
    write("archive_version", "0");
    writer.writeEndOfFile();
    return message_of<Error>([&] { ExportedModel(file, {}, torch::kCPU); });
  };
  EXPECT_THAT(refused("/tensor_meta/sizes/0/as_int", 4),
              HasSubstr("a.weight needs 48 bytes of weight_0, which has 36"));
  EXPECT_THAT(refused("/tensor_meta/storage_offset/as_int", 1), HasSubstr("a.weight needs 40 bytes"));
  EXPECT_THAT(refused("/tensor_meta/strides/0/as_int", std::int64_t{1} << 62),
              HasSubstr("a.weight has wrong sizes"));
  for (const auto number :
       {std::int64_t{-1}, std::int64_t{1} << 62, std::numeric_limits<std::int64_t>::max()})
    EXPECT_THAT(refused("/tensor_meta/sizes/1/as_int", number), HasSubstr("a.weight has wrong sizes"));
  EXPECT_THAT(refused("/tensor_meta/strides", Json::array()), HasSubstr("a.weight has wrong sizes"));
  EXPECT_THAT(refused("/tensor_meta/dtype", 99), HasSubstr("there is no type of elements 99"));
  EXPECT_THAT(refused("/tensor_meta/layout", 1), HasSubstr("a tensor is not dense"));
  EXPECT_THAT(refused("/path_name", "weight_9"), HasSubstr("it has no data/weights/weight_9"));
  EXPECT_THAT(refused("/path_name", "../../x"), HasSubstr("it has no data/weights/../../x"));
  EXPECT_THAT(refused("/use_pickle", true),
              AllOf(HasSubstr("a.weight is a pickle, which can run code"), HasSubstr("register_buffer")));
}

// Every cut, and random damage: the archive is read, or refused in one line.
TEST_F(ExportedModelTest, ReadsOrRefusesDamagedArchives) {
  const auto file = written("net.pt2", {{"a", program(dropout(true))}, {"b", program(dropout(false))}});
  std::ifstream in(file, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  const auto path = (folder_ / "damaged.pt2").string();
  int refused = 0;
  const auto try_with = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    try {
      ExportedModel model(path, {}, torch::kCPU);
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  };
  for (std::size_t size = 0; size < whole.size(); size += 97) try_with(whole.substr(0, size));
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    auto bytes = whole;
    for (int k = 0; k <= i % 4; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    try_with(bytes);
  }
  EXPECT_GT(refused, 100);
}

TEST_F(ExportedModelTest, RunsOrRefusesDamagedDocuments) {
  const auto whole = program(relu());
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    auto document = whole;
    const auto at = random() % document.size();
    if (i % 3 == 0)
      document[at] = static_cast<char>(' ' + random() % 95);
    else if (i % 3 == 1)
      document.erase(at, random() % 60);
    else
      document.insert(at, whole.substr(random() % whole.size(), random() % 60));
    try {
      ExportedModel model(written("net.pt2", {{"model", document}}), {}, torch::kCPU);
      model.forward({x_}, 1);
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace farandole
