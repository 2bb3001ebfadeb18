#include "farandole/launch/call_end.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <system_error>

#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/text/json.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr const char* end_file = "end.json";

}  // namespace

CallEnd call_end_of(const std::vector<RankRecord>& ends, const std::vector<RankRecord>& failures,
                    const Outcome& outcome, const fs::path& run) {
  if (outcome.exit_code == 0) return {};
  const auto has_failed = [&](const RankRecord& end) {
    return std::any_of(failures.begin(), failures.end(),
                       [&](const auto& failure) { return failure.rank == end.rank; });
  };
  auto records = failures;
  std::remove_copy_if(ends.begin(), ends.end(), std::back_inserter(records), has_failed);
  const auto first = first_failure(records);
  if (first && has_failed(*first))
    return {first->shell_code(), first->rank,
            fmt::format("rank {} on {}: {}", first->rank, first->host, first->last_words)};
  if (first && !first->told && !is_victim(*first))
    return {first->shell_code(), first->rank,
            fmt::format("rank {} on {} has failed: {}{}", first->rank, first->host, how_it_ended(*first),
                        run.empty() ? "" : fmt::format("; farandole doctor {} says more", run.string()))};
  return {outcome.exit_code,
          {},
          outcome.message.empty() ? fmt::format("farandole run ended with exit code {}", outcome.exit_code)
                                  : outcome.message};
}

void write_call_end(const fs::path& folder, const CallEnd& end) {
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  Json json = {{"exit_code", end.exit_code}, {"rank", nullptr}, {"message", end.message}};
  if (end.rank) json["rank"] = *end.rank;
  replace_file(folder / end_file, ascii_json_text(json) + "\n");
}

std::optional<CallEnd> read_call_end(const fs::path& folder) {
  const auto text = read_whole_file(folder / end_file);
  if (!text) return std::nullopt;
  const auto json = parse_json(*text);
  CallEnd end{json.at("exit_code"), {}, json.at("message")};
  if (!json.at("rank").is_null()) end.rank = json.at("rank").get<int>();
  return end;
}

}  // namespace farandole
