#include "farandole/launch/supervisor/run_directory_handshake.h"

#include <array>
#include <climits>
#include <fmt/format.h>
#include <span>
#include <sys/mman.h>
#include <unistd.h>

#include "farandole/base/files/file_bytes.h"
#include "farandole/base/run/run_folder.h"

namespace farandole {

RunDirectoryHandshake::RunDirectoryHandshake() : file_(::memfd_create(run_dir_memory, MFD_CLOEXEC)) {}

std::pair<std::string, std::string> RunDirectoryHandshake::asked() const {
  return {run_dir_wanted, fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get())};
}

std::filesystem::path RunDirectoryHandshake::answer() const {
  if (file_.get() < 0) return {};
  std::array<char, PATH_MAX> text;
  const auto length = read_bytes(file_.get(), 0, std::as_writable_bytes(std::span(text)), "memfd");
  const std::filesystem::path folder(std::string(text.data(), length));
  std::error_code ignored;
  return folder.is_absolute() && std::filesystem::is_directory(folder, ignored) ? folder : "";
}

}  // namespace farandole
