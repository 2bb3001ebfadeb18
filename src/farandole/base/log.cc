#include "farandole/base/log.h"

#include <cstdlib>
#include <memory>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <string>

#include "farandole/base/text/phrases.h"

namespace farandole {

void set_up_log(int rank, int world_size) {
  auto logger =
      std::make_shared<spdlog::logger>("farandole", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  const std::string who = rank >= 0 && world_size > 1 ? "[rank " + std::to_string(rank) + "] " : "";
  logger->set_pattern("farandole: " + who + "%v");
  const char* level = std::getenv("FARANDOLE_LOG");
  logger->set_level(level != nullptr ? spdlog::level::from_str(level) : spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void write_log(LogLevel level, std::string_view text) {
  constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info,
                                                  spdlog::level::warn, spdlog::level::err};
  const auto shown = printable_lines(text);  // Names of files may control a terminal.
  spdlog::log(levels[static_cast<std::size_t>(level)], spdlog::string_view_t(shown.data(), shown.size()));
}

}  // namespace farandole
