#include "farandole/fusion/plan_agreement.h"

#include <algorithm>
#include <fmt/format.h>
#include <sstream>
#include <xxhash.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

// One line per tensor in the order of the plan, then the layout of the buckets.
std::string describe(const BucketPlan& plan) {
  std::string text;
  for (const auto& tensor : plan.tensors) text += tensor.describe() + "\n";
  for (const auto& bucket : plan.buckets)
    text += fmt::format("bucket of {} tensors, {} elements {}\n", bucket.slots.size(), bucket.payload,
                        name_of(bucket.dtype));
  return text;
}

std::vector<std::vector<std::string>> gather_lines(Communicator& communicator, const std::string& own) {
  const auto size = static_cast<std::size_t>(communicator.size);
  const std::size_t length = own.size();
  std::vector<std::size_t> lengths(size);
  const std::vector<std::size_t> one(size, sizeof length);
  communicator.all_gather("length of bucket plan", &length, lengths.data(), one);
  std::size_t total = 0;
  for (const auto bytes : lengths) total += bytes;
  std::string all(total, '\0');
  communicator.all_gather("bucket plan", own.data(), all.data(), lengths);
  std::vector<std::vector<std::string>> by_rank;
  std::size_t first = 0;
  for (const auto bytes : lengths) {
    std::istringstream stream(all.substr(first, bytes));
    first += bytes;
    auto& lines = by_rank.emplace_back();
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
  }
  return by_rank;
}

std::string table_of_differences(const std::vector<std::vector<std::string>>& by_rank) {
  constexpr int most_rows = 10;
  std::size_t longest = 0;
  for (const auto& lines : by_rank) longest = std::max(longest, lines.size());
  std::string table;
  int rows = 0;
  for (std::size_t i = 0; i < longest && rows < most_rows; ++i) {
    const auto line = [&](std::size_t r) {
      return i < by_rank[r].size() ? by_rank[r][i] : std::string("(none)");
    };
    std::vector<std::pair<std::string, std::string>> variants;  // text, ranks
    for (std::size_t r = 0; r < by_rank.size(); ++r) {
      auto found =
          std::find_if(variants.begin(), variants.end(), [&](const auto& v) { return v.first == line(r); });
      if (found == variants.end())
        variants.emplace_back(line(r), std::to_string(r));
      else
        found->second += "," + std::to_string(r);
    }
    if (variants.size() < 2) continue;
    ++rows;
    for (const auto& [text, ranks] : variants)
      table += fmt::format("\n  #{:<4} rank {:<12} {}", i, ranks, text);
  }
  return table;
}

}  // namespace

void check_plan_agreement(Communicator& communicator, const BucketPlan& plan) {
  const auto text = describe(plan);
  const std::int64_t hash = static_cast<std::int64_t>(XXH3_64bits(text.data(), text.size()) >> 1);
  std::int64_t extremes[2] = {hash, -hash};
  communicator.allreduce("hash of bucket plan", extremes, 2, DType::int64, ReduceOp::max);
  if (extremes[0] == -extremes[1]) return;
  throw UserError("the ranks do not train the same tensors; build the same model on every rank:" +
                  table_of_differences(gather_lines(communicator, text)));
}

}  // namespace farandole
