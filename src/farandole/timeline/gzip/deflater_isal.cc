#include <array>
#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>

#include "farandole/base/error.h"
#include "farandole/timeline/gzip/deflater.h"

namespace farandole {

struct Deflater::State {
  isal_zstream stream;
  std::array<std::uint8_t, ISAL_DEF_LVL1_DEFAULT> memory;
};

Deflater::Deflater() : state_(std::make_unique<State>()) {}

Deflater::~Deflater() = default;

void Deflater::compress(std::string_view piece, std::string& into) {
  // Space for incompressible data, which is stored: 5 bytes per 65535 bytes, and the end of the piece.
  into.resize(piece.size() + piece.size() / 4096 + 1024);
  isal_zstream& stream = state_->stream;
  ::isal_deflate_stateless_init(&stream);
  stream.level = 1;
  stream.level_buf = state_->memory.data();
  stream.level_buf_size = static_cast<std::uint32_t>(state_->memory.size());
  stream.flush = FULL_FLUSH;
  stream.end_of_stream = 0;
  stream.next_in = reinterpret_cast<std::uint8_t*>(const_cast<char*>(piece.data()));
  stream.avail_in = static_cast<std::uint32_t>(piece.size());
  stream.next_out = reinterpret_cast<std::uint8_t*>(into.data());
  stream.avail_out = static_cast<std::uint32_t>(into.size());
  const int code = ::isal_deflate_stateless(&stream);
  if (code != COMP_OK || stream.avail_in != 0)
    throw Error("ISA-L could not compress a piece (code " + std::to_string(code) + ")");
  into.resize(stream.total_out);
}

std::uint32_t Deflater::crc32(std::string_view piece) {
  return ::crc32_gzip_refl(0, reinterpret_cast<const std::uint8_t*>(piece.data()), piece.size());
}

}  // namespace farandole
