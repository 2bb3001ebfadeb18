#include "farandole/trainer/tuned_plan.h"

#include <fmt/format.h>

#include "farandole/base/files/atomic_file.h"

namespace farandole {
namespace {

std::filesystem::path file_for(const std::filesystem::path& run_dir, int ranks) {
  return run_dir / fmt::format("tuned-{}-ranks.ini", ranks);
}

}  // namespace

std::string keep_tuned_plan(const std::filesystem::path& run_dir, int ranks, const TunedPlan& plan) {
  const double mib = static_cast<double>(plan.bucket_bytes) / (1024 * 1024);
  const auto measured = plan.steps == 0
                            ? std::string("there are too few gradients for more than one bucket plan")
                            : fmt::format("{:.2f} ms per step, {:.2f} with the default, measured in {} steps",
                                          plan.milliseconds, plan.default_milliseconds, plan.steps);
  const auto file = file_for(run_dir, ranks);
  write_file_atomically(file, fmt::format("# Found by --bucket-mb auto on {} ranks: {}.\nbucket-mb={:g}\n",
                                          ranks, measured, mib));
  return fmt::format("buckets of {:g} MiB: {}; written to {}", mib, measured, file.string());
}

void take_tuned_plan(TrainOptions& options, int ranks) {
  const auto file = file_for(options.run_dir, ranks);
  if (options.bucket_mb || !std::filesystem::exists(file)) return;
  TrainOptions kept;
  auto parser = train_option_parser(kept, file.parent_path());
  const std::string path = file.string();
  const char* const arguments[] = {"train", "--profile", path.c_str()};
  parser.parse(3, arguments);
  options.bucket_mb = kept.bucket_mb;
}

}  // namespace farandole
