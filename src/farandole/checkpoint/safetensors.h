// Writes the model of a checkpoint in the format of safetensors.
// Source: https://github.com/huggingface/safetensors#format
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>

namespace farandole {

// Writes parameters and buffers with the names of PyTorch's state_dict, and the step and the epoch
// as metadata. The file is published atomically. Needs memory for the largest array. Returns the
// number of tensors.
// Throws: as read_checkpoint(), and Error if `output` cannot be written.
std::size_t export_safetensors(const std::filesystem::path& checkpoint, const std::filesystem::path& output);

}  // namespace farandole
