#include "farandole/timeline/recorder/page_guard.h"

#include <csignal>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "farandole/base/files/owned_descriptor.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

// A file of 8 pages, in which each byte is 1.
struct MappedFile {
  explicit MappedFile(const std::filesystem::path& path)
      : fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {
    const std::vector<char> ones(bytes, 1);
    EXPECT_EQ(::write(fd.get(), ones.data(), bytes), static_cast<ssize_t>(bytes));
    base = static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
    EXPECT_NE(base, MAP_FAILED);
  }
  ~MappedFile() { ::munmap(base, bytes); }
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), bytes = 8 * page;
  const OwnedDescriptor fd;
  std::byte* base = nullptr;
};

TEST(PageGuard, ReplacesThePagesThatAreGone) {
  const TemporaryFolder folder;
  const MappedFile file(folder / "file");
  const PageGuard guard(file.base, file.bytes);
  ASSERT_EQ(::ftruncate(file.fd.get(), static_cast<off_t>(4 * file.page)), 0);
  for (std::size_t at = 0; at < file.bytes; at += file.page / 2) {
    file.base[at] = std::byte{2};
    EXPECT_EQ(file.base[at], std::byte{2});
  }
  EXPECT_EQ(guard.lost_bytes(), 4 * file.page);
  EXPECT_EQ(file.base[1], std::byte{1});
  EXPECT_EQ(file.base[5 * file.page + 1], std::byte{0});
}

TEST(PageGuard, ReplacesPagesUnderSeveralThreads) {
  const TemporaryFolder folder;
  for (int round = 0; round < 50; ++round) {
    const MappedFile file(folder / std::to_string(round));
    const PageGuard guard(file.base, file.bytes);
    ASSERT_EQ(::ftruncate(file.fd.get(), 0), 0);
    {
      std::vector<std::jthread> threads;
      for (std::size_t thread = 0; thread < 4; ++thread)
        threads.emplace_back([&, thread] {
          for (std::size_t at = thread; at < file.bytes; at += 64) file.base[at] = std::byte{3};
        });
    }
    for (std::size_t at = 0; at < file.bytes; at += 64)
      for (std::size_t thread = 0; thread < 4; ++thread)
        ASSERT_EQ(file.base[at + thread], std::byte{3}) << at;
    EXPECT_EQ(guard.lost_bytes(), file.bytes);
  }
}

// In a child process, because the signal ends it.
void expect_death_outside(void (*handler)(int), int exit_code, int signal) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGBUS, handler);
    const MappedFile guarded(folder / "guarded"), other(folder / "other");
    const PageGuard guard(guarded.base, guarded.bytes);
    if (::ftruncate(other.fd.get(), 0) == 0) other.base[0] = std::byte{1};
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : 0, signal);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 0, exit_code);
}

TEST(PageGuard, LeavesOtherPlacesToTheHandlerBefore) {
  expect_death_outside(SIG_DFL, 0, SIGBUS);
  expect_death_outside([](int) { ::_exit(7); }, 7, 0);
}

TEST(PageGuard, KeepsAProgramAliveWhoseRecorderIsShortened) {
  const TemporaryFolder folder;
  for (const std::size_t left : {std::size_t{0}, std::size_t{512} << 10}) {
    TimelineOptions options;
    options.file = folder / std::to_string(left) / "rank-0000.ftl";
    options.recorder_bytes = 1 << 20;
    testing::internal::CaptureStdout();
    {
      Timeline timeline(options);
      timeline.name_thread("training");
      timeline.span(Category::other, "before", 0, 1);
      std::filesystem::resize_file(options.file, left);
      std::jthread other([&] {
        for (int i = 0; i < 20'000; ++i) timeline.span(Category::other, "other thread", i, i + 1);
      });
      for (int i = 0; i < 20'000; ++i) timeline.span(Category::other, "after", i, i + 1);
    }
    EXPECT_THAT(testing::internal::GetCapturedStdout(), testing::HasSubstr("KiB of the timeline are lost"));
    if (left > 0) {
      EXPECT_GT(RecorderFile(options.file).records(0).size(), 0u);
    }
  }
}

}  // namespace
}  // namespace farandole
