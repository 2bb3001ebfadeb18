// A file descriptor that is closed at the end of its scope.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <unistd.h>
#include <utility>

namespace farandole {

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

}  // namespace farandole
