#include "farandole/comm/recording/merge_lease.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "farandole/base/quiet_thread.h"

namespace farandole {
namespace {

std::optional<MergeLease::Sight> sight_of(int fd) {
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0) return std::nullopt;
  return MergeLease::Sight{status.st_dev, status.st_ino,
                           std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

}  // namespace

MergeLease::MergeLease(std::filesystem::path file, std::chrono::milliseconds beat)
    : file_(std::move(file)),
      beat_(beat),
      fd_(::open(file_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666)) {
  if (!won()) return;
  try {
    thread_ = start_quiet_thread([this] { beat_until_done(); });
  } catch (...) {
    ::unlink(file_.c_str());
    throw;
  }
}

MergeLease::~MergeLease() {
  if (!won()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  ends_.notify_one();
  thread_.join();
  const auto own = sight_of(fd_.get()), there = look(file_);
  if (own && there && own->device == there->device && own->inode == there->inode) ::unlink(file_.c_str());
}

// Runs on a separate thread, because the merge may wait for its disk for any time.
void MergeLease::beat_until_done() {
  ::pthread_setname_np(::pthread_self(), "merge claim");
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, beat_, [this] { return done_; })) {
    lock.unlock();
    ::futimens(fd_.get(), nullptr);
    lock.lock();
  }
}

// NFS queries its server when a file is opened. Otherwise it returns data that is some seconds old.
std::optional<MergeLease::Sight> MergeLease::look(const std::filesystem::path& file) {
  const OwnedDescriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  return sight_of(fd.get());
}

void MergeLease::remove(const std::filesystem::path& file, const Sight& stale) {
  if (look(file) == stale) ::unlink(file.c_str());
}

}  // namespace farandole
