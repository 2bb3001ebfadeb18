// Copies many pieces of memory, of any length and alignment, with one launch: for GPUs and, in tests,
// for the CPU.
// Thread safety: any thread may call this at any time.
//
// A piece is cut into parts, and a block of threads copies one part. It writes vectors of 16 bytes at
// addresses that are multiples of 16, and single bytes before the first and after the last one. It reads the
// largest words to which the source is aligned at these places.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farandole/comm/kernels/device_code.h"

namespace farandole {

struct CopyPiece {
  const std::byte* from;
  std::byte* to;
  std::uint64_t bytes;
  std::uint64_t first_part;  // number of the parts of all earlier pieces
};

// What one launch copies. `pieces` is in memory that the threads can read.
struct BatchedCopy {
  const CopyPiece* pieces;
  std::uint64_t count;
};

constexpr std::uint64_t copy_part_bytes = 32 << 10;

FARANDOLE_DEVICE constexpr std::uint64_t copy_parts(std::uint64_t bytes) {
  return (bytes + copy_part_bytes - 1) / copy_part_bytes;
}

// The last piece that begins at this part or before it; pieces without bytes have no parts.
FARANDOLE_DEVICE inline const CopyPiece& piece_of(const BatchedCopy& copy, std::uint64_t part) {
  std::uint64_t low = 0, high = copy.count;
  while (high - low > 1) {
    const std::uint64_t middle = (low + high) / 2;
    (copy.pieces[middle].first_part <= part ? low : high) = middle;
  }
  return copy.pieces[low];
}

template <class Word>
FARANDOLE_DEVICE void copy_vectors(const std::byte* from, std::byte* to, std::uint64_t vectors,
                                   std::uint32_t thread, std::uint32_t threads) {
  constexpr std::uint64_t words = sizeof(DeviceVector) / sizeof(Word);
  for (std::uint64_t v = thread; v < vectors; v += threads) {
    union {
      DeviceVector vector;
      Word parts[words];
    } value;
    for (std::uint64_t i = 0; i < words; ++i)
      value.parts[i] = reinterpret_cast<const Word*>(from)[v * words + i];
    reinterpret_cast<DeviceVector*>(to)[v] = value.vector;
  }
}

// What one of the block's `threads` threads does for one part.
FARANDOLE_DEVICE inline void copy_part(const BatchedCopy& copy, std::uint64_t part, std::uint32_t thread,
                                       std::uint32_t threads) {
  const CopyPiece& piece = piece_of(copy, part);
  const std::uint64_t begin = (part - piece.first_part) * copy_part_bytes;
  const std::uint64_t left = piece.bytes - begin;
  const std::uint64_t bytes = left < copy_part_bytes ? left : copy_part_bytes;
  const std::byte* from = piece.from + begin;
  std::byte* to = piece.to + begin;
  const std::uint64_t to_boundary = (16 - (reinterpret_cast<std::uintptr_t>(to) & 15)) & 15;
  const std::uint64_t head = to_boundary < bytes ? to_boundary : bytes;
  const std::uint64_t vectors = (bytes - head) / 16;
  for (std::uint64_t i = thread; i < head; i += threads) to[i] = from[i];
  for (std::uint64_t i = head + 16 * vectors + thread; i < bytes; i += threads) to[i] = from[i];
  from += head;
  to += head;
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  if (address % 16 == 0)
    copy_vectors<DeviceVector>(from, to, vectors, thread, threads);
  else if (address % 8 == 0)
    copy_vectors<DeviceWord<std::uint64_t>>(from, to, vectors, thread, threads);
  else if (address % 4 == 0)
    copy_vectors<DeviceWord<std::uint32_t>>(from, to, vectors, thread, threads);
  else if (address % 2 == 0)
    copy_vectors<DeviceWord<std::uint16_t>>(from, to, vectors, thread, threads);
  else
    copy_vectors<std::byte>(from, to, vectors, thread, threads);
}

// Copies pieces of which only other ranks know where they begin: piece k begins *offsets[k] bytes behind
// pieces[k].from, where `room` bytes are. The offsets are known when the threads run. One that is too large
// is no other rank's, because that rank was lost; then the piece is left out.
struct PeerCopy {
  CopyPiece pieces[most_peers];
  const std::uint64_t* offsets[most_peers];
  std::uint64_t count;
  std::uint64_t room;
};

FARANDOLE_DEVICE inline bool is_inside(const PeerCopy& copy, const CopyPiece& piece, std::uint64_t offset) {
  return offset <= copy.room && piece.bytes <= copy.room - offset;
}

FARANDOLE_DEVICE inline void copy_peer_part(const PeerCopy& copy, std::uint64_t part, std::uint32_t thread,
                                            std::uint32_t threads) {
  const CopyPiece& found = piece_of({copy.pieces, copy.count}, part);
  CopyPiece piece = found;
  // Another rank has written it into memory of the host, so it must not come from a cache.
  const std::uint64_t offset =
      *static_cast<const volatile std::uint64_t*>(copy.offsets[&found - copy.pieces]);
  if (!is_inside(copy, piece, offset)) return;
  piece.from += offset;
  copy_part({&piece, 1}, part, thread, threads);
}

}  // namespace farandole
