// Writes the results of `farandole bench allreduce` as a table and as JSON. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <span>
#include <string>

#include "farandole/bench/allreduce_benchmark.h"

namespace farandole {

// Lines of a table that is printed during the measurement.
std::string allreduce_header();
std::string allreduce_line(const AllreduceResult& result);

// {"bench":"allreduce","machine":{…},"results":[…]}. Each size has two results, with
// "registered" true and false.
std::string allreduce_json(std::span<const AllreduceResult> results, const std::string& mpi_version);

}  // namespace farandole
