// JSON documents in memory. Their parser and their writer are compiled once, in json.cc: every unit that
// calls parse() or dump() of nlohmann's class compiles its own, which takes 2 to 4 s.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace farandole {

using Json = nlohmann::ordered_json;  // members stay in the order in which they were added

// Throws: Json::exception if `text` is not JSON, or is nested in more than 512 levels.
Json parse_json(std::string_view text);
// The same in n log n also for an object with very many members, which are then sorted by name.
Json parse_sorted_json(std::string_view text);
// As parse_json() without an exception: the result is_discarded() if `text` is not JSON.
Json try_parse_json(std::string_view text);

// In one line, or with this number of spaces at each level. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(const Json& json, int indentation = -1);
// The same for texts that are read back and must be the same then.
// Throws: Json::exception if a text is not UTF-8.
std::string exact_json_text(const Json& json, int indentation = -1);
// As json_text(), with escapes instead of characters outside of ASCII.
std::string ascii_json_text(const Json& json, int indentation = -1);

// The same document in binary form (RFC 8949), in which texts may hold any bytes.
std::vector<std::uint8_t> cbor_of(const Json& json);
// Throws: Json::exception if `bytes` are not CBOR.
Json parse_cbor(const std::vector<std::uint8_t>& bytes);

}  // namespace farandole
