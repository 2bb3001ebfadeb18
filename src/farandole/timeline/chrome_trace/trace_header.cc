#include "farandole/timeline/chrome_trace/trace_header.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace farandole {
namespace {

void read_distributed_info(const std::string& text, TraceHeader& header) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return;
  const auto take = [&](const char* key, std::optional<std::int64_t>& target) {
    const auto found = json.find(key);
    if (found != json.end() && found->is_number_integer()) target = found->get<std::int64_t>();
  };
  take("rank", header.kineto_rank);
  take("world_size", header.kineto_world_size);
}

TraceHeader own_header(const std::string& other_data, const std::string& where,
                       std::vector<std::string>& warnings) {
  TraceHeader header;
  if (other_data.empty()) return header;
  const auto json = nlohmann::json::parse(other_data, nullptr, false);
  if (!json.is_object()) {
    warnings.push_back(where + ": otherData is damaged and is ignored");
    return header;
  }
  const auto integer_of = [&](const char* key, std::optional<std::int64_t>& target) {
    const auto found = json.find(key);
    if (found != json.end() && found->is_number_integer()) target = found->get<std::int64_t>();
  };
  integer_of("farandole_trace", header.farandole_trace);
  integer_of("ranks", header.ranks);
  if (const auto found = json.find("clock_residual_us"); found != json.end() && found->is_array())
    for (const auto& residual : *found)
      header.clock_residual_us.push_back(
          residual.is_number() ? std::optional(std::abs(residual.get<double>())) : std::nullopt);
  return header;
}

}  // namespace

TraceHeader trace_header(const std::string& other_data, const std::string& distributed_info,
                         const std::string& where, std::vector<std::string>& warnings) {
  auto header = own_header(other_data, where, warnings);
  read_distributed_info(distributed_info, header);
  return header;
}

}  // namespace farandole
