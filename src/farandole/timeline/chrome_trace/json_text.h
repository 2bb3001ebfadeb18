// Writes text as a JSON string.
// Thread safety: any thread may call this at any time.
#pragma once

#include <fmt/format.h>
#include <string_view>

namespace farandole {

// Appends `text` with quotation marks and escapes (RFC 8259). Each byte that is not UTF-8
// (RFC 3629) becomes U+FFFD.
void append_json_text(fmt::memory_buffer& to, std::string_view text);

}  // namespace farandole
