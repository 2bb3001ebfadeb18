// Reads and writes all requested bytes, although a system call may process only a part of them. Tells when a
// file was last modified.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
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

// The modification time by the clock of the file system, or -1 if the file does not exist.
// Units: nanoseconds since 1970.
std::int64_t changed_ns(const std::filesystem::path& path);

}  // namespace farandole
