// Messages for people, written to stderr as "farandole: [rank 1] text". The rank is shown only
// if there are several.
// Thread safety: any thread may call this at any time. set_up_log() must run before other threads start.
#pragma once

#include <fmt/format.h>
#include <string_view>
#include <utility>

namespace farandole {

// rank < 0 means that this process is not (yet) part of a job.
// FARANDOLE_LOG=debug|info|warn|error sets the level.
void set_up_log(int rank = -1, int world_size = 1);

enum class LogLevel { debug, info, warning, error };
void write_log(LogLevel level, std::string_view text);

template <class... Values>
void log_debug(fmt::format_string<Values...> text, Values&&... values) {
  write_log(LogLevel::debug, fmt::format(text, std::forward<Values>(values)...));
}

template <class... Values>
void log_info(fmt::format_string<Values...> text, Values&&... values) {
  write_log(LogLevel::info, fmt::format(text, std::forward<Values>(values)...));
}

template <class... Values>
void log_warning(fmt::format_string<Values...> text, Values&&... values) {
  write_log(LogLevel::warning, fmt::format(text, std::forward<Values>(values)...));
}

template <class... Values>
void log_error(fmt::format_string<Values...> text, Values&&... values) {
  write_log(LogLevel::error, fmt::format(text, std::forward<Values>(values)...));
}

}  // namespace farandole
