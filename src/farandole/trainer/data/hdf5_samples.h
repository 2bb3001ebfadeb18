// Samples with labels from an HDF5 file, read whole into memory. Usable from any thread.
#pragma once

#include <filesystem>

#include "farandole/trainer/data/dataset.h"

namespace farandole {

// By its first bytes, wherever a user block leaves them, or by its name (.h5, .hdf5).
bool is_hdf5_file(const std::filesystem::path& file);

// Data sets /x [n, …] of numbers and /y [n] of class numbers from 0; /x_test and /y_test are the held-out
// set, where there are any, else the last fraction. Bytes and booleans stay bytes in memory and reach the
// model as the floats 0 … 255. Throws UserError where these data sets are missing or have other shapes or
// types, CorruptInput (file, data set, row) for labels that are no class numbers and for numbers that are not
// finite.
DataSplit read_hdf5_samples(const std::filesystem::path& file, double held_out);

}  // namespace farandole
