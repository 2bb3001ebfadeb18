// Readable phrases for numbers, ranks and lists.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace farandole {

std::string describe_ranks(std::span<const int> ascending);  // "rank 3", "ranks 0, 2-4"
std::string describe_seconds(std::int64_t ns);               // "0.4 s", "61 s"
std::string describe_bytes(std::int64_t bytes);              // "12 B", "1.5 GiB"
// Lists up to `most` texts, followed by the number of the remaining ones.
std::string describe_list(std::span<const std::string> texts, std::size_t most);

}  // namespace farandole
