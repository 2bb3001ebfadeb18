#include "farandole/timeline/gzip/inflated_file.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <zlib.h>

#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using ::testing::HasSubstr;

class InflatedFileTest : public ::testing::Test {
 protected:
  std::filesystem::path file() const { return folder_ / "file"; }
  void write(const std::string& bytes) const { std::ofstream(file(), std::ios::binary) << bytes; }

  static std::string compressed(const std::string& text, int level = 6) {
    std::string bytes(compressBound(text.size()) + 64, '\0');
    z_stream stream{};
    deflateInit2(&stream, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
    stream.avail_out = static_cast<uInt>(bytes.size());
    deflate(&stream, Z_FINISH);
    bytes.resize(stream.total_out);
    deflateEnd(&stream);
    return bytes;
  }

  // Reads the whole file in reads of up to `most` bytes, and stores its damage in damage_.
  std::string read(std::size_t most) {
    const auto stream = InflatedFile::open(file());
    std::string text;
    std::string piece(most, '\0');
    for (;;) {
      const auto room = 1 + random_() % most;
      const auto got = stream->read(piece.data(), room);
      text.append(piece, 0, got);
      if (got < room) break;
    }
    EXPECT_EQ(stream->read(piece.data(), most), 0U);
    damage_ = stream->damage();
    return text;
  }

  std::string random_text(std::size_t size, unsigned letters) {
    std::string text(size, 'a');
    for (auto& c : text) c = static_cast<char>('a' + random_() % letters);
    return text;
  }

  const TemporaryFolder folder_;
  std::mt19937 random_{3};
  std::string damage_;
};

TEST_F(InflatedFileTest, GivesWhatWasCompressed) {
  for (const std::size_t size : {0U, 1U, 100U, 70'000U, 300'000U})
    for (const unsigned letters : {1U, 3U, 26U}) {
      const auto text = random_text(size, letters);
      for (const auto& bytes : {compressed(text, 1), compressed(text, 4), compressed(text, 0)}) {
        write(bytes);
        EXPECT_EQ(read(size < 1000 ? 7 : 100'000), text) << size << " of " << letters;
        EXPECT_EQ(damage_, "");
      }
      write(text);
      EXPECT_EQ(read(50'000), text) << "plain";
    }
}

TEST_F(InflatedFileTest, ReadsMembersBehindEachOtherAndLeavesOutWhatIsNone) {
  std::string bytes, text;
  for (int i = 0; i < 60; ++i) {
    const auto part = random_text(random_() % 3000, 5);
    text += part;
    bytes += compressed(part);
  }
  write(bytes);
  EXPECT_EQ(read(4096), text);
  EXPECT_EQ(damage_, "");
  write(bytes + "trailing");
  EXPECT_EQ(read(4096), text);
  EXPECT_EQ(damage_, "");
}

// A file that is truncated anywhere gives its beginning and reports the damage.
TEST_F(InflatedFileTest, NamesACut) {
  const auto text = random_text(700, 4);
  const auto bytes = compressed(text);
  for (std::size_t length = 2; length < bytes.size(); ++length) {
    write(bytes.substr(0, length));
    const auto got = read(500);
    EXPECT_TRUE(text.starts_with(got)) << length;
    EXPECT_THAT(damage_, HasSubstr("the gzip data is truncated")) << length;
  }
}

TEST_F(InflatedFileTest, NamesDamage) {
  const auto text = random_text(20'000, 20);
  auto bytes = compressed(text);
  bytes[bytes.size() - 6] = static_cast<char>(bytes[bytes.size() - 6] ^ 1);
  write(bytes);
  read(10'000);
  EXPECT_THAT(damage_, HasSubstr("the gzip data is damaged"));
  for (int round = 0; round < 60; ++round) {
    auto flipped = compressed(text);
    for (int i = 0; i < 4; ++i) flipped[random_() % flipped.size()] = static_cast<char>(random_());
    write(flipped);
    EXPECT_LE(read(5'000).size(), 50 * text.size());
  }
}

TEST_F(InflatedFileTest, IsNullForWhatIsNotThere) {
  EXPECT_EQ(InflatedFile::open(folder_ / "nothing"), nullptr);
}

}  // namespace
}  // namespace farandole
