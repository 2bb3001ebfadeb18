// IDX files and folders of them: values that are read, and damaged files, which are refused without a crash.
#include "farandole/trainer/data/idx_file.h"

#include <gmock/gmock.h>
#include <numeric>
#include <random>

#include "lane.h"
#include "trainer/data_fixtures.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/trainer/data/idx_folder.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class IdxFile : public testing::Test {
 protected:
  std::string refuse_images(std::string_view bytes) {
    write_bytes(file_, bytes);
    return message_of<CorruptInput>([&] { read_idx_images(file_); });
  }
  std::string refuse_labels(std::string_view bytes) {
    write_bytes(file_, bytes);
    return message_of<CorruptInput>([&] { read_idx_labels(file_); });
  }

  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_ / "file";
};

TEST_F(IdxFile, ReadsImagesAndLabelsPackedOrNotByContent) {
  for (const bool packed : {false, true}) {
    const auto write = [&](std::string_view bytes) {
      packed ? write_gzip(file_, bytes) : write_bytes(file_, bytes);
    };
    write(idx_images(3, 4, 5));
    const auto images = read_idx_images(file_);
    EXPECT_EQ(images.count, 3);
    EXPECT_EQ(images.rows, 4);
    EXPECT_EQ(images.columns, 5);
    ASSERT_EQ(images.pixels.size(), 60U);
    for (std::size_t i = 0; i < 60; ++i) EXPECT_EQ(images.pixels[i], i);
    write(idx_labels(13));
    const auto labels = read_idx_labels(file_);
    ASSERT_EQ(labels.size(), 13U);
    EXPECT_EQ(labels[12], 2);
  }
}

TEST_F(IdxFile, ReadsMoreThanOneChunk) {
  const auto bytes = idx_images(5000, 28, 28);
  write_gzip(file_, bytes);
  const auto images = read_idx_images(file_);
  EXPECT_EQ(std::string(images.pixels.begin(), images.pixels.end()), bytes.substr(16));
}

TEST_F(IdxFile, NamesWhatIsMissing) {
  EXPECT_THAT(message_of<UserError>([&] { read_idx_images(folder_ / "none"); }),
              AllOf(HasSubstr("none"), HasSubstr("No such file")));
  EXPECT_THAT(message_of<UserError>([&] { read_idx_labels(folder_.path()); }), HasSubstr("is a folder"));
}

TEST_F(IdxFile, RefusesEveryTruncationWithItsOffset) {
  const auto images = idx_images(2, 3, 3);
  for (std::size_t size = 0; size < images.size(); ++size) {
    const auto text = refuse_images(images.substr(0, size));
    EXPECT_THAT(text,
                AllOf(HasSubstr(file_.string()), HasSubstr("truncated at offset " + std::to_string(size))));
    if (size >= 16) {
      EXPECT_THAT(text, AllOf(HasSubstr("34 bytes) are declared"), HasSubstr("copy it again")));
    }
  }
  const auto labels = idx_labels(7);
  for (std::size_t size = 0; size < labels.size(); ++size) {
    EXPECT_THAT(refuse_labels(labels.substr(0, size)),
                HasSubstr("truncated at offset " + std::to_string(size)));
  }
}

TEST_F(IdxFile, RefusesEveryTruncationOfAPackedFile) {
  write_gzip(file_, idx_images(20, 8, 8));
  const auto packed = read_bytes(file_);
  for (std::size_t size = 0; size < packed.size(); ++size) {
    SCOPED_TRACE(size);
    EXPECT_THAT(refuse_images(packed.substr(0, size)), HasSubstr(file_.string()));
  }
  EXPECT_THAT(refuse_images(packed.substr(0, packed.size() - 3)),
              HasSubstr("ends early"));  // within the checksum
}

TEST_F(IdxFile, RefusesADamagedChecksum) {
  write_gzip(file_, idx_images(20, 8, 8));
  auto packed = read_bytes(file_);
  packed[packed.size() - 6] ^= 1;
  EXPECT_THAT(refuse_images(packed), HasSubstr("damaged gzip stream"));
}

TEST_F(IdxFile, RefusesOtherMagicNumbers) {
  EXPECT_THAT(refuse_images(idx_labels(9)), AllOf(HasSubstr("2049"), HasSubstr("swapped")));
  EXPECT_THAT(refuse_labels(idx_images(1, 2, 2)), AllOf(HasSubstr("2051"), HasSubstr("swapped")));
  EXPECT_THAT(refuse_images("PNG\r and more than sixteen bytes"), HasSubstr("offset 0"));
  for (int bit = 0; bit < 32; ++bit) {
    auto bytes = idx_images(1, 2, 2);
    bytes[static_cast<std::size_t>(bit / 8)] ^= static_cast<char>(1 << bit % 8);
    EXPECT_THAT(refuse_images(bytes), HasSubstr("magic number"));
  }
}

TEST_F(IdxFile, RefusesWhatGoesOnBehindTheData) {
  EXPECT_THAT(refuse_images(idx_images(2, 3, 3) + "x"), HasSubstr("there are more bytes at offset 34"));
  EXPECT_THAT(refuse_labels(idx_labels(4) + "more"), HasSubstr("there are more bytes at offset 12"));
}

TEST_F(IdxFile, RefusesHeadersThatLieWithoutBelievingThem) {
  const auto huge = big_endian(0xffffffff);
  EXPECT_THAT(refuse_images(big_endian(2051) + huge + huge + huge + "data"),
              HasSubstr("no data set has that size"));
  EXPECT_THAT(refuse_images(big_endian(2051) + big_endian(1 << 20) + big_endian(1 << 10) +
                            big_endian(1 << 10) + "data"),
              HasSubstr("truncated at offset 20"));  // 2^40 bytes declared
  EXPECT_THAT(refuse_labels(big_endian(2049) + huge + "12345"), HasSubstr("truncated at offset 13"));
  EXPECT_THAT(refuse_images(big_endian(2051) + big_endian(0) + big_endian(28) + big_endian(28)),
              HasSubstr("0 x 28 x 28"));
  EXPECT_THAT(refuse_labels(big_endian(2049) + big_endian(0)), HasSubstr("no data set"));
}

TEST_F(IdxFile, RefusesLabelsOutOfRange) {
  auto bytes = idx_labels(30);
  bytes[8 + 17] = 10;
  EXPECT_THAT(refuse_labels(bytes), AllOf(HasSubstr("label 10 at offset 25"), HasSubstr("0 to 9")));
  write_bytes(file_, bytes);
  EXPECT_EQ(read_idx_labels(file_, 11)[17], 10);
}

// Any bytes are either read correctly or refused with CorruptInput.
TEST_F(IdxFile, SurvivesRandomMutations) {
  std::mt19937 random(seed(1));
  write_gzip(file_, idx_images(6, 5, 5));
  const std::string seeds[] = {idx_images(6, 5, 5), idx_labels(40), read_bytes(file_)};
  int refused = 0;
  for (int i = 0; i < 6000; ++i) {
    auto bytes = seeds[i % 3];
    for (auto n = 1 + random() % 3; n > 0; --n) {
      const auto at = random() % (i % 2 == 0 ? std::min<std::size_t>(bytes.size(), 16) : bytes.size());
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] ^= static_cast<char>(1 << random() % 8);
          break;
        case 2:
          bytes.insert(at, 1, static_cast<char>(random()));
          break;
        default:
          bytes.erase(at, 1);
      }
    }
    write_bytes(file_, bytes);
    try {
      if (i % 3 == 1) {
        for (const int label : read_idx_labels(file_)) ASSERT_LT(label, 10);
      } else {
        const auto images = read_idx_images(file_);
        ASSERT_EQ(static_cast<std::int64_t>(images.pixels.size()),
                  images.count * images.rows * images.columns);
      }
    } catch (const CorruptInput&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 3000);
}

class IdxNames : public testing::Test {
 protected:
  void pair(const std::string& prefix, const std::string& ending = "") {
    write_bytes(folder_ / (prefix + "-images-idx3-ubyte" + ending), idx_images(3, 2, 2));
    write_bytes(folder_ / (prefix + "-labels-idx1-ubyte" + ending), idx_labels(3));
  }
  TemporaryFolder folder_;
};

TEST_F(IdxNames, FindsPairsByTheirNames) {
  pair("train10k", ".gz");
  pair("t10k");
  write_bytes(folder_ / "notes.txt", "x");
  const auto found = find_idx_files(folder_.path());
  EXPECT_EQ(found.train.images.filename(), "train10k-images-idx3-ubyte.gz");
  EXPECT_EQ(found.train.labels.filename(), "train10k-labels-idx1-ubyte.gz");
  ASSERT_TRUE(found.test.has_value());
  EXPECT_EQ(found.test->labels.filename(), "t10k-labels-idx1-ubyte");
  EXPECT_TRUE(has_idx_images(folder_.path()));
}

TEST_F(IdxNames, TakesAFileBeforeItsOwnPackedCopyAndLabelsEitherWay) {
  pair("train");
  pair("train", ".gz");
  EXPECT_EQ(find_idx_files(folder_.path()).train.images.filename(), "train-images-idx3-ubyte");
  std::filesystem::remove(folder_ / "train-labels-idx1-ubyte");
  EXPECT_EQ(find_idx_files(folder_.path()).train.labels.filename(), "train-labels-idx1-ubyte.gz");
  EXPECT_FALSE(find_idx_files(folder_.path()).test.has_value());
}

TEST_F(IdxNames, NamesWhatIsMissingOrAmbiguous) {
  EXPECT_FALSE(has_idx_images(folder_.path()));
  EXPECT_THAT(message_of<UserError>([&] { find_idx_files(folder_ / "none"); }), HasSubstr("no such folder"));
  EXPECT_THAT(message_of<UserError>([&] { find_idx_files(folder_.path()); }),
              HasSubstr("train*-images-idx3-ubyte[.gz]"));
  pair("test");
  EXPECT_THAT(message_of<UserError>([&] { find_idx_files(folder_.path()); }),
              HasSubstr("found test images only"));
  pair("train");
  pair("train10k", ".gz");
  EXPECT_THAT(message_of<UserError>([&] { find_idx_files(folder_.path()); }),
              AllOf(HasSubstr("train-images-idx3-ubyte"), HasSubstr("train10k-images-idx3-ubyte.gz")));
  std::filesystem::remove(folder_ / "train-images-idx3-ubyte");
  std::filesystem::remove(folder_ / "train10k-labels-idx1-ubyte.gz");
  EXPECT_THAT(message_of<UserError>([&] { find_idx_files(folder_.path()); }),
              AllOf(HasSubstr("no labels for train10k-images-idx3-ubyte.gz"),
                    HasSubstr("train10k-labels-idx1-ubyte")));
}

TEST_F(IdxNames, RefusesPairsThatDoNotBelongTogether) {
  pair("train");
  write_bytes(folder_ / "train-labels-idx1-ubyte", idx_labels(4));
  EXPECT_THAT(message_of<CorruptInput>([&] { read_idx_pair(find_idx_files(folder_.path()).train); }),
              AllOf(HasSubstr("4 labels"), HasSubstr("3 images"), HasSubstr("train-images-idx3-ubyte")));
}

TEST(RealMnist, HasItsCountsMeansAndLabels) {
  REAL_DATA_OR_SKIP(folder, "mnist");
  const auto files = find_idx_files(folder);
  ASSERT_TRUE(files.test.has_value());
  const auto mean = [](const IdxImages& images) {
    return std::accumulate(images.pixels.begin(), images.pixels.end(), 0.0) /
           (255.0 * static_cast<double>(images.pixels.size()));
  };
  const auto train = read_idx_pair(files.train);
  const auto test = read_idx_pair(*files.test);
  for (const auto* data : {&train, &test}) {
    EXPECT_EQ(data->images.count, 10000);
    EXPECT_EQ(data->images.rows, 28);
    EXPECT_EQ(data->images.columns, 28);
  }
  EXPECT_NEAR(mean(train.images), 0.13113, 5e-6);
  EXPECT_NEAR(mean(test.images), 0.13251, 5e-6);
  EXPECT_THAT(std::vector<int>(train.labels.begin(), train.labels.begin() + 8),
              testing::ElementsAre(5, 0, 4, 1, 9, 2, 1, 3));
  EXPECT_THAT(std::vector<int>(test.labels.begin(), test.labels.begin() + 8),
              testing::ElementsAre(7, 2, 1, 0, 4, 1, 4, 9));
}

}  // namespace
}  // namespace farandole
