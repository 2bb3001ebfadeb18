#include "farandole/estimator/models/script_model.h"

#include <gmock/gmock.h>
#include <torch/utils.h>

#include "estimator/fixtures.h"

#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/checkpoint/hdf5_file.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ScriptModelTest : public testing::Test {
 protected:
  ScriptModel saved(torch::jit::Module script) const {
    script.save(file_);
    return ScriptModel(file_);
  }
  ScriptModel saved(const std::string& method) const { return saved(script_of(method)); }

  const TemporaryFolder folder_;
  const std::string file_ = (folder_ / "net.pt").string();
};

TEST_F(ScriptModelTest, RefusesFilesThatAreNoModel) {
  EXPECT_THAT(message_of<UserError>([&] { ScriptModel("nowhere.pt"); }), "there is no model nowhere.pt");
  write_file_atomically(file_, "no archive");
  EXPECT_THAT(message_of<CorruptInput>([&] { ScriptModel{file_}; }),
              AllOf(HasSubstr("net.pt cannot be loaded as TorchScript"),
                    HasSubstr("export it with torch.jit.script(model).save(FILE)")));
  EXPECT_THAT(message_of<UserError>([&] { saved("def other(self, x):\n  return x\n"); }),
              HasSubstr("net.pt has no method forward; export a whole model"));
}

TEST_F(ScriptModelTest, ReturnsATensorForEachLabel) {
  const auto x = torch::rand({3, 2}), y = torch::rand({3, 2});
  EXPECT_TRUE(torch::equal(saved("def forward(self, x):\n  return 2 * x\n").forward({x}, 1)[0], 2 * x));
  auto tuple = saved("def forward(self, x, y):\n  return x + y, x\n");
  EXPECT_TRUE(torch::equal(tuple.forward({x, y}, 2)[0], x + y));
  EXPECT_EQ(saved("def forward(self, x):\n  return [x, x, x]\n").forward({x}, 3).size(), 3u);
  EXPECT_THAT(message_of<UserError>([&] {
                tuple.forward({x, y}, 1);
              }),
              HasSubstr("net.pt returns 2 tensors for 1 label; name a column with --label for each of them"));
  EXPECT_THAT(message_of<UserError>([&] { saved("def forward(self, x):\n  return x, 1\n").forward({x}, 2); }),
              HasSubstr("returns a Tuple; its forward must return a tensor or a tuple of tensors"));
}

TEST_F(ScriptModelTest, NamesTheShapesThatItDoesNotAccept) {
  auto model = saved("def forward(self, x, y):\n  return x + y\n");
  EXPECT_THAT(message_of<UserError>([&] {
                model.forward({torch::rand({3, 2}), torch::rand({3, 4})}, 1);
              }),
              AllOf(HasSubstr("net.pt does not accept features of shape [3, 2], [3, 4]: "),
                    HasSubstr("choose other --features or --input-shapes")));
  EXPECT_THAT(message_of<UserError>([&] {
                model.forward({torch::rand({3, 2})}, 1);
              }),
              HasSubstr("does not accept features of shape [3, 2]: "));
}

// A layer in a layer, of which one parameter is frozen, and a buffer.
torch::jit::Module nested() {
  torch::jit::Module inner("Inner");
  inner.register_parameter("weight", torch::ones({2}).requires_grad_(), false);
  inner.register_parameter("fixed", torch::ones({1}), false);
  inner.define("def forward(self, x):\n  return x * self.weight * self.fixed\n");
  torch::jit::Module outer("Outer");
  outer.register_module("inner", inner);
  outer.register_buffer("mean", torch::full({3}, 5.0));
  outer.define("def forward(self, x):\n  return self.inner.forward(x)\n");
  return outer;
}

TEST_F(ScriptModelTest, TrainsTheScriptsOwnMemory) {
  auto model = saved(nested());
  EXPECT_THAT(model.module().named_parameters().keys(), ElementsAre("inner.weight", "inner.fixed"));
  EXPECT_THAT(model.module().named_buffers().keys(), ElementsAre("mean"));
  const auto trained = model.trained_parameters();
  ASSERT_EQ(trained.size(), 1u);
  trained[0].detach().fill_(3);
  const auto x = torch::rand({4, 2});
  EXPECT_TRUE(torch::equal(model.forward({x}, 1)[0], 3 * x));
  EXPECT_THAT(
      message_of<UserError>([&] { saved("def forward(self, x):\n  return x\n").trained_parameters(); }),
      HasSubstr("net.pt has no parameters to train"));
}

TEST_F(ScriptModelTest, AParameterWithTwoNamesIsOne) {
  torch::jit::Module inner("Inner"), outer("Outer");
  const auto weight = torch::ones({2}).requires_grad_();
  inner.register_parameter("weight", weight, false);
  outer.register_parameter("first", weight, false);
  outer.register_parameter("other", torch::ones({2}).requires_grad_(), false);
  outer.register_module("inner", inner);
  outer.define("def forward(self, x):\n  return x * self.first * self.inner.weight * self.other\n");
  auto model = saved(outer);
  EXPECT_THAT(model.module().named_parameters().keys(), ElementsAre("first", "other"));
  EXPECT_EQ(model.trained_parameters().size(), 2u);
  model.trained_parameters()[0].detach().fill_(3);
  const auto x = torch::rand({4, 2});
  EXPECT_TRUE(torch::equal(model.forward({x}, 1)[0], x * 3 * 3));
  model.save_state(folder_ / "state.h5");
  const auto state = Hdf5File::open(folder_ / "state.h5");
  EXPECT_THAT(state.list(), ElementsAre("/first", "/inner.weight", "/other"));
  std::vector<float> values(2);
  state.dataset("/inner.weight").read(std::as_writable_bytes(std::span(values)));
  EXPECT_THAT(values, ElementsAre(3, 3));
}

TEST_F(ScriptModelTest, TellsWhetherItTrainsOnInputsAndChangesNothing) {
  torch::jit::Module net("Net");
  net.register_attribute("training", c10::BoolType::get(), false);
  net.register_buffer("calls", torch::zeros({}));
  net.define(
      "def forward(self, x):\n  self.calls.add_(1)\n  assert not self.training or x.size(0) > 1, \"one row\"\n"
      "  return torch.dropout(x, 0.5, self.training)\n");
  auto model = saved(net);
  torch::manual_seed(1);
  const auto expected = torch::rand({3});
  torch::manual_seed(1);
  EXPECT_THAT(model.why_not_trained_on({torch::rand({1, 3})}), testing::EndsWith("one row"));
  torch::manual_seed(1);
  EXPECT_EQ(model.why_not_trained_on({torch::ones({2, 3})}), "");
  EXPECT_TRUE(torch::equal(torch::rand({3}), expected));
  EXPECT_EQ(model.module().named_buffers()["calls"].item<double>(), 0);
  EXPECT_TRUE(torch::equal(model.forward({torch::ones({1, 3})}, 1)[0], torch::ones({1, 3})));
}

TEST_F(ScriptModelTest, BlamesInputsOnlyForWhatTheyCanHelp) {
  const auto refusal = [&](const std::string& body, const torch::Tensor& x) {
    return message_of<UserError>([&] { saved("def forward(self, x):\n" + body).forward({x}, 1); });
  };
  EXPECT_THAT(
      refusal("  assert x.size(0) == 1, \"wrong size of the moon\"\n  return x\n", torch::rand({3, 2})),
      testing::AllOf(testing::StartsWith(file_ + " failed on features of shape [3, 2]: "),
                     testing::EndsWith("wrong size of the moon")));
  EXPECT_THAT(refusal("  return torch.index_select(x, 0, torch.tensor([7]))\n", torch::rand({3, 2})),
              AllOf(HasSubstr("net.pt failed on features of shape [3, 2]: "), HasSubstr("out of range")));
}

TEST_F(ScriptModelTest, RefusesTracesInTrainingMode) {
  const auto refusal = [&](const std::string& body) {
    return message_of<UserError>([&] { saved("def forward(self, x):\n  return " + body + "\n"); });
  };
  EXPECT_THAT(refusal("torch.dropout(x, 0.5, True)"),
              HasSubstr("net.pt was traced in training mode, so its dropout would train in evaluation, too"));
  EXPECT_THAT(refusal("torch.batch_norm(x, None, None, x, x, True, 0.1, 1e-5, False)"),
              HasSubstr("its batch_norm"));
  saved("def forward(self, x):\n  return torch.dropout(x, 0.5, False)\n");
  saved(
      "def forward(self, x):\n  return torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False)\n");
}

TEST_F(ScriptModelTest, SavesItselfAndItsState) {
  auto model = saved(nested());
  model.trained_parameters()[0].detach().fill_(3);
  model.save(folder_ / "trained.pt");
  const auto x = torch::rand({4, 2});
  EXPECT_TRUE(torch::equal(ScriptModel(folder_ / "trained.pt").forward({x}, 1)[0], 3 * x));
  model.save_state(folder_ / "state.h5");
  const auto state = Hdf5File::open(folder_ / "state.h5");
  EXPECT_THAT(state.list(), ElementsAre("/inner.fixed", "/inner.weight", "/mean"));
  std::vector<float> weight(2);
  state.dataset("/inner.weight").read(std::as_writable_bytes(std::span(weight)));
  EXPECT_THAT(weight, ElementsAre(3, 3));
  EXPECT_THROW(model.save(folder_ / "nowhere" / "net.pt"), std::exception);
}

TEST(Brief, IsTheSentenceThatSaysWhatIsWrong) {
  EXPECT_EQ(brief(std::runtime_error("first\nsecond")), "first");
  EXPECT_EQ(brief(std::runtime_error("Traceback:\n  File x\nRuntimeError: sizes differ\nmore")),
            "sizes differ");
  EXPECT_EQ(
      brief(std::runtime_error("The following operation failed in the TorchScript interpreter.\n"
                               "Traceback of TorchScript (most recent call last):\n  File \"x: y\", line 1\n"
                               "builtins.ValueError: it is: hot\n")),
      "ValueError: it is: hot");
}

}  // namespace
}  // namespace farandole
