#include "farandole/base/text/json.h"

namespace farandole {
namespace {

// Copying and writing a document needs a frame of the stack for each level.
constexpr int deepest = 512;

class TooDeep : public Json::exception {
 public:
  TooDeep() : Json::exception(101, "arrays and objects are nested too deep") {}
};

bool is_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') ++i;
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    if ((c == '[' || c == '{') && ++depth > deepest) return true;
    if (c == ']' || c == '}') --depth;
  }
  return false;
}

}  // namespace

Json parse_json(std::string_view text) {
  if (is_too_deep(text)) throw TooDeep();
  return Json::parse(text);
}

// An ordered object looks for each new member among all earlier ones.
Json parse_sorted_json(std::string_view text) {
  if (is_too_deep(text)) throw TooDeep();
  return nlohmann::json::parse(text);
}

Json try_parse_json(std::string_view text) {
  if (is_too_deep(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string json_text(const Json& json, int indentation) {
  return json.dump(indentation, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string exact_json_text(const Json& json, int indentation) {
  return json.dump(indentation);
}

std::string ascii_json_text(const Json& json, int indentation) {
  return json.dump(indentation, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::vector<std::uint8_t> cbor_of(const Json& json) {
  return Json::to_cbor(json);
}

Json parse_cbor(const std::vector<std::uint8_t>& bytes) {
  return Json::from_cbor(bytes);
}

}  // namespace farandole
