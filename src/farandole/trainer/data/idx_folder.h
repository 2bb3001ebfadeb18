// Which files of a folder are MNIST-like images and labels, and reading them together. Usable from any
// thread.
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

// By the names of MNIST: train*-images-idx3-ubyte[.gz], and t10k*- or test*-images-idx3-ubyte[.gz], each with
// labels of the same name but labels-idx1. A file wins over its own .gz.
struct IdxFolder {
  IdxPair train;
  std::optional<IdxPair> test;
};

struct LabelledImages {
  IdxImages images;
  std::vector<std::uint8_t> labels;  // one an image
};

bool has_idx_images(const std::filesystem::path& folder);

// Throws UserError that says what was looked for and what was found: no training images, several, no labels
// to them.
IdxFolder find_idx_files(const std::filesystem::path& folder);

// Reads both files; throws what they throw, and CorruptInput where their counts differ.
LabelledImages read_idx_pair(const IdxPair& pair);

}  // namespace farandole
