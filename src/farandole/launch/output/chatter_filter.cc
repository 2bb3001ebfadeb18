#include "farandole/launch/output/chatter_filter.h"

#include <algorithm>
#include <array>
#include <utility>

namespace farandole {
namespace {

constexpr std::size_t most_bytes = 8192;

// From Open MPI's help texts (help-errmgr-base.txt, help-orterun.txt, help-mpi-api.txt).
constexpr std::array<std::string_view, 6> mpirun_says = {
    "Primary job  terminated normally, but",
    "mpirun detected that one or more processes exited with non-zero status",
    "mpirun has exited due to process rank",
    "mpirun noticed that process rank",
    "MPI_ABORT was invoked on rank",
    "one or more processes exited with non-zero status, thus causing"};

bool is_dashes(std::string_view line) {
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  return line.size() >= 70 && line.find_first_not_of('-') == std::string_view::npos;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool srun_says(std::string_view line) {
  if (line.starts_with("slurmstepd") && contains(line, "error: *** STEP") && contains(line, "CANCELLED AT"))
    return true;
  if (!line.starts_with("srun: ")) return false;
  if (contains(line, "Terminating StepId=") || contains(line, "Terminating Job step") ||
      contains(line, "Force Terminated StepId=") || contains(line, "Job step aborted: Waiting up to") ||
      contains(line, "got SIGCONT") || contains(line, "forcing job termination"))
    return true;
  // "srun: error: node2: tasks 1-3: Exited with exit code 3", "... task 0: Terminated"
  return line.starts_with("srun: error: ") && (contains(line, ": task ") || contains(line, ": tasks "));
}

}  // namespace

void ChatterFilter::leave_out(std::string_view text) {
  left_out_.append(text.substr(0, std::min(text.size(), most_bytes - left_out_.size())));
}

std::string ChatterFilter::take(std::string_view piece) {
  if (auto record = from_marked_line(piece)) {
    records_.push_back(*std::move(record));
    return "";
  }
  if (block_.empty() && srun_says(piece)) {
    leave_out(piece);
    return "";
  }
  if (block_.empty() && !is_dashes(piece)) return std::string(piece);
  const bool closes = !block_.empty() && is_dashes(piece);
  block_.append(piece);
  if (!closes) return block_.size() > most_bytes ? flush() : "";
  const auto block = std::exchange(block_, "");
  if (std::none_of(mpirun_says.begin(), mpirun_says.end(),
                   [&](auto phrase) { return contains(block, phrase); }))
    return block;
  leave_out(block);
  return "";
}

std::string ChatterFilter::flush() {
  return std::exchange(block_, "");
}

}  // namespace farandole
