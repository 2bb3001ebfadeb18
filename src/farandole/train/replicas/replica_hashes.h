// Hashes of parameters, by which the ranks compare their models.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <string>
#include <torch/ordered_dict.h>
#include <torch/types.h>

namespace farandole {

std::uint64_t hash_of(const torch::Tensor& tensor);
// Returns a line for each parameter: its name, a blank, and the hash of its elements.
std::string hashes_of(const torch::OrderedDict<std::string, torch::Tensor>& parameters);

}  // namespace farandole
