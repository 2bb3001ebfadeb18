#include "farandole/checkpoint/checkpoint_store.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <mutex>
#include <optional>
#include <set>
#include <signal.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/host.h"
#include "farandole/base/log.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/base/run/run_files.h"
#include "farandole/checkpoint/checkpoint_file.h"

namespace farandole {
namespace {

// The name of a temporary file of AtomicFile: ".step-….h5.HOST.PID.tmp".
bool is_of_live_writer(std::string_view name) {
  name.remove_suffix(std::string_view(".tmp").size());
  const auto dot = name.rfind('.');
  if (!name.substr(0, dot).ends_with(".h5." + host_name()))
    return false;  // from an earlier run on another host
  const auto pid = std::atoi(std::string(name.substr(dot + 1)).c_str());
  return pid > 0 && pid != ::getpid() && (::kill(pid, 0) == 0 || errno == EPERM);
}

void remove_leftovers(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(".step-") || !name.ends_with(".tmp") || is_of_live_writer(name)) continue;
    std::error_code vanished;
    std::filesystem::remove(entry.path(), vanished);
    log_info("removed {}, which an interrupted run had left", entry.path().string());
  }
}

// Keeps the last `keep_last` finite checkpoints, the best one of them, the first one of every `keep_every`
// steps, and `published`, even if an earlier run left checkpoints with later steps.
void remove_old(const std::filesystem::path& folder, int keep_last, std::int64_t keep_every,
                const std::filesystem::path& published) {
  const auto all = list_checkpoints(folder);
  std::set<std::filesystem::path> kept = {published};
  std::int64_t period = 0;
  for (auto info = all.rbegin(); keep_every > 0 && info != all.rend(); ++info)
    if (info->not_finite.empty() && info->step / keep_every > period) {
      period = info->step / keep_every;
      kept.insert(info->file);
    }
  for (const auto& info : all)
    if (info.not_finite.empty() && keep_last-- > 0) kept.insert(info.file);
  const auto rank = [](const CheckpointInfo& info) {
    return std::isnan(info.score) || !info.not_finite.empty() ? INFINITY : info.score;
  };
  const auto best = std::min_element(all.begin(), all.end(),
                                     [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  if (best != all.end() && rank(*best) < INFINITY) kept.insert(best->file);
  for (const auto& info : all)
    if (!kept.contains(info.file)) std::filesystem::remove(info.file);
}

CheckpointInfo info_of(const std::filesystem::path& file, const Snapshot& header) {
  std::error_code vanished;
  return {file,
          header.step,
          header.epoch,
          header.score,
          std::filesystem::file_size(file, vanished),
          header.not_finite};
}

// `read` must verify the file.
std::optional<std::pair<std::filesystem::path, Snapshot>> newest_checkpoint(
    const std::filesystem::path& folder, const std::function<Snapshot(const std::filesystem::path&)>& read) {
  const auto files = checkpoint_files(folder);
  for (const auto& file : files) {
    try {
      auto snapshot = read(file);
      if (snapshot.not_finite.empty()) return std::pair(file, std::move(snapshot));
      log_warning("a checkpoint is skipped: {}: {} has a NaN or an infinity", file.string(),
                  snapshot.not_finite);
    } catch (const Error& error) {
      log_warning("a checkpoint is skipped: {}", error.what());
    }
  }
  if (files.empty()) return std::nullopt;
  throw CorruptInput(fmt::format("none of the {} checkpoints in {} is usable; remove them to start anew",
                                 files.size(), folder.string()));
}

}  // namespace

struct CheckpointStore::Impl {
  Impl(CheckpointOptions given, Timeline& recorder) : options(std::move(given)), timeline(recorder) {
    if (options.keep_last < 1) throw UserError("at least 1 checkpoint must be kept");
    try {
      std::filesystem::create_directories(options.folder);
      remove_leftovers(options.folder);
    } catch (const std::filesystem::filesystem_error& error) {
      throw Error(std::string("checkpoints: ") + error.what());
    }
    writer = std::jthread([this](std::stop_token stop) { run(stop); });
  }

  struct Pending {
    Snapshot snapshot;
    std::function<void()> complete;
  };

  void run(std::stop_token stop);
  // Returns why the snapshot could not be completed or written; empty if it was.
  std::string finish(Pending& work);
  void write(Snapshot& snapshot);
  // Returns why the snapshot could not be written; empty if it was.
  std::string try_to_write(Snapshot& snapshot);
  // Without `published`, the newest good checkpoint takes its place.
  void prune(int keep_last, std::filesystem::path published) const;

  const CheckpointOptions options;
  Timeline& timeline;
  std::mutex mutex;  // protects the members below
  std::condition_variable_any changed;
  std::optional<Pending> pending;  // set until it is published
  Snapshot spare;                  // the last one, whose memory is used again
  double write_seconds = 0;
  std::string failure;  // of the last snapshot; empty if it was written
  std::jthread writer;  // its destructor waits until `pending` is written
};

void CheckpointStore::Impl::run(std::stop_token stop) {
  timeline.name_thread("checkpoint");
  give_way();
  std::unique_lock lock(mutex);
  while (changed.wait(lock, stop, [this] { return pending.has_value(); })) {
    lock.unlock();
    const auto begin_ns = now_ns();
    auto reason = finish(*pending);
    lock.lock();
    write_seconds = seconds_since(begin_ns);
    // The memory of an older one that nobody took is freed later, without the lock.
    std::swap(spare, pending->snapshot);
    auto unused = std::exchange(pending, std::nullopt);
    failure = std::move(reason);
    changed.notify_all();
    lock.unlock();
    unused.reset();
    lock.lock();
  }
}

// What completes a snapshot may have memory that the next one needs, so it is destroyed before the
// file is written.
std::string CheckpointStore::Impl::finish(Pending& work) {
  if (work.complete) {
    const Span span(timeline, Category::checkpoint, "complete snapshot");
    try {
      std::exchange(work.complete, {})();
    } catch (const std::exception& error) {
      auto failed = fmt::format("the checkpoint of step {} is lost: {}", work.snapshot.step, error.what());
      log_warning("{}", failed);
      return failed;
    }
  }
  return try_to_write(work.snapshot);
}

void CheckpointStore::Impl::write(Snapshot& snapshot) {
  const auto file = options.folder / checkpoint_name(snapshot.step);
  std::optional<Span> span(std::in_place, timeline, Category::checkpoint, "write checkpoint");
  snapshot.not_finite = write_checkpoint(file, snapshot, [&] {
    span.emplace(timeline, Category::checkpoint, "publish checkpoint");
    if (!options.may_write()) throw Error("another job writes into " + options.folder.string());
  });
  span.reset();
  prune(options.keep_last, file);
}

std::string CheckpointStore::Impl::try_to_write(Snapshot& snapshot) {
  std::string failed;
  bool lacks_space = false;
  const auto attempt = [&] {
    failed.clear();
    try {
      write(snapshot);
    } catch (const Error& error) {
      failed = error.what();
      lacks_space |= error.lacks_space();
    } catch (const std::exception& error) {
      failed = error.what();
    }
  };
  attempt();
  if (!failed.empty()) snapshot.not_finite = find_nonfinite(snapshot);
  if (!failed.empty() && snapshot.not_finite.empty()) {
    const auto first = failed;
    if (lacks_space) prune(0, {});  // Nothing else is repaired by fewer good checkpoints.
    attempt();
    if (failed.empty())
      log_warning("the checkpoint of step {} was written at the second attempt{}; the first one failed: {}",
                  snapshot.step, lacks_space ? ", after older ones were removed" : "", first);
  }
  if (!snapshot.not_finite.empty())
    log_warning("the checkpoint of step {} is not finite: {} has a NaN or an infinity", snapshot.step,
                snapshot.not_finite);
  if (failed.empty()) return {};
  failed = fmt::format("the checkpoint of step {} is lost: {}", snapshot.step, failed);
  log_warning("{}; training continues until the next checkpoint", failed);
  return failed;
}

void CheckpointStore::Impl::prune(int keep_last, std::filesystem::path published) const {
  try {
    if (!options.may_write()) return;
    if (published.empty())
      if (const auto newest = newest_valid_checkpoint(options.folder)) published = newest->file;
    remove_old(options.folder, keep_last, options.keep_every, published);
  } catch (const std::exception& error) {
    log_warning("old checkpoints are not removed: {}", error.what());
  }
}

CheckpointStore::CheckpointStore(CheckpointOptions options, Timeline& timeline)
    : impl_(std::make_unique<Impl>(std::move(options), timeline)) {}

CheckpointStore::~CheckpointStore() = default;

void CheckpointStore::save(Snapshot snapshot, std::function<void()> complete) {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this] { return !impl_->pending.has_value(); });
  impl_->pending.emplace(Impl::Pending{std::move(snapshot), std::move(complete)});
  impl_->changed.notify_all();
}

bool CheckpointStore::idle(std::chrono::milliseconds limit) const {
  std::unique_lock lock(impl_->mutex);
  return impl_->changed.wait_for(lock, limit, [this] { return !impl_->pending.has_value(); });
}

SnapshotBuilder CheckpointStore::builder() {
  const std::lock_guard lock(impl_->mutex);
  return SnapshotBuilder(std::exchange(impl_->spare, {}));
}

double CheckpointStore::write_seconds() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->write_seconds;
}

void CheckpointStore::wait() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this] { return !impl_->pending.has_value(); });
  if (!impl_->failure.empty()) throw Error(std::exchange(impl_->failure, {}));
}

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("step-{:08}.h5", step);
}

CheckpointInfo read_checkpoint_info(const std::filesystem::path& file) {
  return info_of(file, read_checkpoint_header(file));
}

std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& folder) {
  std::vector<CheckpointInfo> found;
  for (const auto& file : checkpoint_files(folder)) {
    try {
      found.push_back(read_checkpoint_info(file));
    } catch (const Error& error) {
      log_debug("left out: {}", error.what());
    }
  }
  return found;
}

std::optional<CheckpointInfo> newest_valid_checkpoint(const std::filesystem::path& folder) {
  const auto found = newest_checkpoint(folder, verify_checkpoint);
  return found ? std::optional(info_of(found->first, found->second)) : std::nullopt;
}

std::optional<std::pair<std::filesystem::path, Snapshot>> read_newest_checkpoint(
    const std::filesystem::path& folder, const ArrayMemory& memory) {
  return newest_checkpoint(folder,
                           [&](const std::filesystem::path& file) { return read_checkpoint(file, memory); });
}

}  // namespace farandole
