#include "farandole/estimator/script_model.h"

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
}

}  // namespace
}  // namespace farandole
