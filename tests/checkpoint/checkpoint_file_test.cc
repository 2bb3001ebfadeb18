#include "farandole/checkpoint/checkpoint_file.h"

#include <cmath>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <limits>
#include <map>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "checkpoint/checkpoint_fixtures.h"
#include "error_message.h"
#include "lane.h"

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/checkpoint/schema.h"

namespace farandole {
namespace {

using testing::HasSubstr;

struct CheckpointFileTest : testing::Test {
  void expect_kept(const Snapshot& snapshot) const {
    write_checkpoint(file, snapshot);
    expect_same(snapshot, read_checkpoint(file));
    verify_checkpoint(file);
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.h5"});
  }
  std::string why_corrupt(const std::string& name) const {
    return message_of<CorruptInput>([&] { read_checkpoint(folder / name); });
  }

  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "a.h5";
};

TEST_F(CheckpointFileTest, KeepsSpecialScoresAndAnyConfig) {
  expect_kept(random_snapshot(1200, 1));
  for (const double score : {std::nan(""), -0.0, std::numeric_limits<double>::infinity(), 5e-324}) {
    for (const auto& config : {std::string(), std::string(300'000, 'x'), std::string("\"\n\t\\ü漢")}) {
      Snapshot snapshot{.step = std::numeric_limits<std::int64_t>::max(), .config = config, .score = score};
      expect_kept(snapshot);
    }
  }
}

TEST_F(CheckpointFileTest, KeepsRandomShapesAndManyArrays) {
  std::mt19937_64 random(seed(7));
  for (int round = 0; round < 20; ++round) {
    Snapshot snapshot;
    for (int i = 0; i < 20; ++i) {
      std::vector<std::int64_t> shape(random() % 6);
      for (auto& extent : shape) extent = static_cast<std::int64_t>(random() % 9);
      snapshot.arrays.push_back(random_array("/g" + std::to_string(i % 3) + "/n." + std::to_string(i),
                                             all_dtypes[random() % std::size(all_dtypes)], shape, random));
    }
    expect_kept(snapshot);
  }
  Snapshot many;
  for (int i = 0; i < 1500; ++i)
    many.arrays.push_back(random_array("/model/block." + std::to_string(i), DType::float32, {3}, random));
  expect_kept(many);
}

TEST_F(CheckpointFileTest, ReadsIntoGivenMemory) {
  std::mt19937_64 random(seed(9));
  for (int round = 0; round < 10; ++round) {
    const auto snapshot = random_snapshot(round, random());
    write_checkpoint(file, snapshot);
    std::map<std::string, Bytes> given;
    for (const auto& array : snapshot.arrays)
      if (random() % 2 == 0) given[array.path].resize(array.bytes.size());
    auto found = read_checkpoint(file, [&](const Array& array) {
      const auto memory = given.find(array.path);
      return memory == given.end() ? std::span<std::byte>() : std::span<std::byte>(memory->second);
    });
    for (auto& array : found.arrays) {
      const auto memory = given.find(array.path);
      if (memory == given.end()) continue;
      EXPECT_TRUE(array.bytes.empty());
      array.bytes = std::move(memory->second);
    }
    expect_same(snapshot, found);
  }
}

TEST_F(CheckpointFileTest, HeaderComesWithoutBytes) {
  const auto snapshot = random_snapshot(3, 2);
  write_checkpoint(file, snapshot);
  const auto header = read_checkpoint_header(file);
  EXPECT_EQ(header.step, 3);
  ASSERT_EQ(header.arrays.size(), snapshot.arrays.size());
  for (const auto& array : header.arrays) {
    EXPECT_TRUE(array.bytes.empty());
    EXPECT_EQ(array.shape, snapshot.find(array.path)->shape);
  }
}

TEST_F(CheckpointFileTest, RefusesImpossibleArraysAndLeavesTheOldFile) {
  const auto good = random_snapshot(1, 3);
  write_checkpoint(file, good);
  std::mt19937_64 random(seed(9));
  const auto refused = [&](std::vector<Array> arrays) {
    Snapshot snapshot{.arrays = std::move(arrays)};
    EXPECT_THROW(write_checkpoint(file, snapshot), Error);
    expect_same(good, read_checkpoint(file));
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.h5"});
  };
  for (const char* path : {"", "/", "name", "//a", "/a//b", "/a/", "/./a", "/a/..", "/a/."})
    refused({random_array(path, DType::uint8, {2}, random)});
  refused({random_array("/a", DType::uint8, {2}, random), random_array("/a", DType::uint8, {2}, random)});
  refused({random_array("/a", DType::uint8, {2}, random), random_array("/a/b", DType::uint8, {2}, random)});
  refused({Array{"/a", DType::float32, {2}, Bytes(7)}});
  refused({Array{"/a", DType::float32, {-1}, {}}});
  refused({Array{"/a", DType::uint8, {std::int64_t{1} << 62, 8}, {}}});
  refused({Array{std::string("/a\0b", 4), DType::uint8, {1}, Bytes(1)}});
}

TEST_F(CheckpointFileTest, SaysWhatItCannotOpen) {
  EXPECT_THROW(read_checkpoint(folder / "absent.h5"), UserError);
  EXPECT_THROW(read_checkpoint(folder.path()), UserError);
  EXPECT_THROW(write_checkpoint(folder / "no/such/folder.h5", {}), Error);
  write_contents(folder / "text.h5", "not HDF5");
  EXPECT_THAT(why_corrupt("text.h5"), HasSubstr("text.h5"));
  write_contents(folder / "empty.h5", "");
  EXPECT_THAT(why_corrupt("empty.h5"), HasSubstr("empty.h5"));
  Hdf5File::create(folder / "other.h5").close();
  EXPECT_THAT(why_corrupt("other.h5"), HasSubstr("not a checkpoint"));
}

// Writes the root attributes that all versions have.
void set_attributes(Hdf5File& hdf5, std::int64_t version, std::int64_t step) {
  hdf5.set_attribute("/", "format_version", version);
  hdf5.set_attribute("/", "step", step);
  hdf5.set_attribute("/", "epoch", std::int64_t{2});
  hdf5.set_attribute("/", "world_size", std::int64_t{3});
  hdf5.set_attribute("/", "config", "{}");
  hdf5.set_attribute("/", "score", 0.0);
}

void write_by_hand(const std::filesystem::path& file, std::int64_t version, std::int64_t step) {
  auto hdf5 = Hdf5File::create(file);
  set_attributes(hdf5, version, step);
  hdf5.set_attribute("/", "best_score", 0.0);
  hdf5.set_attribute("/", "best_step", std::int64_t{0});
  hdf5.set_attribute("/", "versions", "");
  hdf5.set_attribute("/", "xxh3", "0123456789abcdef");
  hdf5.close();
}

TEST_F(CheckpointFileTest, RefusesANewerFormatAndAttributesThatDoNotFitTheManifest) {
  write_by_hand(file, schema::format_version + 1, 0);
  EXPECT_THAT(why_corrupt("a.h5"), HasSubstr("format_version 3 is newer"));
  write_by_hand(file, schema::format_version, 17);
  EXPECT_THAT(why_corrupt("a.h5"), HasSubstr("0123456789abcdef"));
}

// Reading a damaged file must give an error or the content that was written.
void expect_error_or_same(const std::filesystem::path& file, const Snapshot& written,
                          const std::string& what) {
  try {
    const auto found = read_checkpoint(file);
    expect_same(written, found);
    if (testing::Test::HasFailure()) FAIL() << "altered data after " << what;
  } catch (const CorruptInput& error) {
    EXPECT_THAT(error.what(), HasSubstr(file.string())) << what;
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << what;
  }
}

// In lane two 100,000 flips. The large array is written directly, and ends within a piece that is
// checked at once.
TEST_F(CheckpointFileTest, FlippedBitsAnywhere) {
  std::mt19937_64 random(seed(10));
  auto written = random_snapshot(5, 9);
  written.arrays.push_back(random_array("/model/large", DType::float32, {300, 251}, random));
  write_checkpoint(file, written);
  const auto bits = std::filesystem::file_size(file) * 8;
  const RawData raw(file.string(), O_RDWR);
  const auto flip = [&](std::uint64_t bit) {
    std::byte byte;
    raw.read(bit / 8, {&byte, 1});
    byte ^= static_cast<std::byte>(1 << bit % 8);
    raw.write(bit / 8, {&byte, 1});
  };
  for (int round = 0; round < rounds(400, 100'000) && !HasFailure(); ++round) {
    const auto bit = random() % bits;
    flip(bit);
    expect_error_or_same(file, written, "a flip of bit " + std::to_string(bit));
    flip(bit);
  }
}

// Arrays are written and checked in pieces. These lengths lie around the limits of pieces and
// of direct writes.
TEST_F(CheckpointFileTest, ArraysOfManyPieces) {
  std::mt19937_64 random(seed(20));
  Snapshot snapshot;
  constexpr std::int64_t piece = (256 << 10) / 4;
  for (const std::int64_t count : {piece - 1, piece, piece + 1, 2 * piece + 1023, 3 * piece + 1025}) {
    snapshot.arrays.push_back(
        random_array("/model/" + std::to_string(count), DType::float32, {count}, random));
  }
  write_checkpoint(file, snapshot);
  expect_same(snapshot, read_checkpoint(file));
  for (auto& array : snapshot.arrays) {
    auto spoiled = snapshot;
    const std::size_t last = array.bytes.size() - 4;
    const float not_a_number = std::nanf("");
    std::memcpy(spoiled.arrays[static_cast<std::size_t>(&array - snapshot.arrays.data())].bytes.data() + last,
                &not_a_number, 4);
    EXPECT_EQ(write_checkpoint(folder / "b.h5", spoiled), array.path);
    EXPECT_EQ(find_nonfinite(spoiled), array.path);
    EXPECT_EQ(read_checkpoint_header(folder / "b.h5").not_finite, array.path);
  }
}

// Its manifest has no line about the best score and the versions.
TEST_F(CheckpointFileTest, ReadsFormatVersion1) {
  std::mt19937_64 random(seed(21));
  const auto array = random_array("/model/w", DType::float32, {4, 5}, random);
  const auto checksum = [](const std::string& bytes) {
    return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
  };
  const auto of_array = checksum({reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size()});
  {
    auto hdf5 = Hdf5File::create(file);
    hdf5.write_array(array.path, array.dtype, array.shape, array.bytes);
    hdf5.set_attribute(array.path, "xxh3", of_array);
    set_attributes(hdf5, 1, 17);
    hdf5.set_attribute("/", "xxh3",
                       checksum("version 1 step 17 epoch 2 world_size 3 score 0000000000000000 config 2:{}\n"
                                "8:/model/w float32 [4,5] " +
                                of_array + "\n"));
    hdf5.close();
  }
  const auto found = read_checkpoint(file);
  EXPECT_EQ(found.format_version, 1);
  EXPECT_EQ(found.step, 17);
  EXPECT_TRUE(std::isnan(found.best_score));
  ASSERT_EQ(found.arrays.size(), 1u);
  EXPECT_EQ(found.arrays[0].bytes, array.bytes);
}

TEST_F(CheckpointFileTest, FlippedBitAtEveryByte) {
  std::mt19937_64 random(seed(11));
  Snapshot written{.step = 5, .config = "{}"};
  written.arrays = {random_array("/model/w", DType::float32, {4, 5}, random),
                    random_array("/model/mask", DType::boolean, {3}, random),
                    random_array("/rng/rank-0000", DType::float16, {2}, random)};
  write_checkpoint(file, written);
  const auto good = contents_of(file);
  for (std::size_t i = 0; i < good.size() && !HasFailure(); ++i) {
    if (good.find_first_not_of('\0', i) > i + 64) continue;  // Nothing uses this part.
    auto damaged = good;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << random() % 8));
    write_contents(file, damaged);
    expect_error_or_same(file, written, "a flip in byte " + std::to_string(i));
  }
}

TEST_F(CheckpointFileTest, DamagedStretchesAndCuts) {
  const auto written = random_snapshot(5, 13);
  write_checkpoint(file, written);
  const auto good = contents_of(file);
  std::mt19937_64 random(seed(14));
  for (int round = 0; round < rounds(150, 400) && !HasFailure(); ++round) {
    auto damaged = good;
    const auto begin = random() % damaged.size();
    const auto end = std::min<std::size_t>(damaged.size(), begin + (1ull << random() % 12));
    const bool zero = random() % 2 == 0;
    for (auto i = begin; i < end; ++i) damaged[i] = static_cast<char>(zero ? 0 : random());
    write_contents(file, damaged);
    expect_error_or_same(file, written, fmt::format("damage of bytes {} to {}", begin, end));
  }
  for (int round = 0; round < rounds(100, 300) && !HasFailure(); ++round) {
    const auto bytes = round < 3 ? static_cast<std::size_t>(round) : random() % good.size();
    write_contents(file, good.substr(0, bytes));
    EXPECT_THROW(read_checkpoint(file), CorruptInput) << bytes;
    EXPECT_THROW(verify_checkpoint(file), CorruptInput) << bytes;
  }
}

// The error message of write_checkpoint in a forked process whose files may have up to `limit` bytes.
std::string message_under_limit(const std::filesystem::path& file, const Snapshot& snapshot, rlim_t limit) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const auto child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit bytes = {limit, limit};
    ::setrlimit(RLIMIT_FSIZE, &bytes);
    std::string text = "written";
    try {
      write_checkpoint(file, snapshot);
    } catch (const CorruptInput& error) {
      text = std::string("of the wrong type: ") + error.what();
    } catch (const Error& error) {
      text = error.what();
    }
    [[maybe_unused]] const auto sent = ::write(ends[1], text.data(), text.size());
    std::exit(0);  // also runs HDF5's own exit handlers, which must not hang or crash
  }
  ::close(ends[1]);
  std::string message;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    message.append(buffer, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status << " at limit " << limit;
  return message;
}

TEST_F(CheckpointFileTest, FileSizeLimitLeavesTheOldFile) {
  const auto path = folder / "step-00000001.h5";
  const auto old = random_snapshot(1, 17);
  write_checkpoint(path, old);
  std::mt19937_64 random(seed(18));
  auto larger = random_snapshot(1, 19);
  larger.arrays.push_back(random_array("/model/large", DType::float32, {1 << 18}, random));
  write_checkpoint(folder / "size.h5", larger);
  const auto needed = std::filesystem::file_size(folder / "size.h5");
  std::filesystem::remove(folder / "size.h5");
  for (int round = 0; round < rounds(30, 60) && !HasFailure(); ++round) {
    const rlim_t limit = round < 20 ? static_cast<rlim_t>(round * 512) : random() % needed;
    const auto message = message_under_limit(path, larger, limit);
    EXPECT_THAT(message, HasSubstr("step-00000001.h5")) << limit;
    EXPECT_THAT(message, HasSubstr("ulimit -f")) << limit;
    expect_same(old, read_checkpoint(path));
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"step-00000001.h5"}) << limit;
  }
}

// A disk of `kib` KiB, which only this process sees.
class SmallDisk {
 public:
  SmallDisk(std::filesystem::path folder, int kib) : folder_(std::move(folder)) {
    const auto size = "size=" + std::to_string(kib) + "k";
    mounted_ = ::unshare(CLONE_NEWNS) == 0 &&
               ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               ::mount("none", folder_.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount(folder_.c_str());
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }

 private:
  std::filesystem::path folder_;
  bool mounted_;
};

TEST_F(CheckpointFileTest, FullDiskLeavesTheOldFile) {
  const SmallDisk disk(folder.path(), 1024);
  if (!disk.mounted()) GTEST_SKIP() << "file systems cannot be mounted here";
  const auto path = folder / "step-00000001.h5";
  const auto old = random_snapshot(1, 20);
  write_checkpoint(path, old);
  std::mt19937_64 random(seed(21));
  for (const std::int64_t elements : {1 << 18, 1 << 20}) {
    auto next = random_snapshot(1, 22);
    next.arrays.push_back(random_array("/model/large", DType::float32, {elements}, random));
    try {
      write_checkpoint(path, next);
      FAIL() << "written to a full disk";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::failure);
      EXPECT_THAT(error.what(), HasSubstr("step-00000001.h5"));
      EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
    }
    expect_same(old, read_checkpoint(path));
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"step-00000001.h5"});
  }
}

}  // namespace
}  // namespace farandole
