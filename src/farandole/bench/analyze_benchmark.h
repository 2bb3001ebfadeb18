// Compares the analyzer with simdjson and zlib on one trace.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <filesystem>

namespace farandole {

// Units: seconds. Medians over rounds in which the measurements alternate.
struct AnalyzeCost {
  std::size_t text_bytes = 0;  // Size of the uncompressed trace.
  double on_demand_s = 0;  // simdjson's On-Demand parser reads the fields of each event from text in memory.
  double analyze_s = 0;    // Uncompressed file, all metrics, with the analyzer's default threads.
  double inflate_s = 0;    // zlib decompresses the compressed file.
  double analyze_gzip_s = 0;  // Compressed file, all metrics.
  double verdict_s = 0;       // farandole-analyze on the compressed file, from start to end of the process.
};

// Writes the trace, plain and compressed, to `folder`.
// Throws: UserError or CorruptInput if the trace cannot be read.
AnalyzeCost measure_analyze(const std::filesystem::path& trace, const std::filesystem::path& folder,
                            int rounds);

}  // namespace farandole
