// A file descriptor that is closed at the end of its scope.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <utility>

namespace farandole {

class OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int fd = -1) : fd_(fd) {}
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept;
  ~OwnedDescriptor() { reset(); }
  int get() const { return fd_; }  // negative if there is no descriptor
  void reset();

 private:
  int fd_;
};

}  // namespace farandole
