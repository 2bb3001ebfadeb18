// Writes scalars for TensorBoard: an event file for each start of a run. Used on rank 0.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace farandole {

class RawData;

class TensorBoardWriter {
 public:
  // The first publish() creates `folder` and a new file in it. `last_step` is the step from which the run
  // continues, or 0: TensorBoard then drops the values that an earlier start wrote for later steps.
  TensorBoardWriter(std::filesystem::path folder, std::int64_t last_step);
  ~TensorBoardWriter();

  void add(std::int64_t step, std::string_view name, double value);
  // The run goes back to `step`: TensorBoard drops the values of later steps that were added before.
  void go_back_to(std::int64_t step);
  // Writes what was added. If that fails, a warning says so once, and the values wait for the next call; if
  // they have 1 MiB, further values are lost.
  void publish() noexcept;

 private:
  void open();
  void append(std::int64_t step, std::string_view content);

  const std::filesystem::path folder_;
  std::string waiting_;  // Records that are not in the file.
  std::unique_ptr<RawData> file_;
  std::uint64_t bytes_ = 0;  // Of whole records in the file.
  bool warned_ = false;
};

}  // namespace farandole
