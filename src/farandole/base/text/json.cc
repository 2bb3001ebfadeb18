#include "farandole/base/text/json.h"

namespace farandole {

Json parse_json(std::string_view text) {
  return Json::parse(text);
}

Json try_parse_json(std::string_view text) {
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
