// Reads and writes all requested bytes, although a system call may process only a part of them.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace farandole {

// Writes at the descriptor's offset and advances the offset.
// Throws: Error that names `path` if a write fails.
void write_bytes(int fd, std::string_view bytes, const std::string& path);
// Returns the number of bytes read. It is less than the size of `into` only if the file ends before.
// Throws: Error that names `path` if a read fails.
std::size_t read_bytes(int fd, std::uint64_t offset, std::span<std::byte> into, const std::string& path);

}  // namespace farandole
