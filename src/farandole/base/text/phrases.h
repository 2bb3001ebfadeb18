// Readable phrases for numbers, ranks and lists.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

std::string describe_ranks(std::span<const int> ascending);    // "rank 3", "ranks 0, 2-4"
std::string describe_numbers(std::span<const int> ascending);  // "3", "0, 2-4"
std::string describe_seconds(std::int64_t ns);                 // "0.4 s", "61 s"
std::string describe_clock(double seconds);                    // "0:04", "1:02:03"
std::string describe_bytes(std::int64_t bytes);                // "12 B", "1.5 GiB"
// Lists up to `most` texts, followed by the number of the remaining ones.
std::string describe_list(std::span<const std::string> texts, std::size_t most);
// The parts of "a,b,c"; one empty part if `text` is empty.
std::vector<std::string> split_at_commas(std::string_view text);
// Returns the number of bytes of the first UTF-8 character; 0 if it is invalid.
std::size_t character_bytes(std::string_view text);
// Control characters and invalid UTF-8, which could control a terminal, become "?".
std::string printable(std::string_view text);
std::string printable_lines(std::string_view text);  // The same, but lines stay lines.

}  // namespace farandole
