// Tells by its content who wrote a trace. A plain function.
#pragma once

#include <filesystem>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// From its first bytes, compressed or not; what cannot be told is TraceSource::chrome. Throws UserError where
// the file cannot be opened.
TraceSource probe_trace(const std::filesystem::path& file);

}  // namespace farandole
