// Writes the report as one HTML file that needs no network. It contains its charts.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <string>

#include "farandole/analyzer/report/report.h"

namespace farandole {

// `output` is the path of the file, which is needed for links to the traces; empty means the current folder.
std::string report_html(const Report& report, const std::filesystem::path& output);

}  // namespace farandole
