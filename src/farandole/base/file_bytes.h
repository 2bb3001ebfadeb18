// Reads and writes all the bytes that are asked for, where a system call may do with a part of them. Usable
// from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace farandole {

// At the descriptor's offset, which moves on. Throws Error that names `path`.
void write_bytes(int fd, std::string_view bytes, const std::string& path);
// Returns how many there were: less than `into` takes only where the file ends. Throws Error that names
// `path`.
std::size_t read_bytes(int fd, std::uint64_t offset, std::span<std::byte> into, const std::string& path);

}  // namespace farandole
