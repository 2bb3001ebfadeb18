// Text as a JSON string. Usable from any thread.
#pragma once

#include <fmt/format.h>
#include <string_view>

namespace farandole {

// Appends `text` with quotation marks, escaped (RFC 8259); bytes that are not UTF-8 (RFC 3629) become U+FFFD
// each.
void append_json_text(fmt::memory_buffer& to, std::string_view text);

}  // namespace farandole
