// How fast a snapshot of a GPU is staged, against one copy of the same bytes to pinned memory in the same
// run. The tensors are the parameters of GPT-2 and the two moments of Adam. Prints one line of JSON.
#include <chrono>
#include <fmt/format.h>
#include <string_view>
#include <thread>

#include "gpu/speed.h"

#include "farandole/base/error.h"
#include "farandole/base/process/program.h"
#include "farandole/comm/gpu/gpu_staging.h"

namespace farandole {
namespace {

int run(int argc, char** argv) {
  const bool small = argc > 1 && std::string_view(argv[1]) == "--small";
  std::string why_not;
  const auto runtime = GpuRuntime::load(why_not);
  if (runtime == nullptr) throw UserError(why_not);
  runtime->use(0);
  std::vector<Buffer> tensors;
  std::vector<GpuStaging::Piece> pieces;
  std::size_t bytes = 0;
  for (const auto& tensor : small ? gpt_tensors(16, 2) : gpt_tensors(768, 12))
    for (int part = 0; part < 3; ++part) {
      tensors.push_back(runtime->allocate(tensor.bytes()));
      pieces.push_back({tensors.back().get(), tensor.bytes()});
      bytes += tensor.bytes();
    }
  const auto whole = runtime->allocate(bytes), pinned = runtime->allocate_pinned(bytes);
  const GpuStream stream(runtime);
  GpuStaging staging(runtime);
  std::vector<double> staged, copied;
  staging.prepare(bytes, 0);
  std::this_thread::sleep_for(std::chrono::seconds(small ? 0 : 8));
  const auto first_start = now_ns();
  const auto first = staging.start(pieces, stream.handle());
  const auto first_ms = seconds_since(first_start) * 1e3;
  first->wait();
  for (int i = 0; i < (small ? 2 : 15); ++i) {
    const auto start = now_ns();
    staging.start(pieces, stream.handle())->wait();
    staged.push_back(seconds_since(start));
    copied.push_back(seconds_of(runtime, stream.handle(),
                                [&] { runtime->copy(pinned.get(), whole.get(), bytes, stream.handle()); }));
  }
  fmt::print(
      "{{\"bytes\": {}, \"tensors\": {}, \"first_ms\": {:.2f}, \"staged_ms\": {:.2f}, \"copy_ms\": {:.2f}, \"fraction\": {:.3f}}}\n",
      bytes, pieces.size(), first_ms, median(staged) * 1e3, median(copied) * 1e3,
      median(copied) / median(staged));
  return 0;
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  return farandole::run_main("snapshot_speed", [&] { return farandole::run(argc, argv); });
}
