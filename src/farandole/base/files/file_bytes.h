// File descriptors and the bytes behind them. Reads and writes all requested bytes, although a system call
// may process only a part of them. Tells when a file was last modified.
// Thread safety: any thread may call this at any time. Only one thread at a time may use an OwnedDescriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

struct stat;

namespace farandole {

// A file descriptor that is closed at the end of its scope.
class OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int fd = -1) : fd_(fd) {}
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    const int fd = std::exchange(other.fd_, -1);
    reset();
    fd_ = fd;
    return *this;
  }
  ~OwnedDescriptor() { reset(); }
  int get() const { return fd_; }  // negative if there is no descriptor
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

// Opens a file for reading. The descriptor is negative, and errno is set, if the file cannot be opened.
// Throws: CorruptInput if it is not a regular file. A FIFO without a writer would block the caller.
OwnedDescriptor open_regular_file(const std::filesystem::path& path);
// True if the failure says that a file or one of its folders does not exist.
inline bool is_absent(const std::error_code& failure) {
  return failure == std::errc::no_such_file_or_directory || failure == std::errc::not_a_directory;
}
// Returns the whole contents, or nullopt if the file does not exist.
// Throws: CorruptInput if it is not a regular file, or has more than 64 MiB, which no file of a run
// has; Error if it cannot be read.
std::optional<std::string> read_whole_file(const std::filesystem::path& path);

// Calls `use` with each line of the file, without its '\n'. `last_bytes`: reads only the end of the file,
// where the first line may be a part of one. Leaves out a last line without '\n', which a kill has cut off,
// and lines of more than 16 MiB. A file that does not exist has no lines.
// Throws: CorruptInput if it is not a regular file; Error if it cannot be read.
void read_lines(const std::filesystem::path& path, std::uint64_t last_bytes,
                const std::function<void(std::string_view)>& use);

// The limit of this process on file sizes (ulimit -f), if there is one. A system call that would exceed it
// raises SIGXFSZ, which ends a program that does not ignore it.
std::optional<std::uint64_t> file_size_limit();

// Writes at the descriptor's offset and advances the offset.
// Throws: Error that names `path` if a write fails.
void write_bytes(int fd, std::string_view bytes, const std::string& path);
// Returns the number of bytes read. It is less than the size of `into` only if the file ends before.
// Throws: Error that names `path` if a read fails.
std::size_t read_bytes(int fd, std::uint64_t offset, std::span<std::byte> into, const std::string& path);

// A file for reading and writing at offsets.
class RawData {
 public:
  RawData(const std::string& path, int flags);  // flags as for open(2); throws Error
  void write(std::uint64_t offset, std::span<const std::byte> bytes) const;  // throws Error
  // Returns false if the file ends before.
  // Throws: Error if the read fails.
  bool read(std::uint64_t offset, std::span<std::byte> bytes) const;
  std::uint64_t file_bytes() const;
  void resize(std::uint64_t bytes) const;  // throws Error
  // Lets the disk begin to write these bytes, and does not wait for it. Without this call it is
  // idle until sync().
  void start_writeback(std::uint64_t offset, std::uint64_t bytes) const;
  void sync() const;  // throws Error

 private:
  std::string path_;
  OwnedDescriptor fd_;
};

// The modification time by the clock of the file system, or -1 if the file does not exist.
// Units: nanoseconds since 1970.
std::int64_t changed_ns(const std::filesystem::path& path);
std::int64_t changed_ns(const struct stat& status);

// Raises the process's soft limit (RLIMIT_NOFILE) so that `count` more files or sockets can be opened.
// Throws: UserError if the hard limit does not allow it. `advice` ends its message, as in "merge fewer
// at a time".
void allow_open_files(std::size_t count, std::string_view advice);

}  // namespace farandole
