#include "farandole/base/files/open_files.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "farandole/base/error.h"

namespace farandole {

void allow_open_files(std::size_t count, std::string_view advice) {
  constexpr rlim_t others = 64;  // that the program and its libraries hold open
  const rlim_t needed = count + others;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) throw system_error("ask for the limit of", "open files");
  if (limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed)
    throw UserError(fmt::format(
        "{} files must be open at the same time, but this machine allows only {} (ulimit -Hn); {}", count,
        limit.rlim_max, advice));
  limit.rlim_cur = needed;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw system_error("raise the limit of", "open files");
}

}  // namespace farandole
