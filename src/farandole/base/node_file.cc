#include "farandole/base/node_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <set>
#include <span>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "farandole/base/atomic_file.h"
#include "farandole/base/error.h"
#include "farandole/base/file_bytes.h"
#include "farandole/base/owned_descriptor.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr const char* link_extension = ".node";
// Begins the name of a file that a link may lead to: nothing else is ever removed.
constexpr std::string_view away_mark = "farandole-";

// Empty where the link leads nowhere on this node.
fs::path file_behind(const fs::path& link) {
  std::error_code ignored;
  const fs::path target = fs::read_symlink(link, ignored);
  const bool ours = target.filename().string().starts_with(away_mark);
  return ours && fs::is_regular_file(target, ignored) ? target : fs::path();
}

// From the start to the end: of a file that is still written to, its tables are older than its records.
void copy_sparse(const OwnedDescriptor& from, const fs::path& source, const fs::path& target) {
  const OwnedDescriptor to(::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (to.get() < 0) throw system_error("create", target);
  std::vector<char> block(std::size_t{256} << 10);
  std::size_t at = 0;
  for (std::size_t count = 1; count > 0; at += count) {
    count = read_bytes(from.get(), at, std::as_writable_bytes(std::span(block)), source);
    const bool empty = count == 0 || (block[0] == '\0' && std::memcmp(&block[0], &block[1], count - 1) == 0);
    if (empty)
      ::lseek(to.get(), static_cast<off_t>(count), SEEK_CUR);
    else
      write_bytes(to.get(), {block.data(), count}, target);
  }
  if (::ftruncate(to.get(), static_cast<off_t>(at)) != 0) throw system_error("write", target);
  if (::fsync(to.get()) != 0) throw system_error("fsync", target);
}

// The copy in the making. Of one name, for the lock lets one at it: the next overwrites what a killed one
// left.
fs::path part_of(const fs::path& home) {
  return fs::path(home).replace_extension(".part");
}

// The link's name once what it leads to is whole at home and only waits to be removed. A process may be
// killed between any two of these calls, and the next goes on where it ended.
fs::path spent_link(const fs::path& home) {
  return fs::path(home).replace_extension(".home");
}

void remove_spent(const fs::path& home) {
  const auto spent = spent_link(home);
  if (const auto file = file_behind(spent); !file.empty()) ::unlink(file.c_str());
  ::unlink(spent.c_str());
}

// False where there is none on this node, or no longer: another process has brought it home, whole.
// `afterwards` runs under the lock too.
template <class Afterwards>
bool copy_locked(const fs::path& home, const Afterwards& afterwards) {
  const auto path = file_behind(node_link(home));
  if (path.empty()) return false;
  const OwnedDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 && errno == ENOENT) return false;
  if (file.get() < 0) throw system_error("open", path);
  while (::flock(file.get(), LOCK_EX) != 0)
    if (errno != EINTR) throw system_error("lock", path);
  if (file_behind(node_link(home)) != path) return false;
  const auto temporary = part_of(home);
  try {
    copy_sparse(file, path, temporary);
    publish_file(temporary, home);
  } catch (...) {
    discard_file(temporary, home);
    throw;
  }
  afterwards();
  return true;
}

}  // namespace

fs::path node_link(const fs::path& home) {
  return fs::path(home).replace_extension(link_extension);
}

fs::path leave_home(const fs::path& home, const fs::path& node_folder) {
  forget_home(home);
  std::random_device random;
  const auto name = std::string(away_mark) + home.stem().string() + "-" + std::to_string(::getpid()) + "-" +
                    std::to_string(random()) + home.extension().string();
  const fs::path file = fs::absolute(node_folder) / name;
  if (::symlink(file.c_str(), node_link(home).c_str()) != 0)
    throw system_error("make the link", node_link(home));
  return file;
}

void forget_home(const fs::path& home) {
  remove_spent(home);
  const auto link = node_link(home);
  if (const auto file = file_behind(link); !file.empty()) ::unlink(file.c_str());
  for (const auto& path : {link, part_of(home), home}) ::unlink(path.c_str());
}

bool copy_home(const fs::path& home) {
  return copy_locked(home, [] {});
}

bool bring_home(const fs::path& home) {
  remove_spent(home);
  return copy_locked(home, [&] {
    if (::rename(node_link(home).c_str(), spent_link(home).c_str()) != 0)
      throw system_error("rename", node_link(home));
    remove_spent(home);
  });
}

fs::path readable_at(const fs::path& home) {
  const auto file = file_behind(node_link(home));
  return file.empty() ? home : file;
}

std::vector<fs::path> homes_in(const fs::path& folder, const std::string& extension,
                               std::error_code& failure) {
  std::set<fs::path> homes;
  failure.clear();
  for (fs::directory_iterator entry(folder, failure); !failure && entry != fs::directory_iterator();
       entry.increment(failure)) {
    std::error_code ignored;
    fs::path path = entry->path();
    if (path.extension() == link_extension && entry->is_symlink(ignored))
      homes.insert(path.replace_extension(extension));
    else if (path.extension() == extension && entry->is_regular_file(ignored))
      homes.insert(path);
  }
  return {homes.begin(), homes.end()};
}

}  // namespace farandole
