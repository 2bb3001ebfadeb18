// Columns of text as the numbers of classes.
// Thread safety: any thread may call this at any time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "farandole/tables/table.h"

namespace farandole {

// By column, the names of its classes. The number of a class is its place.
using ClassNames = std::map<std::string, std::vector<std::string>>;

// Returns the table with those of `columns` that hold texts as int32 columns with the numbers of classes.
// `classes` has the classes of a trained model; for a column that it lacks, all different texts of the table
// are the classes, in the order of their bytes, and are added to it. An empty text is a NaN in a float64
// column, unless the trained model has it as a class.
// Throws: UserError if a column with classes does not hold texts, or a row has a text that is none of them.
std::shared_ptr<const DataTable> number_classes(std::shared_ptr<const DataTable> table,
                                                const std::vector<std::string>& columns, ClassNames& classes);

}  // namespace farandole
