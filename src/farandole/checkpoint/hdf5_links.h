// What the links of an HDF5 file lead to. Nothing here leaves the file: other files, which it may name,
// are never read.
// Thread safety: none; use from one thread at a time. The caller must hold the Hdf5Lock.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/checkpoint/hdf5_handle.h"

namespace farandole {

// Opens an object by its path; negative as HDF5's own functions if this fails, also at a link
// to another file.
hid_t open_within(hid_t file, const std::string& path);
// For paths that HDF5 follows itself.
Hdf5Handle links_within_the_file(const Hdf5Check& check);

// Why an open data set cannot be read, as far as the data set itself tells.
std::optional<Hdf5Problem> problem_of(hid_t dataset, const std::string& path, const Hdf5Check& check);

struct FoundObjects {
  std::vector<std::pair<std::string, Hdf5Handle>> datasets;  // By their paths, each of them also by several.
  std::vector<Hdf5Problem> problems;
};
// Each group is visited once, by its shortest path, preferably without soft links: links may form loops, and
// lead to one group on very many ways.
// Throws: as `check` if the root cannot be read.
FoundObjects find_objects(hid_t file, const Hdf5Check& check);

}  // namespace farandole
