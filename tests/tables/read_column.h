// All values of a column, for tests.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "farandole/tables/table.h"

namespace farandole {

template <class T>
std::vector<T> read_column(const DataTable& table, const std::string& name) {
  const auto column = table.index_of(name);
  std::vector<T> values(table.columns()[column].row_bytes() / sizeof(T) *
                        static_cast<std::size_t>(table.rows()));
  table.read(column, 0, table.rows(), std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace farandole
