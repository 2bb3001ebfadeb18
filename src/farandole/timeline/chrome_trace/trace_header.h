// What a trace says of itself beside its events. A plain function.
#pragma once

#include <string>
#include <vector>

#include "farandole/timeline/chrome_trace/trace_reader.h"

namespace farandole {

// From the texts of "otherData" and of PyTorch's "distributedInfo", each of which may be empty. Damage goes
// to `warnings`, beginning with `where`.
TraceHeader trace_header(const std::string& other_data, const std::string& distributed_info,
                         const std::string& where, std::vector<std::string>& warnings);

}  // namespace farandole
