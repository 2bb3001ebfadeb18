// Reads a trace's description of itself, which is beside its events.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <vector>

#include "farandole/timeline/chrome_trace/trace_reader.h"

namespace farandole {

// Parses the texts of "otherData" and of PyTorch's "distributedInfo"; each of them may be empty. Damage is
// appended to `warnings`, with `where` at the beginning of each line.
TraceHeader trace_header(const std::string& other_data, const std::string& distributed_info,
                         const std::string& where, std::vector<std::string>& warnings);

}  // namespace farandole
