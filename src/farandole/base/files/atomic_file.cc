#include "farandole/base/files/atomic_file.h"

#include <cerrno>
#include <exception>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/host.h"

namespace farandole {
namespace {

OwnedDescriptor opened(const std::filesystem::path& path, int flags) {
  OwnedDescriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (file.get() < 0) throw system_error("open", path);
  return file;
}

void sync(const std::filesystem::path& path, int flags) {
  if (::fsync(opened(path, flags).get()) != 0) throw system_error("fsync", path);
}

std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  std::error_code ignored;
  // If `path` is /dev/null, a rename would replace the device with a file for every process.
  if (std::filesystem::is_other(path, ignored)) return path;
  const auto temporary = path.parent_path() / ("." + path.filename().string() + "." + host_name() + "." +
                                               std::to_string(::getpid()) + ".tmp");
  ::unlink(temporary.c_str());
  opened(temporary, O_WRONLY | O_CREAT | O_EXCL);
  return temporary;
}

OwnedDescriptor opened_if_pipe(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_fifo(path, ignored)) return OwnedDescriptor();
  OwnedDescriptor pipe(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  if (pipe.get() < 0 && errno == ENXIO)
    throw Error(path.string() + " is a pipe that nobody reads; remove it, or choose another file");
  if (pipe.get() < 0) throw system_error("open", path);
  return pipe;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)),
      pipe_(opened_if_pipe(path_)),
      temporary_(temporary_beside(path_)),
      published_(temporary_ == path_) {}

AtomicFile::~AtomicFile() {
  if (!published_) ::unlink(temporary_.c_str());
}

void AtomicFile::publish() {
  if (published_) return;
  publish_file(temporary_, path_);
  published_ = true;
}

void publish_file(const std::filesystem::path& temporary, const std::filesystem::path& path) {
  sync(temporary, O_RDONLY);
  if (::rename(temporary.c_str(), path.c_str()) != 0) throw system_error("rename to", path);
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  sync(folder, O_RDONLY | O_DIRECTORY);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view contents) {
  AtomicFile file(path);
  write_bytes(opened(file.temporary(), O_WRONLY).get(), contents, file.temporary());
  file.publish();
}

bool replace_file(const std::filesystem::path& path, std::string_view contents) noexcept try {
  const AtomicFile file(path);
  write_bytes(opened(file.temporary(), O_WRONLY).get(), contents, file.temporary());
  if (file.temporary() != path) std::filesystem::rename(file.temporary(), path);
  return true;
} catch (const std::exception&) {
  return false;
}

}  // namespace farandole
