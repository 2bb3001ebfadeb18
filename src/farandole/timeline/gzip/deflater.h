// Compresses pieces of a gzip file with ISA-L (deflater_isal.cc) if the build has it, otherwise with zlib.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace farandole {

class Deflater {
 public:
  Deflater();
  ~Deflater();
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  // `into` receives deflate blocks (RFC 1951). None of them is marked as the last one, they end on a byte
  // boundary, and they do not refer to other pieces. So pieces may follow each other in any order.
  // Throws: Error if compressing fails.
  void compress(std::string_view piece, std::string& into);

  static std::uint32_t crc32(std::string_view piece);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace farandole
