#include "farandole/base/files/atomic_file.h"

#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "error_message.h"

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using testing::HasSubstr;

class AtomicFileTest : public testing::Test {
 protected:
  static std::string contents_of(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  long files() const { return std::distance(std::filesystem::directory_iterator(folder_), {}); }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(AtomicFileTest, TemporaryIsHiddenBesideAndOfThisProcess) {
  const auto temporary = AtomicFile(folder_ / "run.json").temporary();
  EXPECT_EQ(files(), 0);  // it was not published
  EXPECT_EQ(temporary.parent_path(), folder_);
  EXPECT_TRUE(temporary.filename().string().starts_with(".run.json."));
  EXPECT_TRUE(temporary.filename().string().ends_with("." + std::to_string(::getpid()) + ".tmp"));
}

TEST_F(AtomicFileTest, APreparedLinkIsNotFollowed) {
  const auto file = folder_ / "a", victim = folder_ / "victim";
  write_file_atomically(victim, "precious");
  const auto temporary = AtomicFile(file).temporary();
  for (const bool durable : {true, false}) {
    std::filesystem::create_symlink(victim, temporary);
    durable ? write_file_atomically(file, "new") : static_cast<void>(replace_file(file, "newer"));
    EXPECT_EQ(contents_of(victim), "precious");
    EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(file)));
    EXPECT_EQ(contents_of(file), durable ? "new" : "newer");
  }
  EXPECT_EQ(files(), 2);
  EXPECT_FALSE(replace_file(folder_ / "no/such/file", "x"));
}

TEST_F(AtomicFileTest, WritesAndReplaces) {
  const auto file = folder_ / "a";
  for (const std::size_t size : {0, 1, 4096, 3'000'000, 5}) {
    std::string contents(size, '\0');
    for (std::size_t i = 0; i < size; ++i) contents[i] = static_cast<char>(i * 31);
    write_file_atomically(file, contents);
    EXPECT_EQ(contents_of(file), contents);
    EXPECT_EQ(files(), 1);
  }
}

TEST_F(AtomicFileTest, FailureLeavesTheOldAndNothingElse) {
  const auto file = folder_ / "a";
  write_file_atomically(file, "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{2, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto message = message_of<Error>([&] { write_file_atomically(file, "new"); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_THAT(message, HasSubstr(folder_.string()));
  EXPECT_EQ(contents_of(file), "old");
  EXPECT_EQ(files(), 1);

  std::filesystem::create_directory(folder_ / "taken");
  EXPECT_THROW(write_file_atomically(folder_ / "taken", "x"), Error);
  EXPECT_THROW(write_file_atomically(folder_ / "no/such/file", "x"), Error);
  EXPECT_THROW(publish_file(folder_ / "absent", file), Error);
  EXPECT_EQ(contents_of(file), "old");
  EXPECT_EQ(files(), 2);
}

// If root renamed a file onto /dev/null, the file would replace the device.
TEST_F(AtomicFileTest, WritesIntoWhatIsNoFile) {
  const auto device = folder_ / "device", full = folder_ / "full";
  std::filesystem::create_symlink("/dev/null", device);
  std::filesystem::create_symlink("/dev/full", full);
  AtomicFile of_device(device);
  EXPECT_EQ(of_device.temporary(), device);
  write_file_atomically(device, "nothing");
  EXPECT_THROW(write_file_atomically(full, "too much"), Error);
  of_device.publish();
  EXPECT_EQ(AtomicFile(full).temporary(), full);
  EXPECT_TRUE(std::filesystem::is_symlink(device));
  EXPECT_TRUE(std::filesystem::is_symlink(full));
  EXPECT_EQ(files(), 2);
}

// To open it for writing, as usual, waits for a reader.
TEST_F(AtomicFileTest, WritesIntoAPipeThatSomebodyReads) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(message_of<Error>([&] { write_file_atomically(pipe, "x"); }),
            pipe.string() + " is a pipe that nobody reads; remove it, or choose another file");
  const OwnedDescriptor reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  write_file_atomically(pipe, "text");
  char text[8];
  EXPECT_EQ(::read(reader.get(), text, sizeof text), 4);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST_F(AtomicFileTest, ReadersSeeOldOrNew) {
  const auto file = folder_ / "a";
  const std::string one(100'000, '1');
  const std::string two(50'000, '2');
  write_file_atomically(file, one);
  std::jthread writer([&] {
    for (int i = 0; i < 100; ++i) write_file_atomically(file, i % 2 == 0 ? two : one);
  });
  for (int i = 0; i < 100; ++i) {
    const auto seen = contents_of(file);
    ASSERT_TRUE(seen == one || seen == two) << seen.size();
  }
}

}  // namespace
}  // namespace farandole
