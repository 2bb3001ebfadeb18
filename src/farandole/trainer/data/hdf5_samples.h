// Reads samples with labels from an HDF5 file into memory.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>

#include "farandole/trainer/data/dataset.h"

namespace farandole {

// The file is recognized by its signature, which may follow a user block, or by its name (.h5, .hdf5).
bool is_hdf5_file(const std::filesystem::path& file);

// Reads the data sets /x [n, …] (numbers) and /y [n] (class numbers from 0). If /x_test and /y_test exist,
// they are the held-out set; otherwise the last fraction of the samples is held out. Bytes and booleans stay
// bytes in memory and reach the model as floats from 0 to 255.
// Throws: UserError if these data sets are missing or have wrong shapes or types; CorruptInput (with file,
// data set and row) if a label is not a class number or a number is not finite.
DataSplit read_hdf5_samples(const std::filesystem::path& file, double held_out);

}  // namespace farandole
