#include "farandole/base/run/run_lease.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <set>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/host.h"
#include "farandole/base/log.h"
#include "farandole/base/process/process_state.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "lease-", suffix = ".json";

fs::path lease_file(const fs::path& run_dir, int number) {
  return run_dir / fmt::format("{}{:04}{}", prefix, number, suffix);
}

// The numbers of the leases in the folder.
std::set<int> leases_in(const fs::path& run_dir, std::error_code& unreadable) {
  std::set<int> numbers;
  for (fs::directory_iterator entry(run_dir, unreadable), end; !unreadable && entry != end;
       entry.increment(unreadable)) {
    const auto name = entry->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    const auto digits =
        std::string_view(name).substr(prefix.size(), name.size() - prefix.size() - suffix.size());
    if (const auto number = parse_number<int>(digits);
        number && lease_file(run_dir, *number).filename() == name)
      numbers.insert(*number);
  }
  return numbers;
}
std::set<int> leases_in(const fs::path& run_dir) {
  std::error_code ignored;
  return leases_in(run_dir, ignored);
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Who holds a lease.
struct Holder {
  std::string host, boot, job;
  std::int64_t process = 0, started_ticks = 0, pid_namespace = 0, restart = 0, inode = 0;

  template <class ThisHolder, class Visit>
  static void each_member(ThisHolder& holder, Visit visit) {
    visit("host", holder.host);
    visit("boot", holder.boot);
    visit("job", holder.job);
    visit("process", holder.process);
    visit("started_ticks", holder.started_ticks);
    visit("pid_namespace", holder.pid_namespace);
    visit("restart", holder.restart);
    visit("inode", holder.inode);
  }
  Json to_json() const {
    Json json;
    each_member(*this, [&json](const char* key, const auto& value) { json[key] = value; });
    return json;
  }
  static Holder from_json(const Json& json) {
    Holder holder;
    each_member(holder, [&json](const char* key, auto& value) { value = json.value(key, value); });
    return holder;
  }

  static Holder myself() {
    Holder me;
    me.host = host_name();
    me.boot = boot_id();
    me.job = variable("SLURM_JOB_ID");
    me.restart = parse_number<std::int64_t>(variable("SLURM_RESTART_COUNT")).value_or(0);
    me.process = ::getpid();
    me.pid_namespace = static_cast<std::int64_t>(own_pid_namespace());
    if (const auto process = read_process_state(me.process)) me.started_ticks = process->started_ticks;
    return me;
  }
  // std::nullopt if there is no file, or its writer has not come to its end.
  static std::optional<Holder> of(const fs::path& file) {
    try {
      const auto text = read_whole_file(file);
      if (text && !text->empty()) return from_json(parse_json(*text));
    } catch (const std::exception&) {
    }
    return std::nullopt;
  }

  std::string describe() const {
    return fmt::format("process {} on {}{}", process, host, job.empty() ? "" : " (Slurm job " + job + ")");
  }
};

enum class Life { alive, dead, unknown };

Life life_of(const Holder& holder, const FileSight& file) {
  const auto me = Holder::myself();
  if (holder.inode != static_cast<std::int64_t>(file.inode))
    return Life::dead;  // of a run directory that was copied
  if (!holder.job.empty() && holder.job == me.job && holder.restart < me.restart) return Life::dead;
  if (holder.boot.empty() || holder.boot != me.boot || holder.pid_namespace != me.pid_namespace)
    return Life::unknown;
  const auto process = read_process_state(holder.process);
  const bool runs = process && process->state != 'Z' && process->started_ticks == holder.started_ticks;
  return runs ? Life::alive : Life::dead;
}

// The newest lease of a run directory, as it is now.
struct NewestLease {
  fs::path file;
  std::optional<Holder> holder;
  std::optional<FileSight> sight;
};

// std::nullopt if there is none.
std::optional<NewestLease> newest_lease(const fs::path& run_dir) {
  const auto there = leases_in(run_dir);
  if (there.empty()) return std::nullopt;
  const auto file = lease_file(run_dir, *there.rbegin());
  return NewestLease{file, Holder::of(file), sight_of(file)};
}

[[noreturn]] void refuse(const fs::path& run_dir, const std::optional<Holder>& holder) {
  throw UserError(fmt::format("{} is in use by {}; wait until it has ended, or choose another run directory",
                              run_dir.string(), holder ? holder->describe() : "another job"));
}

// Returns once the holder of `file` is dead or the file has vanished.
// Throws: UserError if the holder is alive.
void outlive(const fs::path& run_dir, const fs::path& file, std::chrono::milliseconds patience) {
  constexpr int looks = 40;
  std::optional<FileSight> first;
  for (int look = 0; look < looks; ++look) {
    const auto sight = sight_of(file);
    if (!sight) return;
    const auto holder = Holder::of(file);
    const auto life = holder ? life_of(*holder, *sight) : Life::unknown;
    if (life == Life::dead) return;
    if (life == Life::alive || (first && *first != *sight)) refuse(run_dir, holder);
    if (!first)
      log_info("{} was in use by {}; waiting up to {} s to see whether that job is alive", run_dir.string(),
               holder ? holder->describe() : "another job",
               std::chrono::ceil<std::chrono::seconds>(patience).count());
    first = sight;
    std::this_thread::sleep_for(patience / looks);
  }
}

}  // namespace

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

void refuse_if_in_use(const fs::path& run_dir) {
  std::error_code none;
  if (!fs::is_directory(run_dir, none)) return;
  for (const int number : leases_in(run_dir)) {
    const auto file = lease_file(run_dir, number);
    const auto holder = Holder::of(file);
    const auto sight = sight_of(file);
    if (holder && sight && life_of(*holder, *sight) == Life::alive) refuse(run_dir, holder);
  }
}

std::optional<LeaseHolder> find_lease_holder(const fs::path& run_dir) {
  const auto newest = newest_lease(run_dir);
  if (!newest || !newest->holder || !newest->sight) return std::nullopt;
  const auto& [file, holder, sight] = *newest;
  LeaseHolder found{holder->host, holder->process, std::nullopt, sight->changed_ns};
  if (const auto life = life_of(*holder, *sight); life != Life::unknown) found.alive = life == Life::alive;
  return found;
}

bool lease_is_alive(const fs::path& run_dir) {
  const auto newest = newest_lease(run_dir);
  if (!newest) return false;
  const auto& [file, holder, first] = *newest;
  if (!first || !holder) return first.has_value();
  if (const auto life = life_of(*holder, *first); life != Life::unknown) return life == Life::alive;
  // A host whose clock is not this host's may make a dead job look young, but not for long.
  constexpr std::int64_t young_ns = 10'000'000'000;
  return std::abs(real_time_ns() - first->changed_ns) < young_ns || lease_beats(run_dir);
}

bool lease_beats(const fs::path& run_dir) {
  const auto newest = newest_lease(run_dir);
  constexpr int looks = 25;
  constexpr std::chrono::milliseconds pause(200);  // In all, more than RunLease::Times::beat.
  for (int look = 0; look < looks && newest && newest->sight; ++look) {
    std::this_thread::sleep_for(pause);
    const auto now = sight_of(newest->file);
    if (!now) return false;
    if (*now != *newest->sight) return true;
  }
  return false;
}

RunLease::RunLease(const fs::path& run_dir, std::function<void(const std::string&)> lost, Times times)
    : run_dir_(fs::absolute(run_dir)) {
  while (!try_to_take(times)) {
  }
  heartbeat_.emplace(fd_.get(), times.beat, [this, lost = std::move(lost), told = false]() mutable {
    try {
      if (told || held()) return;
    } catch (const Error&) {  // The next beat looks again. Until then, no checkpoint is published.
      return;
    }
    told = true;
    const auto newest = newest_lease(run_dir_);
    const auto holder = newest ? newest->holder : std::nullopt;
    lost(fmt::format("{} was taken over by {}; this job ends and writes nothing more", run_dir_.string(),
                     holder ? holder->describe() : "another job"));
  });
}

// Returns false if another job came first; its lease is then to be looked at.
bool RunLease::try_to_take(const Times& times) {
  auto there = leases_in(run_dir_);
  fs::path file;
  do {
    if (!there.empty()) outlive(run_dir_, lease_file(run_dir_, *there.rbegin()), times.patience);
    number_ = there.empty() ? 1 : *there.rbegin() + 1;
    file = lease_file(run_dir_, number_);
    fd_ = OwnedDescriptor(::open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666));
    // On NFS, the list may lack a file for a minute. So the file that came first is looked at by its name.
    if (fd_.get() < 0 && errno == EEXIST) there.insert(number_);
  } while (there.contains(number_));
  if (fd_.get() < 0 && (errno == EACCES || errno == EPERM || errno == EROFS))
    throw UserError("run directory " + run_dir_.string() + " is not writable; choose another --run-dir");
  if (fd_.get() < 0) throw system_error("create", file.string());
  auto me = Holder::myself();
  try {
    const auto own = sight_of(fd_.get());
    if (!own) throw system_error("look at", file.string());
    own_ = *own;
    me.inode = static_cast<std::int64_t>(own_.inode);
    write_bytes(fd_.get(), json_text(me.to_json()) + "\n", file.string());
  } catch (...) {
    ::unlink(file.c_str());
    throw;
  }
  // Between the look and this point, another job may have come, ended, and been followed by a third.
  auto now = leases_in(run_dir_);
  now.erase(number_);
  if (!std::includes(there.begin(), there.end(), now.begin(), now.end())) {
    ::unlink(file.c_str());
    return false;
  }
  for (const int stale : there) ::unlink(lease_file(run_dir_, stale).c_str());
  return true;
}

RunLease::~RunLease() {
  heartbeat_.reset();
  try {
    if (held()) ::unlink(lease_file(run_dir_, number_).c_str());
  } catch (const Error&) {  // It may be another job's. The next job sees that this process has ended.
  }
}

// Only an answer of the file system can say that the lease is lost. No free descriptor, a server that does
// not answer, or a stale handle is none. The own file is known by its number, because on NFS its descriptor
// is stale when another host has removed it.
bool RunLease::held() const {
  const auto file = lease_file(run_dir_, number_);
  const OwnedDescriptor fd(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0 && errno != ENOENT) throw system_error("look at the lease", file.string());
  if (fd.get() < 0) {  // If the folder was removed, nobody else has it.
    struct stat folder {};
    if (::stat(run_dir_.c_str(), &folder) == 0) return false;
    if (errno == ENOENT) return true;
    throw system_error("look at", run_dir_.string());
  }
  const auto there = sight_of(fd.get());
  if (!there) throw system_error("look at the lease", file.string());
  if (!own_.is_same_file(*there)) return false;
  std::error_code unreadable;
  const auto newer = leases_in(run_dir_, unreadable);
  if (unreadable)
    throw Error(fmt::format("look for leases in {}: {}", run_dir_.string(), unreadable.message()));
  return newer.empty() || *newer.rbegin() == number_;
}

}  // namespace farandole
