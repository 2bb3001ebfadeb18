// Output and logs on a disk that is full for some time.
#include <array>
#include <csignal>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ostream>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>

#include "farandole/launch/output/stream_relay.h"
#include "farandole/launch/process/child_process.h"

namespace farandole {
namespace {

TEST(OutputQueue, DropsLinesForAFullDiskAndIsNotBroken) {
  const OwnedDescriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_GE(full.get(), 0);
  OutputQueue queue(full.get());
  queue.push("a line\nanother\n");
  queue.write_some();
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.broken());
  EXPECT_EQ(queue.lost(), 2);
}

// Waits a second, because the queue has to see that the reader takes nothing.
TEST(OutputQueue, LeavesLinesOutOnlyForAStalledReader) {
  auto [read_end, write_end] = make_pipe();
  OutputQueue queue(write_end.get());
  const std::string line(1000, 'x');
  while (queue.accepts()) {
    queue.push(line + "\n");
    queue.write_some();
  }
  std::this_thread::sleep_for(OutputQueue::patience);
  EXPECT_FALSE(queue.accepts()) << "somebody must have allowed it";
  queue.go_on("; the log has them");
  EXPECT_TRUE(queue.accepts());
  queue.push("left out\nleft out\n");
  std::string all;
  std::array<char, 65536> buffer;
  ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  const auto read_all = [&, &from = read_end] {
    for (ssize_t got; (got = ::read(from.get(), buffer.data(), buffer.size())) > 0;)
      all.append(buffer.data(), static_cast<std::size_t>(got));
  };
  for (read_all(); !queue.empty(); read_all()) queue.write_some();
  queue.push("shown\n");
  for (read_all(); !queue.empty(); read_all()) queue.write_some();
  read_all();
  EXPECT_TRUE(all.ends_with(
      line +
      "\nfarandole run: 2 lines are left out here, because the output was not read; the log has them\nshown\n"));
}

TEST(OutputQueue, IsBrokenIfTheReaderIsGone) {
  auto [read_end, write_end] = make_pipe();
  OutputQueue queue(write_end.get());
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
  OutputQueue queue(nowhere.get());
  Disk disk;
  std::ostream log(&disk);
  StreamRelay relay(std::move(read_end), queue, {}, {}, &log);
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
