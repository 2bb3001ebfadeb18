#include "farandole/timeline/chrome_trace/trace_writer.h"

#include <fstream>
#include <gtest/gtest.h>
#include <pthread.h>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <zlib.h>

#include "lane.h"
#include "timeline/gzip/unzipped.h"
#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/gzip/gzip_writer.h"

namespace farandole {
namespace {

std::string json_text(std::string_view text) {
  fmt::memory_buffer buffer;
  append_json_text(buffer, text);
  return fmt::to_string(buffer);
}

TEST(JsonText, EscapesAndReplaces) {
  EXPECT_EQ(json_text("plain"), "\"plain\"");
  EXPECT_EQ(json_text("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_text(std::string_view("\n\0\x7f", 3)), R"("\u000a\u0000\u007f")");
  EXPECT_EQ(json_text("é·€😀"), "\"é·€😀\"");
  const std::string replaced = "\xef\xbf\xbd";
  EXPECT_EQ(json_text("\xff"), "\"" + replaced + "\"");
  EXPECT_EQ(json_text("\xc3"), "\"" + replaced + "\"");
  EXPECT_EQ(json_text("\xc0\xaf"), "\"" + replaced + replaced + "\"") << "overlong";
  EXPECT_EQ(json_text("\xed\xa0\x80"), "\"" + replaced + replaced + replaced + "\"") << "surrogate";
  EXPECT_EQ(json_text("\xf4\x90\x80\x80x"), "\"" + replaced + replaced + replaced + replaced + "x\"")
      << "too large";
}

TEST(JsonText, IsJsonWhateverTheBytes) {
  std::mt19937 random(seed(3));
  for (int round = 0; round < 20'000; ++round) {
    std::string text(random() % 12, '\0');
    for (char& c : text) c = static_cast<char>(random() % 3 == 0 ? 'a' + random() % 26 : random());
    const std::string escaped = json_text(text);
    const nlohmann::json parsed = nlohmann::json::parse(escaped);  // rejects text that is not UTF-8
    ASSERT_TRUE(parsed.is_string());
    ASSERT_EQ(json_text(parsed.get<std::string>()), escaped);
  }
}

TEST(GzipWriter, PiecesBecomeOneMember) {
  const TemporaryFolder folder;
  std::mt19937 random(seed(4));
  for (const std::size_t size : {0ul, 1ul, 1000ul, 3'000'000ul}) {
    std::string contents(size, '\0');
    for (char& c : contents) c = static_cast<char>(random() % 3 == 0 ? random() : 'a');
    for (const unsigned threads : {1u, 3u}) {
      GzipWriter file(folder / "x.gz", threads);
      for (std::size_t at = 0; at < size;) {
        const std::size_t count = std::min<std::size_t>(size - at, 1 + random() % 400'000);
        file.write(contents.substr(at, count));
        at += count;
      }
      file.finish();
      std::ifstream stream(folder / "x.gz", std::ios::binary);
      std::string zipped{std::istreambuf_iterator<char>(stream), {}};
      // There must be one member and nothing after it: inflate ends at the last byte.
      z_stream inflating{};
      ASSERT_EQ(::inflateInit2(&inflating, 16 + 15), Z_OK);
      std::string back(size + 1, '\0');
      inflating.next_in = reinterpret_cast<Bytef*>(zipped.data());
      inflating.avail_in = static_cast<uInt>(zipped.size());
      inflating.next_out = reinterpret_cast<Bytef*>(back.data());
      inflating.avail_out = static_cast<uInt>(back.size());
      EXPECT_EQ(::inflate(&inflating, Z_FINISH), Z_STREAM_END);
      EXPECT_EQ(inflating.avail_in, 0u);
      back.resize(inflating.total_out);
      EXPECT_TRUE(back == contents);
      ::inflateEnd(&inflating);
    }
  }
}

// A stack that does not fit into memory fails as a limit of processes does.
TEST(GzipWriter, CompressesOnTheCallerIfNoThreadCanStart) {
  const TemporaryFolder folder;
  pthread_attr_t usual, huge;
  ASSERT_EQ(::pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(::pthread_getattr_default_np(&huge), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&huge, std::size_t{1} << 47), 0);
  ASSERT_EQ(::pthread_setattr_default_np(&huge), 0);
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  std::string contents(1'000'000, 'x');
  {
    GzipWriter file(folder / "x.gz", 3);
    ::pthread_setattr_default_np(&usual);
    for (std::size_t at = 0; at < contents.size(); at += 100'000) file.write(contents.substr(at, 100'000));
    file.finish();
  }
  EXPECT_TRUE(unzipped(folder / "x.gz") == contents);
  ::pthread_attr_destroy(&usual);
  ::pthread_attr_destroy(&huge);
}

TEST(GzipWriter, SaysThatTheDiskIsFull) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  EXPECT_THROW(GzipWriter("/dev/full"), Error);
}

TEST(TraceWriter, PublishesOnlyWhatIsFinished) {
  const TemporaryFolder folder;
  const std::vector<std::int64_t> residuals = {0, 1500};
  {
    TraceWriter trace(folder / "t.json.gz", {2, residuals});
    trace.process(0, "node1");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  TraceWriter trace(folder / "t.json.gz", {2, residuals});
  trace.span({1, 2}, {1'234'567, 2'000'000}, {Category::forward, "forward", 12});
  trace.span({1, 2}, {-5, -1}, {Category::forward, "early"});
  trace.span({1, 2}, {5, 10}, {Category::gpu_kernel, "gemm", 12, Category::backward, {}, 12'345});
  MpiCall copy{.bytes = 4096};
  trace.span({1, 2}, {20, 30}, {Category::gpu_memcpy, "copy", -1, Category::data, copy});
  trace.finish();
  gzFile file = ::gzopen((folder / "t.json.gz").c_str(), "rb");
  std::string text(10'000, '\0');
  text.resize(static_cast<std::size_t>(::gzread(file, text.data(), static_cast<unsigned>(text.size()))));
  ::gzclose(file);
  EXPECT_EQ(
      text,
      R"({"displayTimeUnit":"ms","otherData":{"farandole_trace":1,"ranks":2,"clock_residual_us":[0.000,1.500]},)"
      R"("traceEvents":[
{"ph":"X","cat":"forward","name":"forward","pid":2,"tid":1001002,"ts":1234.567,"dur":765.433,"args":{"step":12}},
{"ph":"X","cat":"forward","name":"early","pid":2,"tid":1001002,"ts":0.000,"dur":0.000},
{"ph":"X","cat":"gpu_kernel","name":"gemm","pid":2,"tid":1001002,"ts":0.005,"dur":0.005,"args":{"step":12,"phase":"backward","queued_us":12.345}},
{"ph":"X","cat":"gpu_memcpy","name":"copy","pid":2,"tid":1001002,"ts":0.020,"dur":0.010,"args":{"phase":"data","bytes":4096}}
]}
)");
}

}  // namespace
}  // namespace farandole
