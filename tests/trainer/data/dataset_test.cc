// Tests open_data and the data sets: values compared with known ones, splits, and refusals.
#include "farandole/trainer/data/dataset.h"

#include <gmock/gmock.h>
#include <numeric>
#include <random>
#include <thread>
#include <xxhash.h>

#include "lane.h"
#include "trainer/data_fixtures.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/trainer/data/labelled_samples.h"
#include "farandole/trainer/data/synthetic.h"
#include "farandole/trainer/data/text_windows.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Batch all_of(const Dataset& data) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(data.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return data.get(indices);
}

std::string bytes_of(const torch::Tensor& row) {
  std::string text;
  for (std::int64_t i = 0; i < row.numel(); ++i)
    text.push_back(static_cast<char>(row[i].item<std::int64_t>()));
  return text;
}

class OpenData : public testing::Test {
 protected:
  DataOptions options(const std::string& name = "") {
    DataOptions options;
    options.path = (name.empty() ? folder_.path() : folder_ / name).string();
    return options;
  }
  void images(const std::string& prefix, std::uint32_t count, std::uint32_t rows = 4) {
    write_bytes(folder_ / (prefix + "-images-idx3-ubyte"), idx_images(count, rows, 4));
    write_bytes(folder_ / (prefix + "-labels-idx1-ubyte"), idx_labels(count));
  }
  TemporaryFolder folder_;
};

TEST_F(OpenData, NormalizesImagesAsTheMnistExampleDoes) {
  images("train", 20);
  images("t10k", 5);
  const auto split = open_data(options());
  EXPECT_EQ(split.train->size(), 20);
  EXPECT_EQ(split.held_out->size(), 5);
  EXPECT_THAT(split.shape.input, ElementsAre(1, 4, 4));
  EXPECT_EQ(split.shape.classes, 10);
  EXPECT_FALSE(split.shape.text);
  EXPECT_THAT(split.source, AllOf(HasSubstr("train-images-idx3-ubyte"), HasSubstr("t10k")));
  const std::int64_t indices[] = {17, 0, 17};
  const auto batch = split.train->get(indices);
  EXPECT_EQ(batch.x.sizes(), (std::vector<std::int64_t>{3, 1, 4, 4}));
  EXPECT_TRUE(torch::equal(batch.y, torch::tensor({7, 0, 7}, torch::kInt64)));
  // Bit-wise equal to torchvision's ToTensor and Normalize.
  const auto pixels =
      torch::arange(20 * 16).remainder(251).to(torch::kFloat32).div_(255).sub_(0.1307F).div_(0.3081F);
  EXPECT_TRUE(torch::equal(batch.x, pixels.view({20, 1, 4, 4}).index_select(0, torch::tensor({17, 0, 17}))));
}

// Checkpoints compare this hash: XXH3 of the arrays one after another, each with the hash before as its seed.
std::uint64_t hash_of(const std::vector<torch::Tensor>& arrays) {
  std::uint64_t hash = 0;
  for (const auto& array : arrays)
    hash = XXH3_64bits_withSeed(array.contiguous().data_ptr(), array.nbytes(), hash);
  return hash;
}

TEST_F(OpenData, HashIsThatOfTheBytesAndLabels) {
  images("train", 20);
  images("t10k", 5);
  const auto x = [](std::int64_t n) { return torch::arange(n * 16).remainder(251).to(torch::kUInt8); };
  const auto y = [](std::int64_t n) { return torch::arange(n, torch::kInt64).remainder(10); };
  EXPECT_EQ(open_data(options()).hash, hash_of({x(20), y(20), x(5), y(5)}));
}

TEST_F(OpenData, HoldsTheLastFractionOutWhereThereIsNoTestSet) {
  images("train", 23);
  auto wanted = options();
  wanted.held_out = 0.25;
  const auto split = open_data(wanted);
  EXPECT_EQ(split.train->size(), 18);
  EXPECT_EQ(split.held_out->size(), 5);
  EXPECT_TRUE(torch::equal(all_of(*split.held_out).y, torch::arange(18, 23).remainder(10)));
  for (const double fraction : {0.0, 1.0, -1.0, std::nan("")}) {
    wanted.held_out = fraction;
    EXPECT_THAT(message_of<UserError>([&] { open_data(wanted); }), HasSubstr("--validation"));
  }
}

TEST_F(OpenData, FindsImagesByTheirNames) {
  const auto source = [&] { return open_data(options()).source; };
  const auto gzip = [&](const std::string& name) {
    write_gzip(folder_ / (name + ".gz"), read_bytes(folder_ / name));
  };
  images("train10k", 6);
  gzip("train10k-images-idx3-ubyte");
  gzip("train10k-labels-idx1-ubyte");
  write_bytes(folder_ / "notes.txt", "x");
  EXPECT_THAT(source(), testing::EndsWith("train10k-images-idx3-ubyte"));  // before its own packed copy
  std::filesystem::remove(folder_ / "train10k-images-idx3-ubyte");
  std::filesystem::remove(folder_ / "train10k-labels-idx1-ubyte");
  images("test", 5);
  EXPECT_THAT(source(), testing::EndsWith("train10k-images-idx3-ubyte.gz and test-images-idx3-ubyte"));
}

TEST_F(OpenData, NamesImagesThatAreMissingOrDoNotFit) {
  const auto refusal = [&] { return message_of<UserError>([&] { open_data(options()); }); };
  const auto damage = [&] { return message_of<CorruptInput>([&] { open_data(options()); }); };
  const auto write = [&](const std::string& ending, const std::string& bytes) {
    write_bytes(folder_ / ("train-" + ending + "-ubyte"), bytes);
  };
  images("test", 6, 5);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("train*-images-idx3-ubyte[.gz]"), HasSubstr("test images only")));
  images("train", 6, 4);
  EXPECT_THAT(damage(), HasSubstr("differs from"));
  std::filesystem::remove(folder_ / "test-images-idx3-ubyte");
  write("labels-idx1", idx_labels(5));
  EXPECT_THAT(damage(),
              AllOf(HasSubstr("5 labels"), HasSubstr("6 images"), HasSubstr("train-images-idx3-ubyte")));
  auto labels = idx_labels(6);
  labels.back() = 10;
  write("labels-idx1", labels);
  EXPECT_THAT(damage(),
              AllOf(HasSubstr("train-labels-idx1-ubyte"), HasSubstr("row 5 holds 10"), HasSubstr("0 to 9")));
  write("labels-idx1", idx_images(6, 4, 4));
  EXPECT_THAT(damage(), AllOf(HasSubstr("3 dimensions of uint8"), HasSubstr("swapped")));
  write("images-idx3", idx_images(6, 4, 4).substr(0, 99));
  EXPECT_THAT(damage(), HasSubstr("declares 112 bytes, and it has 99"));
  images("train10k", 6);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("several files"), HasSubstr("train10k-images-idx3-ubyte")));
  std::filesystem::remove(folder_ / "train-images-idx3-ubyte");
  std::filesystem::remove(folder_ / "train10k-labels-idx1-ubyte");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("no labels for train10k-images-idx3-ubyte"),
                               HasSubstr("train10k-labels-idx1-ubyte")));
}

TEST_F(OpenData, ReadsColumnsOfCsvFilesByTheirNames) {
  write_bytes(folder_ / "a.csv", "kind,w,h\n1,0.5,2\n0,1.5,-3\n2,2.5,4\n");
  auto wanted = options("a.csv");
  EXPECT_THAT(message_of<UserError>([&] { open_data(wanted); }),
              AllOf(HasSubstr("has no column x"), HasSubstr("h, kind, w")));
  wanted.features = {"w", "h"};
  wanted.label = "kind";
  const auto split = open_data(wanted);
  EXPECT_EQ(split.shape.classes, 3);
  EXPECT_THAT(split.shape.input, ElementsAre(2));
  const auto x = torch::tensor({.5F, 2.F, 1.5F, -3.F, 2.5F, 4.F}).view({3, 2});
  const auto y = torch::tensor({1, 0, 2}, torch::kInt64);
  EXPECT_TRUE(torch::equal(all_of(*split.train).x, x.slice(0, 0, 2)));
  EXPECT_TRUE(torch::equal(all_of(*split.held_out).y, y.slice(0, 2)));
  EXPECT_EQ(split.hash, hash_of({x, y}));
  wanted.label = "w";
  EXPECT_THAT(message_of<CorruptInput>([&] { open_data(wanted); }), HasSubstr("column w: row 0 holds 0.5"));
}

TEST_F(OpenData, ReadsSeveralFilesAsOneTable) {
  write_bytes(folder_ / "images", idx_images(20, 3, 2));
  write_bytes(folder_ / "labels", idx_labels(20));
  auto wanted = options();
  wanted.path = "x=" + (folder_ / "images").string() + ",y=" + (folder_ / "labels").string();
  const auto split = open_data(wanted);
  EXPECT_THAT(split.shape.input, ElementsAre(3, 2));
  EXPECT_TRUE(torch::equal(all_of(*split.train).x[1], torch::arange(6, 12, torch::kFloat32).view({3, 2})));
  wanted.path += ",z=" + (folder_ / "none").string();
  EXPECT_THAT(message_of<UserError>([&] { open_data(wanted); }), HasSubstr("no such file"));
}

TEST_F(OpenData, CutsTextIntoWindowsAndNextBytes) {
  write_bytes(folder_ / "text", "0123456789abcdefghijklmnopqrst");  // 30: 24 to train on, 6 held out
  auto wanted = options("text");
  wanted.as_text = true;
  wanted.context = 5;
  wanted.held_out = 0.2;
  const auto split = open_data(wanted);
  EXPECT_TRUE(split.shape.text);
  EXPECT_EQ(split.shape.classes, 256);
  EXPECT_THAT(split.shape.input, ElementsAre(5));
  ASSERT_EQ(split.train->size(), 4);  // 23 / 5
  const std::int64_t indices[] = {3, 0};
  const auto batch = split.train->get(indices);
  EXPECT_EQ(batch.x.scalar_type(), torch::kInt64);
  EXPECT_EQ(bytes_of(batch.x[0]), "fghij");
  EXPECT_EQ(bytes_of(batch.y[0]), "ghijk");
  EXPECT_EQ(bytes_of(batch.x[1]), "01234");
  EXPECT_EQ(bytes_of(batch.y[1]), "12345");
  ASSERT_EQ(split.held_out->size(), 1);
  EXPECT_EQ(bytes_of(all_of(*split.held_out).x[0]), "opqrs");
  EXPECT_EQ(bytes_of(all_of(*split.held_out).y[0]), "pqrst");
  const std::int64_t beyond[] = {4};
  EXPECT_ANY_THROW(split.train->get(beyond));
  wanted.context = 6;
  EXPECT_THAT(message_of<UserError>([&] { open_data(wanted); }),
              AllOf(HasSubstr("30 bytes are too few"), HasSubstr("--context")));
  wanted.context = 0;
  EXPECT_THAT(message_of<UserError>([&] { open_data(wanted); }), HasSubstr("--context is 0"));
}

TEST_F(OpenData, ReadsBytesAbove127AsTheyAre) {
  write_bytes(folder_ / "text", std::string(50, '\xff') + std::string(50, '\x80'));
  auto wanted = options("text");
  wanted.as_text = true;
  wanted.context = 4;
  EXPECT_EQ(all_of(*open_data(wanted).train).x[0][0].item<std::int64_t>(), 255);
}

TEST_F(OpenData, JoinsTheFilesOfAFolderEachOnce) {
  write_bytes(folder_ / "b", "second ");
  write_bytes(folder_ / "a", "first ");
  write_bytes(folder_ / ".hidden", "no");
  std::filesystem::create_directory(folder_ / "sub");
  write_bytes(folder_ / "sub" / "deep", "no");
  std::filesystem::create_symlink("b", folder_ / "Alias");
  std::filesystem::create_symlink("gone", folder_ / "dangling");
  std::filesystem::create_symlink("sub/deep", folder_ / "c");
  std::filesystem::create_symlink("sub/deep", folder_ / "d");
  const auto text = read_text(folder_.path());
  EXPECT_EQ(std::string(text.bytes.begin(), text.bytes.end()), "first second no");
  EXPECT_EQ(text.files, 3);
}

TEST_F(OpenData, NamesWhatIsMissingOrDoesNotFit) {
  EXPECT_THAT(message_of<UserError>([&] { open_data(options("none")); }), HasSubstr("none"));
  auto text = options();
  text.as_text = true;
  EXPECT_THAT(message_of<UserError>([&] { open_data(text); }), HasSubstr("no text"));
  write_bytes(folder_ / "a", std::string(1000, 'a'));
  EXPECT_THAT(message_of<UserError>([&] { open_data(options()); }),
              AllOf(HasSubstr("no samples with labels"), HasSubstr("--model gpt")));
  EXPECT_THAT(message_of<UserError>([&] { open_data(options("a")); }), HasSubstr("--model gpt"));
  EXPECT_GT(open_data(text).train->size(), 0);
  images("train", 6);
  EXPECT_THAT(message_of<UserError>([&] { open_data(text); }),
              AllOf(HasSubstr("images"), HasSubstr("--model mlp or mnist")));
}

class OpenHdf5 : public OpenData {
 protected:
  template <class T>
  void write(Hdf5File& file, const std::string& path, DType dtype, std::vector<std::int64_t> shape,
             std::vector<T> values) {
    file.write_array(path, dtype, shape, std::as_bytes(std::span(values)));
  }
  // x [4, 2] = 0 … 7, y = the given.
  template <class T>
  void write_pair(DType dtype, std::vector<T> y) {
    auto file = Hdf5File::create(folder_ / "data.h5");
    write<float>(file, "/x", DType::float32, {4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
    write<T>(file, "/y", dtype, {static_cast<std::int64_t>(y.size())}, y);
    file.close();
  }
  DataSplit open() { return open_data(options("data.h5")); }
};

TEST_F(OpenHdf5, ReadsFloatsAndIntegerLabels) {
  write_pair<std::int32_t>(DType::int32, {0, 2, 1, 4});
  std::filesystem::rename(folder_ / "data.h5", folder_ / "no-ending");  // found by its content
  auto wanted = options("no-ending");
  wanted.held_out = 0.25;
  const auto split = open_data(wanted);
  EXPECT_THAT(split.shape.input, ElementsAre(2));
  EXPECT_EQ(split.shape.classes, 5);
  EXPECT_EQ(split.train->size(), 3);
  EXPECT_TRUE(torch::equal(all_of(*split.train).x, torch::arange(6, torch::kFloat32).view({3, 2})));
  EXPECT_TRUE(torch::equal(all_of(*split.held_out).y, torch::tensor({4}, torch::kInt64)));
  wanted.as_text = true;
  EXPECT_THAT(message_of<UserError>([&] { open_data(wanted); }), HasSubstr("--model mlp"));
}

TEST_F(OpenHdf5, ReadsBytesDoublesAndTestSets) {
  auto file = Hdf5File::create(folder_ / "data.h5");
  write<std::uint8_t>(file, "/x", DType::uint8, {2, 1, 2}, {0, 255, 7, 8});
  write<double>(file, "/y", DType::float64, {2}, {0, 1});
  write<std::int64_t>(file, "/x_test", DType::int64, {1, 1, 2}, {-5, 9});
  write<std::uint8_t>(file, "/y_test", DType::uint8, {1}, {3});
  file.close();
  const auto split = open();
  EXPECT_EQ(split.train->size(), 2);
  EXPECT_EQ(split.shape.classes, 4);
  EXPECT_TRUE(torch::equal(all_of(*split.train).x, torch::tensor({0.F, 255.F, 7.F, 8.F}).view({2, 1, 2})));
  EXPECT_TRUE(torch::equal(all_of(*split.train).y, torch::tensor({0, 1}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(all_of(*split.held_out).x, torch::tensor({-5.F, 9.F}).view({1, 1, 2})));
  EXPECT_EQ(split.hash,
            hash_of({torch::tensor({0, 255, 7, 8}, torch::kUInt8), torch::tensor({0, 1}, torch::kInt64),
                     torch::tensor({-5.F, 9.F}), torch::tensor({3}, torch::kInt64)}));
}

TEST_F(OpenHdf5, RefusesLabelsThatAreNoClassNumbers) {
  write_pair<double>(DType::float64, {0, 1, 1.5, 2});
  EXPECT_THAT(message_of<CorruptInput>([&] { open(); }),
              AllOf(HasSubstr("column y: row 2 holds 1.5"), HasSubstr("data.h5")));
  write_pair<std::int64_t>(DType::int64, {0, -1, 1, 2});
  EXPECT_THAT(message_of<CorruptInput>([&] { open(); }), HasSubstr("row 1 holds -1"));
  write_pair<float>(DType::float32, {0, 1, 1, std::nanf("")});
  EXPECT_THAT(message_of<CorruptInput>([&] { open(); }), HasSubstr("row 3"));
  write_pair<std::int64_t>(DType::int64, {std::int64_t{1} << 62, 0, 1, 2});
  EXPECT_THAT(message_of<CorruptInput>([&] { open(); }), HasSubstr("row 0"));
}

TEST_F(OpenHdf5, RefusesOtherShapesAndMissingSets) {
  write_pair<std::int32_t>(DType::int32, {0, 1, 2});
  EXPECT_THAT(message_of<UserError>([&] { open(); }), HasSubstr("column y has 3 rows, and column x has 4"));
  {
    auto file = Hdf5File::create(folder_ / "data.h5");
    write<float>(file, "/data/x", DType::float32, {2, 1}, {1, 2});
    file.close();
  }
  EXPECT_THAT(message_of<UserError>([&] { open(); }),
              AllOf(HasSubstr("has no column x"), HasSubstr("data/x")));
  {
    auto file = Hdf5File::create(folder_ / "data.h5");
    write<float>(file, "/x", DType::float32, {2, 1}, {1, 2});
    write<float>(file, "/y", DType::float32, {2, 1}, {1, 0});
    file.close();
  }
  EXPECT_THAT(message_of<UserError>([&] { open(); }), HasSubstr("column y has rows of shape [1]"));
  {
    auto file = Hdf5File::create(folder_ / "data.h5");
    write<float>(file, "/x", DType::float32, {2, 0}, {});
    write<float>(file, "/y", DType::float32, {2}, {1, 0});
    file.close();
  }
  EXPECT_THAT(message_of<UserError>([&] { open(); }), HasSubstr("column x has 2 rows of shape [0]"));
  {
    auto file = Hdf5File::create(folder_ / "data.h5");
    write<float>(file, "/x", DType::float32, {2, 1}, {1, INFINITY});
    write<float>(file, "/y", DType::float32, {2}, {1, 0});
    file.close();
  }
  EXPECT_THAT(message_of<CorruptInput>([&] { open(); }),
              HasSubstr("row 1 holds a number that is not finite"));
  write_bytes(folder_ / "data.h5", "not HDF5 at all");
  EXPECT_THAT(message_of<CorruptInput>([&] { open(); }), HasSubstr("data.h5"));
}

TEST_F(OpenHdf5, SurvivesTruncationsAndMutations) {
  write_pair<std::int32_t>(DType::int32, {0, 2, 1, 4});
  const auto whole = read_bytes(folder_ / "data.h5");
  std::mt19937 random(seed(2));
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    auto bytes = whole;
    if (i % 4 == 0) {
      bytes.resize(random() % bytes.size());
    } else {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    write_bytes(folder_ / "data.h5", bytes);
    try {
      open();
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 250);
}

TEST(Synthetic, IsTheSameEachTimeAndLearnable) {
  DataOptions options;
  options.path = "synthetic";
  options.synthetic_samples = 500;
  const auto split = open_data(options);
  EXPECT_EQ(split.train->size(), 450);
  EXPECT_THAT(split.shape.input, ElementsAre(1, 28, 28));
  const auto train = all_of(*split.train), test = all_of(*split.held_out);
  EXPECT_TRUE(torch::equal(train.x, all_of(*open_data(options).train).x));
  // A nearest-centroid classifier fitted to the training part classifies the held-out part.
  auto centres = torch::zeros({10, 784}).index_add(0, train.y, train.x.flatten(1));
  centres /= train.y.bincount({}, 10).unsqueeze(1);
  const auto guess = torch::cdist(test.x.flatten(1), centres).argmin(1);
  EXPECT_GT(guess.eq(test.y).to(torch::kFloat32).mean().item<double>(), 0.98);
}

TEST(Synthetic, TextHasTheEntropyItPromises) {
  DataOptions options;
  options.path = "synthetic";
  options.as_text = true;
  options.synthetic_samples = 3000;
  const auto split = open_data(options);
  const auto batch = all_of(*split.train);
  const auto pairs =
      (batch.x * 256 + batch.y).flatten().bincount({}, 65536).view({256, 256}).to(torch::kFloat64);
  const auto seen = pairs.sum();
  const auto given = pairs / pairs.sum(1, true).clamp_min(1);
  const auto entropy = -(pairs / seen * given.clamp_min(1e-300).log()).sum().item<double>();
  EXPECT_NEAR(entropy, 1.0627, 0.01);                            // as synthetic.h says
  EXPECT_GT(pairs.sum(1).gt(0).sum().item<std::int64_t>(), 16);  // most of its alphabet comes up
}

TEST(Synthetic, RefusesSizesThatMakeNoSense) {
  DataOptions options;
  options.path = "synthetic";
  for (const bool text : {false, true}) {
    options.as_text = text;
    for (const std::int64_t samples : {-1L, 0L, 1L, 1L << 62}) {
      options.synthetic_samples = samples;
      EXPECT_THROW(open_data(options), UserError) << samples;
    }
  }
  options = {.path = "synthetic", .synthetic_input = {0}};
  EXPECT_THROW(open_data(options), UserError);
  options = {.path = "synthetic", .synthetic_classes = 1};
  EXPECT_THROW(open_data(options), UserError);
}

TEST(RealData, MnistAndTextFromSeveralThreads) {
  REAL_DATA_OR_SKIP(mnist, "mnist");
  const auto split = open_data({.path = mnist.string()});
  EXPECT_EQ(split.train->size(), 10000);
  EXPECT_EQ(split.held_out->size(), 10000);
  const auto whole = all_of(*split.train);
  EXPECT_NEAR(whole.x.mean().item<double>(), (0.13113 - 0.1307) / 0.3081, 1e-4);
  std::vector<std::thread> threads;
  std::atomic<int> equal = 0;
  for (std::int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::int64_t> indices;
      for (std::int64_t i = t; i < 10000; i += 4) indices.push_back(i);
      const auto batch = split.train->get(indices);
      equal += torch::equal(batch.x, whole.x.slice(0, t, {}, 4)) &&
               torch::equal(batch.y, whole.y.slice(0, t, {}, 4));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(equal, 4);

  REAL_DATA_OR_SKIP(shakespeare, "tinyshakespeare/input.txt");
  const auto text = open_data({.path = shakespeare.string(), .as_text = true});
  EXPECT_EQ(text.train->size(), (1115394 - 111539 - 1) / 64);
  EXPECT_THAT(bytes_of(all_of(*text.train).x[0]), testing::StartsWith("First Citizen:\nBefore we proceed"));
}

}  // namespace
}  // namespace farandole
