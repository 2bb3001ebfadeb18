#include "farandole/train/replica_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <vector>
#include <xxhash.h>

#include "farandole/base/error.h"
#include "farandole/base/text/phrases.h"
#include "farandole/comm/agreement.h"
#include "farandole/train/replicas/replica_hashes.h"
#include "farandole/train/session_internals.h"

namespace farandole {

std::uint64_t hash_of(const torch::Tensor& tensor) {
  const auto values = tensor.detach().cpu().contiguous();
  return XXH3_64bits(values.data_ptr(), values.nbytes());
}

std::string hashes_of(const torch::OrderedDict<std::string, torch::Tensor>& parameters) {
  std::string lines;
  for (const auto& item : parameters) lines += fmt::format("{} {:016x}\n", item.key(), hash_of(item.value()));
  return lines;
}

void check_replicas(Session& session, const torch::nn::Module& model) {
  const auto parameters = model.named_parameters();
  const auto differences =
      find_disagreements(session.internals().communicator(), "parameters", hashes_of(parameters));
  if (differences.empty()) return;
  std::vector<std::string> variants;
  std::string name;
  for (const auto& [text, ranks] : differences.front().variants) {
    name = text.substr(0, text.find(' '));
    variants.push_back(fmt::format("{} on {}", text.substr(text.find(' ') + 1), describe_ranks(ranks)));
  }
  session.together([&] {
    throw Error(fmt::format(
        "the ranks' models have become different: {} of {} parameters, the first is {} with hash {}; look for a program "
        "that changes parameters on some ranks only, or for faulty memory, and continue from an earlier checkpoint",
        differences.size(), parameters.size(), name, fmt::join(variants, " and ")));
  });
}

}  // namespace farandole
