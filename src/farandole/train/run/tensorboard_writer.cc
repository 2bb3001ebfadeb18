#include "farandole/train/run/tensorboard_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <exception>
#include <fcntl.h>
#include <fmt/format.h>
#include <span>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/host.h"
#include "farandole/base/log.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view name_begins = "events.out.tfevents.";

constexpr auto crc32c_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    auto crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}();

template <class Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Number); ++i)
    bytes += static_cast<char>(static_cast<unsigned char>(number >> (8 * i)));
  return bytes;
}

// CRC-32C, rotated and shifted as TensorFlow's "masked" checksums are.
std::string masked_crc(std::string_view bytes) {
  auto crc = ~std::uint32_t{0};
  for (const char byte : bytes)
    crc = crc32c_table[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  return little_endian(std::rotr(~crc, 15) + 0xa282ead8u);
}

// A record of TensorFlow's TFRecord format.
std::string record(std::string_view bytes) {
  const auto size = little_endian(std::uint64_t{bytes.size()});
  return fmt::format("{}{}{}{}", size, masked_crc(size), bytes, masked_crc(bytes));
}

// Fields of Protocol Buffers: a tag with number and wire type, then the value.
std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  return bytes + static_cast<char>(number);
}
std::string varint_field(int field, std::int64_t value) {
  return varint(field << 3 | 0) + varint(static_cast<std::uint64_t>(value));
}
std::string double_field(int field, double value) {
  return varint(field << 3 | 1) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string bytes_field(int field, std::string_view value) {
  return varint(field << 3 | 2) + varint(value.size()) + std::string(value);
}
std::string float_field(int field, float value) {
  return varint(field << 3 | 5) + little_endian(std::bit_cast<std::uint32_t>(value));
}

// TensorBoard reads the files in the order of their names. Returns a name that comes after those in the
// folder, also if the clocks of the hosts differ.
std::string next_name(const fs::path& folder) {
  auto seconds = real_time_ns() / ns_per_second;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(name_begins)) continue;
    const auto rest = std::string_view(name).substr(name_begins.size());
    const auto earlier = parse_number<std::int64_t>(rest.substr(0, rest.find('.')));
    if (earlier) seconds = std::max(seconds, *earlier + 1);
  }
  return fmt::format("{}{:010}.{}.{}", name_begins, seconds, host_name(), ::getpid());
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(fs::path folder, std::int64_t last_step) : folder_(std::move(folder)) {
  append(0, bytes_field(3, "brain.Event:2"));
  go_back_to(last_step);
}

TensorBoardWriter::~TensorBoardWriter() {
  publish();
}

// The numbers of the fields are those of tensorboard/compat/proto/event.proto and summary.proto.
void TensorBoardWriter::append(std::int64_t step, std::string_view content) {
  constexpr std::size_t most_waiting = 1 << 20;
  if (waiting_.size() > most_waiting) return;
  const double seconds = static_cast<double>(real_time_ns()) * 1e-9;
  waiting_ += record(double_field(1, seconds) + varint_field(2, step) + std::string(content));
}

void TensorBoardWriter::add(std::int64_t step, std::string_view name, double value) {
  const auto scalar = bytes_field(1, name) + float_field(2, static_cast<float>(value));
  append(step, bytes_field(5, bytes_field(1, scalar)));
}

void TensorBoardWriter::go_back_to(std::int64_t step) {
  constexpr int start = 1;  // SessionLog.START. Values of its step and later ones are dropped.
  append(step + 1, bytes_field(7, varint_field(1, start)));
}

void TensorBoardWriter::open() {
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure) throw Error(fmt::format("create {}: {}", folder_.string(), failure.message()));
  file_ = std::make_unique<RawData>(folder_ / next_name(folder_), O_WRONLY | O_CREAT | O_EXCL);
}

// After a failure the next call writes the same bytes and more at the same offset, so that no part of a
// record stays in between.
void TensorBoardWriter::publish() noexcept {
  if (waiting_.empty()) return;
  try {
    if (!file_) open();
    file_->write(bytes_, std::as_bytes(std::span(waiting_)));
    bytes_ += waiting_.size();
    waiting_.clear();
  } catch (const std::exception& error) {
    if (!std::exchange(warned_, true))
      log_warning(
          "{}; TensorBoard does not see new values until {} can be written, and training continues; free "
          "space or choose another folder",
          error.what(), folder_.string());
  }
}

}  // namespace farandole
