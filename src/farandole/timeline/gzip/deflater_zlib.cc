#include <zlib.h>

#include "farandole/base/error.h"
#include "farandole/timeline/gzip/deflater.h"

namespace farandole {

struct Deflater::State {
  z_stream stream{};
};

Deflater::Deflater() : state_(std::make_unique<State>()) {
  if (::deflateInit2(&state_->stream, 1, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY) != Z_OK)
    throw Error("zlib cannot start to compress: out of memory");
}

Deflater::~Deflater() {
  ::deflateEnd(&state_->stream);
}

void Deflater::compress(std::string_view piece, std::string& into) {
  z_stream& stream = state_->stream;
  ::deflateReset(&stream);
  into.resize(::deflateBound(&stream, piece.size()) + 16);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
  stream.avail_in = static_cast<uInt>(piece.size());
  stream.next_out = reinterpret_cast<Bytef*>(into.data());
  stream.avail_out = static_cast<uInt>(into.size());
  const int code = ::deflate(&stream, Z_SYNC_FLUSH);
  if (code != Z_OK || stream.avail_in != 0 || stream.avail_out == 0)
    throw Error("zlib could not compress a piece (code " + std::to_string(code) + ")");
  into.resize(into.size() - stream.avail_out);
}

std::uint32_t Deflater::crc32(std::string_view piece) {
  return static_cast<std::uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(piece.data()), piece.size()));
}

}  // namespace farandole
