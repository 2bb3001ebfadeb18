#include "farandole/launch/outcome.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/supervisor/supervisor.h"

namespace farandole {
namespace {

bool speaks_for_itself(const RankRecord& record) {
  const auto code = static_cast<ExitCode>(record.exit_code);
  return record.signal == 0 &&
         (code == ExitCode::user_error || code == ExitCode::corrupt_input || code == ExitCode::preempted);
}

// Returns whether all ranks that ended by themselves ended in the same way as the first.
bool unanimous(const std::vector<RankRecord>& records, const RankRecord& first) {
  return std::all_of(records.begin(), records.end(), [&](const auto& record) {
    return (record.told && !first.told) || record.shell_code() == first.shell_code();
  });
}

std::string missing_ranks(const std::vector<RankRecord>& records, int ranks) {
  std::string list;
  int missing = 0;
  auto next = records.begin();
  for (int rank = 0; rank < ranks; ++rank) {
    while (next != records.end() && next->rank < rank) ++next;
    if (next != records.end() && next->rank == rank) continue;
    if (++missing <= 8) list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
  }
  if (missing > 8) list += fmt::format(", … ({} in all)", missing);
  return list;
}

}  // namespace

std::string how_it_ended(const RankRecord& record) {
  if (record.signal == 0) return fmt::format("exit code {}", record.exit_code);
  return fmt::format("it was killed by signal {} ({})", record.signal, ::strsignal(record.signal));
}

std::optional<int> left_without_finalize(std::string_view starter_said) {
  constexpr std::string_view before = "due to process rank ", how = "exiting improperly";
  const auto at = starter_said.find(before);
  if (at == std::string_view::npos || starter_said.find(how, at) == std::string_view::npos)
    return std::nullopt;
  const auto number = starter_said.substr(at + before.size());
  return parse_number<int>(number.substr(0, number.find(' ')));
}

Outcome outcome_of(const std::vector<RankRecord>& records, int ranks, const ChildEnd& starter,
                   const std::string& starter_name, std::string_view starter_said, int signal,
                   const std::filesystem::path& log_folder) {
  const int starter_code = starter.signal != 0 ? 128 + starter.signal : starter.exit_code;
  const auto first = first_failure(records);
  const bool all_reported = static_cast<int>(records.size()) >= ranks;
  if (!first && all_reported) return {};  // The result of srun or mpirun does not matter then.
  if (first && (!first->told || signal != 0)) {
    Outcome outcome{first->shell_code(), "", false};
    if (signal != 0 && first->told) return outcome;
    if (speaks_for_itself(*first) && unanimous(records, *first)) return outcome;
    const auto left = std::find_if(records.begin(), records.end(), [&](const auto& record) {
      return !record.failed() && !record.told && record.time_ns < first->time_ns;
    });
    if (is_victim(*first) && !all_reported)
      outcome.message = fmt::format(
          "no record exists of the end of rank {}; rank {} (host {}) ended because of a lost rank",
          missing_ranks(records, ranks), first->rank, first->host);
    else if (is_victim(*first) && left != records.end())
      outcome.message = fmt::format(
          "rank {} (host {}) ended with exit code 0 before the others; rank {} (host {}) ended because it lost a rank",
          left->rank, left->host, first->rank, first->host);
    else
      outcome.message =
          fmt::format("rank {} (host {}) failed first: {}", first->rank, first->host, how_it_ended(*first));
    if (!log_folder.empty()) outcome.message += "; its log is " + log_of(log_folder, first->rank).string();
    return outcome;
  }
  if (signal != 0) return {starter_code != 0 ? starter_code : 128 + signal, "", false};
  // No rank failed by itself: a host was lost, srun or mpirun could not start the ranks, or the job
  // was cancelled from outside.
  Outcome outcome{starter_code != 0 ? starter_code : static_cast<int>(ExitCode::failure), "", true};
  const auto starter_end = starter.signal != 0
                               ? fmt::format("{} was killed by signal {} ({})", starter_name, starter.signal,
                                             ::strsignal(starter.signal))
                               : fmt::format("{} ended with code {}", starter_name, starter_code);
  const auto left = left_without_finalize(starter_said);
  const auto of_left =
      std::find_if(records.begin(), records.end(), [&](const auto& record) { return record.rank == left; });
  if (of_left != records.end() && !of_left->failed())
    outcome.message = fmt::format(
        "rank {} (host {}) ended with exit code 0 without MPI_Finalize, so {} ended the other ranks",
        of_left->rank, of_left->host, starter_name);
  else if (first && all_reported)
    outcome.message = fmt::format("all ranks were stopped from outside; {}", starter_end);
  else
    outcome.message = fmt::format("{}, and no record exists of the end of rank {}", starter_end,
                                  missing_ranks(records, ranks));
  return outcome;
}

}  // namespace farandole
