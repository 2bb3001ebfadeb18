#include "farandole/base/process/heartbeat.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <utility>

#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/owned_descriptor.h"

namespace farandole {

std::optional<FileSight> sight_of(int fd) {
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0) return std::nullopt;
  return FileSight{status.st_dev, status.st_ino, changed_ns(status)};
}

// NFS queries its server when a file is opened. Otherwise it returns data that is some seconds old.
std::optional<FileSight> sight_of(const std::filesystem::path& file) {
  const OwnedDescriptor fd(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  return sight_of(fd.get());
}

Heartbeat::Heartbeat(int fd, std::chrono::milliseconds beat, std::function<void()> after_beat)
    : thread_(start_quiet_thread([this, fd, beat, after_beat = std::move(after_beat)] {
        ::pthread_setname_np(::pthread_self(), "heartbeat");
        while (stop_.sleep(beat)) {
          ::futimens(fd, nullptr);
          after_beat();
        }
      })) {}

Heartbeat::~Heartbeat() {
  stop_.stop();
  thread_.join();
}

}  // namespace farandole
