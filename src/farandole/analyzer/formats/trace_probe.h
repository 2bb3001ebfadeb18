// Detects from the contents which tool wrote a trace. A pure function.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// Reads the first bytes of a plain or compressed file. An unknown format is TraceSource::chrome.
// Throws: UserError if the file cannot be opened.
TraceSource probe_trace(const std::filesystem::path& file);

}  // namespace farandole
