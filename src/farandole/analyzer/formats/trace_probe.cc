#include "farandole/analyzer/formats/trace_probe.h"

#include <string_view>

#include "farandole/timeline/chrome_trace/trace_scanner.h"

namespace farandole {

TraceSource probe_trace(const std::filesystem::path& file) {
  TraceWindow window(file);
  window.refill();
  const std::string_view text(window.data(), window.size());
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (text.starts_with("SQLite format 3")) return TraceSource::nsys;
  if (has("\"farandole_trace\"")) return TraceSource::farandole;
  if (has("\"NEGOTIATE_")) return TraceSource::horovod;
  if (has("\"schemaVersion\"") || has("\"distributedInfo\"") || has("\"deviceProperties\""))
    return TraceSource::kineto;
  return TraceSource::chrome;
}

}  // namespace farandole
