// Output and logs on a disk that is full for some time.
#include <csignal>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ostream>
#include <sstream>
#include <string>
#include <unistd.h>

#include "farandole/launch/output/stream_relay.h"

namespace farandole {
namespace {

TEST(OutputQueue, DropsLinesForAFullDiskAndIsNotBroken) {
  const OwnedDescriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_GE(full.get(), 0);
  DescriptorChannel channel(full.get());
  OutputQueue queue(channel);
  queue.push("a line\n");
  queue.write_some();
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.broken());
}

TEST(OutputQueue, IsBrokenIfTheReaderIsGone) {
  auto [read_end, write_end] = make_pipe();
  DescriptorChannel channel(write_end.get());
  OutputQueue queue(channel);
  read_end.reset();
  ::signal(SIGPIPE, SIG_IGN);
  queue.push("a line\n");
  queue.write_some();
  EXPECT_TRUE(queue.broken());
}

// Refuses all characters while it is full.
struct Disk : std::stringbuf {
  bool full = false;
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    return full ? 0 : std::stringbuf::xsputn(text, size);
  }
  int_type overflow(int_type next) override {
    return full ? traits_type::eof() : std::stringbuf::overflow(next);
  }
};

TEST(StreamRelay, LogsAgainAfterTheDiskWasFull) {
  auto [read_end, write_end] = make_pipe();
  const OwnedDescriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  DescriptorChannel channel(nowhere.get());
  Disk disk;
  std::ostream log(&disk);
  StreamRelay relay(std::move(read_end), channel, {}, &log);
  const auto print = [&, &to = write_end](const std::string& line) {
    ASSERT_EQ(::write(to.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
    relay.read_some();
  };
  print("before\n");
  disk.full = true;
  print("lost\n");
  disk.full = false;
  print("after\n");
  EXPECT_THAT(disk.str(), testing::AllOf(testing::HasSubstr("] before\n"), testing::HasSubstr("] after\n"),
                                         testing::Not(testing::HasSubstr("lost"))));
}

}  // namespace
}  // namespace farandole
