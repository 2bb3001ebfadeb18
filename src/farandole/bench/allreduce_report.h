// The results of `farandole bench allreduce` as a table and as JSON. Plain functions.
#pragma once

#include <span>
#include <string>

#include "farandole/bench/allreduce_benchmark.h"

namespace farandole {

// Lines of a table that is written while it is measured.
std::string allreduce_header();
std::string allreduce_line(const AllreduceResult& result);

// {"bench":"allreduce","machine":{…},"results":[…]}: two results a size, with "registered" true and false.
std::string allreduce_json(std::span<const AllreduceResult> results, const std::string& mpi_version);

}  // namespace farandole
