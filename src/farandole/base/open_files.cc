#include "farandole/base/open_files.h"

#include <string>
#include <sys/resource.h>

#include "farandole/base/error.h"

namespace farandole {

void allow_open_files(std::size_t count) {
  constexpr rlim_t others = 64;  // files that the program and its libraries hold open
  const rlim_t needed = count + others;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) throw system_error("ask for the limit of", "open files");
  if (limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed)
    throw UserError(std::to_string(count) +
                    " files must be open at the same time, but this machine allows only " +
                    std::to_string(limit.rlim_max) + " (ulimit -Hn); merge fewer at a time");
  limit.rlim_cur = needed;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw system_error("raise the limit of", "open files");
}

}  // namespace farandole
