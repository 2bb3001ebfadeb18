#include "farandole/base/files/staging_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <set>
#include <span>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr const char* link_extension = ".node";

// The names of staging files begin with this.
std::string name_for(const fs::path& destination) {
  return "farandole-" + destination.stem().string() + "-";
}

// It continues with the identity of the destination's folder. If the folder is copied, links of the copy lead
// to files with the identity of the original.
std::string own_name_for(const fs::path& destination) {
  struct stat folder {};
  if (::stat((destination.parent_path() / ".").c_str(), &folder) != 0)
    throw system_error("find the folder of", destination);
  return name_for(destination) + std::to_string(folder.st_dev) + "." + std::to_string(folder.st_ino) + "-";
}

// Empty if the link does not lead to a staging file on this node.
fs::path file_behind(const fs::path& link) {
  std::error_code ignored;
  const fs::path target = fs::read_symlink(link, ignored);
  const bool staged = target.filename().string().starts_with(name_for(link));
  return staged && fs::is_regular_file(target, ignored) ? target : fs::path();
}

// Removes the link, and the file behind it if its name proves that it was made for this destination.
void remove_link(const fs::path& link) {
  if (const auto file = file_behind(link);
      !file.empty() && file.filename().string().starts_with(own_name_for(link)))
    ::unlink(file.c_str());
  ::unlink(link.c_str());
}

// Copies from the start to the end: if the file is still being written, its tables are then
// older than its records.
void copy_sparse(const OwnedDescriptor& from, const fs::path& source, const fs::path& target) {
  ::unlink(target.c_str());
  const OwnedDescriptor to(::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
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

// The unfinished copy. It always has the same name, because the lock admits one writer, and so the next
// writer replaces what a killed one left.
fs::path part_of(const fs::path& destination) {
  return fs::path(destination).replace_extension(".part");
}

// The link gets this name when its file is complete at the destination and only remains to be removed. A
// process may be killed between any two of these calls, and the next one continues where it ended.
fs::path spent_link(const fs::path& destination) {
  return fs::path(destination).replace_extension(".destination");
}

// Returns false if there is no file on this node, or if another process has already moved it to the
// destination. `afterwards` runs while the lock is held.
template <class Afterwards>
bool copy_locked(const fs::path& destination, const Afterwards& afterwards) {
  const auto path = file_behind(node_link(destination));
  if (path.empty()) return false;
  const OwnedDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 && errno == ENOENT) return false;
  if (file.get() < 0) throw system_error("open", path);
  while (::flock(file.get(), LOCK_EX) != 0)
    if (errno != EINTR) throw system_error("lock", path);
  if (file_behind(node_link(destination)) != path) return false;
  const auto temporary = part_of(destination);
  try {
    copy_sparse(file, path, temporary);
    publish_file(temporary, destination);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  afterwards();
  return true;
}

}  // namespace

fs::path node_link(const fs::path& destination) {
  return fs::path(destination).replace_extension(link_extension);
}

fs::path stage_in(const fs::path& destination, const fs::path& node_folder) {
  forget_staged(destination);
  std::random_device random;
  const auto name = own_name_for(destination) + std::to_string(::getpid()) + "-" + std::to_string(random()) +
                    destination.extension().string();
  const fs::path file = fs::absolute(node_folder) / name;
  if (::symlink(file.c_str(), node_link(destination).c_str()) != 0)
    throw system_error("make the link", node_link(destination));
  return file;
}

void forget_staged(const fs::path& destination) {
  for (const auto& link : {spent_link(destination), node_link(destination)}) remove_link(link);
  for (const auto& path : {part_of(destination), destination}) ::unlink(path.c_str());
}

bool copy_out(const fs::path& destination) {
  return copy_locked(destination, [] {});
}

bool stage_out(const fs::path& destination) {
  remove_link(spent_link(destination));
  return copy_locked(destination, [&] {
    if (::rename(node_link(destination).c_str(), spent_link(destination).c_str()) != 0)
      throw system_error("rename", node_link(destination));
    remove_link(spent_link(destination));
  });
}

fs::path readable_at(const fs::path& destination) {
  const auto file = file_behind(node_link(destination));
  return file.empty() ? destination : file;
}

std::vector<fs::path> staged_files_in(const fs::path& folder, const std::string& extension,
                                      std::error_code& failure) {
  std::set<fs::path> destinations;
  failure.clear();
  for (fs::directory_iterator entry(folder, failure); !failure && entry != fs::directory_iterator();
       entry.increment(failure)) {
    std::error_code ignored;
    fs::path path = entry->path();
    if (path.extension() == link_extension && entry->is_symlink(ignored))
      destinations.insert(path.replace_extension(extension));
    else if (path.extension() == extension && entry->is_regular_file(ignored))
      destinations.insert(path);
  }
  return {destinations.begin(), destinations.end()};
}

void stage_out_all(const fs::path& folder, const std::string& extension) {
  std::error_code none;
  for (const auto& destination : staged_files_in(folder, extension, none)) stage_out(destination);
}

std::vector<std::string> try_to_stage_out_all(const fs::path& folder, const std::string& extension) {
  std::vector<std::string> problems;
  std::error_code failure;
  for (const auto& destination : staged_files_in(folder, extension, failure)) {
    try {
      stage_out(destination);
    } catch (const std::exception& error) {
      problems.push_back(error.what());
    }
  }
  if (failure && !is_absent(failure))
    problems.push_back(folder.string() + " cannot be read: " + failure.message());
  return problems;
}

}  // namespace farandole
