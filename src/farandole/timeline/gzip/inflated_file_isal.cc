#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <isa-l/igzip_lib.h>
#include <vector>

#include "farandole/base/files/file_bytes.h"
#include "farandole/timeline/gzip/inflated_file.h"

namespace farandole {
namespace {

constexpr std::size_t input_bytes = std::size_t{128} << 10;
constexpr std::size_t most_at_once = std::size_t{1} << 30;

bool begins_gzip(const std::uint8_t* bytes, std::size_t count) {
  return count >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

}  // namespace

struct InflatedFile::State {
  struct Close {
    void operator()(std::FILE* open_file) const { std::fclose(open_file); }
  };
  std::unique_ptr<std::FILE, Close> file;
  std::vector<std::uint8_t> input = std::vector<std::uint8_t>(input_bytes);
  bool compressed = false;
  bool file_over = false;  // the rest of the file is in `input`
  bool over = false;       // there is no more output
  inflate_state inflater;  // its next_in and avail_in point to the rest of `input`, also for a plain file
  std::string damage;

  // Moves the unread input to the front and reads more after it.
  void refill() {
    std::memmove(input.data(), inflater.next_in, inflater.avail_in);
    inflater.next_in = input.data();
    const std::size_t room = input.size() - inflater.avail_in;
    const auto got = std::fread(input.data() + inflater.avail_in, 1, room, file.get());
    inflater.avail_in += static_cast<std::uint32_t>(got);
    file_over = got < room;
  }

  void begin_member() {
    isal_inflate_reset(&inflater);
    inflater.crc_flag = ISAL_GZIP;
  }

  // gzip members may follow each other. Other data after them is ignored, as zlib does.
  void next_member() {
    if (inflater.avail_in < 2 && !file_over) refill();
    over = !begins_gzip(inflater.next_in, inflater.avail_in);
    if (!over) begin_member();
  }

  void stop(const std::string& why) {
    damage = "the gzip data is " + why;
    over = true;
  }

  std::size_t inflate(char* into, std::size_t room) {
    if (inflater.avail_in == 0 && !file_over) refill();
    const auto before = inflater.avail_in;
    inflater.next_out = reinterpret_cast<std::uint8_t*>(into);
    inflater.avail_out = static_cast<std::uint32_t>(room);
    const int code = isal_inflate(&inflater);
    const std::size_t got = room - inflater.avail_out;
    if (code < 0)
      stop(code == ISAL_INCORRECT_CHECKSUM ? "damaged (wrong checksum)"
                                           : "damaged (code " + std::to_string(code) + ")");
    else if (inflater.block_state == ISAL_BLOCK_FINISH)
      next_member();
    else if (got == 0 && inflater.avail_in == before)
      stop("truncated");
    return got;
  }

  std::size_t copy(char* into, std::size_t room) {
    if (inflater.avail_in == 0) refill();
    const auto got = std::min<std::size_t>(room, inflater.avail_in);
    std::memcpy(into, inflater.next_in, got);
    inflater.next_in += got;
    inflater.avail_in -= static_cast<std::uint32_t>(got);
    over = inflater.avail_in == 0 && file_over;
    return got;
  }
};

InflatedFile::InflatedFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
InflatedFile::~InflatedFile() = default;

std::unique_ptr<InflatedFile> InflatedFile::open(const std::filesystem::path& path) {
  auto state = std::make_unique<State>();
  auto opened = open_regular_file(path);
  if (opened.get() < 0) return nullptr;
  state->file.reset(::fdopen(opened.release(), "rb"));
  if (state->file == nullptr) return nullptr;
  std::setvbuf(state->file.get(), nullptr, _IONBF, 0);
  isal_inflate_init(&state->inflater);
  state->inflater.next_in = state->input.data();
  state->refill();
  state->compressed = begins_gzip(state->input.data(), state->inflater.avail_in);
  if (state->compressed) state->begin_member();
  return std::unique_ptr<InflatedFile>(new InflatedFile(std::move(state)));
}

std::size_t InflatedFile::read(char* into, std::size_t room) {
  std::size_t got = 0;
  while (got < room && !state_->over) {
    const auto piece = std::min(room - got, most_at_once);
    got += state_->compressed ? state_->inflate(into + got, piece) : state_->copy(into + got, piece);
  }
  return got;
}

const std::string& InflatedFile::damage() const {
  return state_->damage;
}

}  // namespace farandole
