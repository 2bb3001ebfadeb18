#include "farandole/checkpoint/raw_data.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

// Linux transfers up to 2 GiB per call.
constexpr std::size_t bytes_per_call = std::size_t{1} << 30;

}  // namespace

RawData::RawData(const std::string& path, int flags)
    : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
  if (fd_ < 0) throw system_error("open", path_);
}

RawData::RawData(RawData&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

RawData::~RawData() {
  if (fd_ >= 0) ::close(fd_);
}

void RawData::resize(std::uint64_t bytes) const {
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) throw system_error("truncate", path_);
}

void RawData::start_writeback(std::uint64_t offset, std::uint64_t bytes) const {
  ::sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

void RawData::sync() const {
  if (::fsync(fd_) != 0) throw system_error("fsync", path_);
}

void RawData::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const auto done =
        ::pwrite(fd_, bytes.data(), std::min(bytes.size(), bytes_per_call), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw system_error("write", path_);
    offset += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

bool RawData::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const auto done =
        ::pread(fd_, bytes.data(), std::min(bytes.size(), bytes_per_call), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw system_error("read", path_);
    if (done == 0) return false;
    offset += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return true;
}

std::uint64_t RawData::file_bytes() const {
  struct stat status;
  if (::fstat(fd_, &status) != 0) throw system_error("stat", path_);
  return static_cast<std::uint64_t>(status.st_size);
}

}  // namespace farandole
