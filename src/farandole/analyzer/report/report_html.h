// The report as one HTML file that opens offline: pictures are drawn in it, nothing is loaded. Plain
// functions.
#pragma once

#include <filesystem>
#include <string>

#include "farandole/analyzer/report/report.h"

namespace farandole {

// `output` is where the file will lie, so that it can link to the traces; empty: the current folder.
std::string report_html(const Report& report, const std::filesystem::path& output);

}  // namespace farandole
