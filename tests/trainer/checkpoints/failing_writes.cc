// A library to preload: the N-th write into files below a folder fails, alone or with all that follow.
//   FAILING_FOLDER   the absolute path of the folder
//   FAILING_WRITE    N ERRNO once|on; with N = 0 none fails
//   FAILING_FOLDERS  a part of the names of folders that somebody else makes first
//   FAILING_COUNT    a file outside of the folder that gets the number of writes when a process that has made some ends
// Any thread may write at any time.
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

struct Plan {
  Plan() {
    const char* const text = std::getenv("FAILING_WRITE");
    char how[8] = "";
    if (text != nullptr && std::sscanf(text, "%ld %d %7s", &number, &error, how) == 3)
      goes_on = std::strcmp(how, "on") == 0;
    folder = std::getenv("FAILING_FOLDER");
  }
  long number = 0;
  int error = 0;
  bool goes_on = false;
  const char* folder = nullptr;
  std::atomic<long> count{0};
};

Plan& plan() {
  static Plan one;
  return one;
}

// Sets errno if it returns true.
bool fails(int descriptor) {
  auto& now = plan();
  if (now.folder == nullptr) return false;
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const int before = errno;
  const auto length = ::readlink(link, path, sizeof path);
  errno = before;
  const auto prefix = std::strlen(now.folder);
  if (length <= static_cast<ssize_t>(prefix) || std::memcmp(path, now.folder, prefix) != 0 ||
      path[prefix] != '/')
    return false;
  const long number = ++now.count;
  if (now.number == 0 || number < now.number || (number > now.number && !now.goes_on)) return false;
  errno = now.error;
  return true;
}

__attribute__((destructor)) void tell() {
  const char* const file = std::getenv("FAILING_COUNT");
  if (file == nullptr || plan().count == 0) return;  // orted, which MPI starts, writes nothing.
  if (auto* const stream = std::fopen(file, "w")) {
    std::fprintf(stream, "%ld\n", plan().count.load());
    std::fclose(stream);
  }
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t size) {
  return fails(descriptor) ? -1 : ::syscall(SYS_write, descriptor, bytes, size);
}
ssize_t writev(int descriptor, const iovec* parts, int count) {
  return fails(descriptor) ? -1 : ::syscall(SYS_writev, descriptor, parts, count);
}
ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  return fails(descriptor) ? -1 : ::syscall(SYS_pwrite64, descriptor, bytes, size, offset);
}
ssize_t pwrite64(int descriptor, const void* bytes, size_t size, off64_t offset) {
  return fails(descriptor) ? -1 : ::syscall(SYS_pwrite64, descriptor, bytes, size, offset);
}
int mkdir(const char* path, mode_t mode) {
  const char* const taken = std::getenv("FAILING_FOLDERS");
  if (taken != nullptr && std::strstr(path, taken) != nullptr) ::syscall(SYS_mkdirat, AT_FDCWD, path, mode);
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int fsync(int descriptor) {
  return fails(descriptor) ? -1 : static_cast<int>(::syscall(SYS_fsync, descriptor));
}
int ftruncate(int descriptor, off_t size) {
  return fails(descriptor) ? -1 : static_cast<int>(::syscall(SYS_ftruncate, descriptor, size));
}
int ftruncate64(int descriptor, off64_t size) {
  return fails(descriptor) ? -1 : static_cast<int>(::syscall(SYS_ftruncate, descriptor, size));
}
int posix_fallocate(int descriptor, off_t begin, off_t size) {
  if (fails(descriptor)) return errno;
  return ::syscall(SYS_fallocate, descriptor, 0, begin, size) == 0 ? 0 : errno;
}
int posix_fallocate64(int descriptor, off64_t begin, off64_t size) {
  return posix_fallocate(descriptor, begin, size);
}
}
