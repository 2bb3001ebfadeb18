#include "farandole/base/file_bytes.h"

#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>

#include "farandole/base/error.h"

namespace farandole {

void write_bytes(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error("write", path);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::size_t read_bytes(int fd, std::uint64_t offset, std::span<std::byte> into, const std::string& path) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t count =
        ::pread(fd, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error("read", path);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

std::int64_t changed_ns(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return -1;
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

}  // namespace farandole
