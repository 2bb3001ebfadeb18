// Compresses pieces of a gzip file, with ISA-L where the build has it (deflater_isal.cc), else with zlib. An
// object is used by one thread at a time.
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

  // `into` becomes deflate blocks (RFC 1951) of which none is the last, that end on a byte boundary and refer
  // to nothing outside of the piece: pieces may follow each other in any order. Throws Error.
  void compress(std::string_view piece, std::string& into);

  static std::uint32_t crc32(std::string_view piece);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace farandole
