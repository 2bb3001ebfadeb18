#include "farandole/comm/recording/merge_lease.h"

#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace farandole {

MergeLease::MergeLease(std::filesystem::path file, std::chrono::milliseconds beat)
    : file_(std::move(file)), fd_(::open(file_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666)) {
  if (!won()) return;
  try {
    heartbeat_.emplace(fd_.get(), beat);
  } catch (...) {
    ::unlink(file_.c_str());
    throw;
  }
}

MergeLease::~MergeLease() {
  if (!won()) return;
  heartbeat_.reset();
  const auto own = sight_of(fd_.get()), there = sight_of(file_);
  if (own && there && own->is_same_file(*there)) ::unlink(file_.c_str());
}

void MergeLease::remove(const std::filesystem::path& file, const FileSight& stale) {
  if (sight_of(file) == stale) ::unlink(file.c_str());
}

}  // namespace farandole
