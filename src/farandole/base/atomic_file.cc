#include "farandole/base/atomic_file.h"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags)
      : path_(path), fd_(::open(path.c_str(), flags, 0666)) {
    if (fd_ < 0) throw system_error("open", path_);
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void write(std::string_view contents) {
    while (!contents.empty()) {
      const ssize_t written = ::write(fd_, contents.data(), contents.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw system_error("write", path_);
      contents.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  void sync() {
    if (::fsync(fd_) != 0) throw system_error("fsync", path_);
  }

 private:
  std::string path_;
  int fd_;
};

}  // namespace

std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  std::error_code ignored;
  // A rename would put a file in the place of /dev/null, for everybody.
  if (std::filesystem::is_other(path, ignored)) return path;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return path.parent_path() /
         ("." + path.filename().string() + "." + host + "." + std::to_string(::getpid()) + ".tmp");
}

void publish_file(const std::filesystem::path& temporary, const std::filesystem::path& path) {
  if (temporary == path) return;
  Descriptor(temporary, O_RDONLY | O_CLOEXEC).sync();
  if (::rename(temporary.c_str(), path.c_str()) != 0) throw system_error("rename to", path);
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  Descriptor(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC).sync();
}

void discard_file(const std::filesystem::path& temporary, const std::filesystem::path& path) {
  if (temporary != path) ::unlink(temporary.c_str());
}

void write_file_atomically(const std::filesystem::path& path, std::string_view contents) {
  const auto temporary = temporary_beside(path);
  try {
    Descriptor(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC).write(contents);
    publish_file(temporary, path);
  } catch (...) {
    discard_file(temporary, path);
    throw;
  }
}

}  // namespace farandole
