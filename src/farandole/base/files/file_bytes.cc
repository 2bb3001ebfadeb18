#include "farandole/base/files/file_bytes.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "farandole/base/error.h"

namespace farandole {

OwnedDescriptor open_regular_file(const std::filesystem::path& path) {
  OwnedDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (file.get() >= 0 && (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)))
    throw CorruptInput(path.string() + " cannot be read: it is not a regular file");
  return file;
}

std::optional<std::string> read_whole_file(const std::filesystem::path& path) {
  const auto file = open_regular_file(path);
  if (file.get() < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (file.get() < 0) throw system_error("open", path);
  constexpr std::size_t block = 65536, most = std::size_t{64} << 20;
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw system_error("stat", path);
  std::string text;
  for (std::size_t end = 0, got = 1; got > 0; end += got) {
    // Files of /proc say that they are empty.
    if (static_cast<std::size_t>(status.st_size) > most || end > most)
      throw CorruptInput(path.string() +
                         " is damaged or no file of a run: it has more than 64 MiB; remove it");
    text.resize(end + block);
    got = read_bytes(file.get(), end, std::as_writable_bytes(std::span(text).subspan(end)), path);
    text.resize(end + got);
  }
  return text;
}

void read_lines(const std::filesystem::path& path, std::uint64_t last_bytes,
                const std::function<void(std::string_view)>& use) {
  constexpr std::size_t block = 65536, longest = 16 << 20;
  const auto file = open_regular_file(path);
  if (file.get() < 0 && (errno == ENOENT || errno == ENOTDIR)) return;
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) throw system_error("open", path);
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  std::string text;  // Begins with the line that no '\n' has ended yet.
  bool too_long = false;
  for (std::uint64_t at = bytes - std::min(bytes, last_bytes), got = block; got == block; at += got) {
    const auto begun = text.size();
    text.resize(begun + block);
    got = read_bytes(file.get(), at, std::as_writable_bytes(std::span(text).subspan(begun)), path);
    text.resize(begun + got);
    std::size_t begin = 0;
    for (auto end = text.find('\n', begun); end != std::string::npos; end = text.find('\n', begin)) {
      if (!std::exchange(too_long, false)) use(std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
    text.erase(0, begin);
    if (text.size() > longest) too_long = true;
    if (too_long) text.clear();
  }
}

std::optional<std::uint64_t> file_size_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

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

RawData::RawData(const std::string& path, int flags)
    : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
  if (fd_.get() < 0) throw system_error("open", path_);
}

void RawData::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw system_error("write", path_);
    offset += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

bool RawData::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  return read_bytes(fd_.get(), offset, bytes, path_) == bytes.size();
}

std::uint64_t RawData::file_bytes() const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) throw system_error("stat", path_);
  return static_cast<std::uint64_t>(status.st_size);
}

void RawData::resize(std::uint64_t bytes) const {
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) throw system_error("truncate", path_);
}

void RawData::start_writeback(std::uint64_t offset, std::uint64_t bytes) const {
  ::sync_file_range(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

void RawData::sync() const {
  if (::fsync(fd_.get()) != 0) throw system_error("fsync", path_);
}

std::int64_t changed_ns(const std::filesystem::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? changed_ns(status) : -1;
}

std::int64_t changed_ns(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

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
