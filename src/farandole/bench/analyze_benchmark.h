// Measures the analyzer beside simdjson and zlib on one trace. Used by one thread.
#pragma once

#include <cstddef>
#include <filesystem>

namespace farandole {

// Medians, in seconds, of rounds in which the rivals take turns.
struct AnalyzeCost {
  std::size_t text_bytes = 0;  // of the trace, uncompressed
  double on_demand_s = 0;     // simdjson's On-Demand pass that takes each event's fields, over text in memory
  double analyze_s = 0;       // the text's file, all metrics included, on the threads that the analyzer takes
  double inflate_s = 0;       // zlib's inflate of the compressed file
  double analyze_gzip_s = 0;  // the compressed file, all metrics included
  double verdict_s = 0;       // farandole-analyze of the compressed file, from its start to its end
};

// Writes the trace, plain and compressed, into `folder`. Throws UserError or CorruptInput for a trace that
// cannot be read.
AnalyzeCost measure_analyze(const std::filesystem::path& trace, const std::filesystem::path& folder,
                            int rounds);

}  // namespace farandole
