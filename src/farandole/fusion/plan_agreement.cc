#include "farandole/fusion/plan_agreement.h"

#include <algorithm>
#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/base/text/phrases.h"
#include "farandole/comm/agreement.h"

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

}  // namespace

void check_plan_agreement(Communicator& communicator, const BucketPlan& plan) {
  constexpr std::size_t most_rows = 10;
  auto rows = find_disagreements(communicator, "bucket plan", describe(plan));
  if (rows.empty()) return;
  rows.resize(std::min(rows.size(), most_rows));
  std::string table;
  for (const auto& row : rows)
    for (const auto& [text, ranks] : row.variants)
      table += fmt::format("\n  #{:<4} {:<17} {}", row.line, describe_ranks(ranks), text);
  throw UserError("the ranks do not train the same tensors; build the same model on every rank:" + table);
}

}  // namespace farandole
