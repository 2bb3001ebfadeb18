// Finds the MNIST-like images and labels in a folder and reads both together.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "farandole/trainer/data/idx_file.h"

namespace farandole {

struct IdxPair {
  std::filesystem::path images;
  std::filesystem::path labels;
};

// Files are found by the names of MNIST: train*-images-idx3-ubyte[.gz], and t10k*- or
// test*-images-idx3-ubyte[.gz]. The labels have the same name with labels-idx1. A plain file is preferred
// to its .gz file.
struct IdxFolder {
  IdxPair train;
  std::optional<IdxPair> test;
};

struct LabelledImages {
  IdxImages images;
  std::vector<std::uint8_t> labels;  // One label per image.
};

bool has_idx_images(const std::filesystem::path& folder);

// Throws: UserError if there are no training images, several files of them, or no labels for them. The
// message says which names were searched and what was found.
IdxFolder find_idx_files(const std::filesystem::path& folder);

// Throws: the errors of read_idx_images and read_idx_labels; CorruptInput if the two counts differ.
LabelledImages read_idx_pair(const IdxPair& pair);

}  // namespace farandole
