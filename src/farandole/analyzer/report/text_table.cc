#include "farandole/analyzer/report/text_table.h"

#include <algorithm>

namespace farandole {
namespace {

bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
}

}  // namespace

std::string Style::wrap(std::string_view code, std::string_view text) const {
  if (!colour_) return std::string(text);
  return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
}

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::size_t character_bytes(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text[0]);
  const std::size_t length = byte < 0x80       ? 1
                             : byte >> 5 == 6  ? 2
                             : byte >> 4 == 14 ? 3
                             : byte >> 3 == 30 ? 4
                                               : 0;
  if (length == 0 || length > text.size()) return 0;
  return std::any_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(length), begins_character)
             ? 0
             : length;
}

namespace {

// Returns 0 also for a character that could control a terminal: below space, DEL, and U+0080 to U+009F.
std::size_t shown_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto length = character_bytes(text);
  const bool controls =
      byte(0) < 0x20 || byte(0) == 0x7F || (length == 2 && byte(0) == 0xC2 && byte(1) < 0xA0);
  return controls ? 0 : length;
}

}  // namespace

std::string shortened(std::string_view text, std::size_t columns) {
  const bool cut = width_of(text) > columns;
  std::string result;
  for (std::size_t taken = 0; !text.empty() && !(cut && taken + 1 >= columns);) {
    taken += begins_character(text[0]) ? 1 : 0;
    const auto bytes = shown_bytes(text);
    if (bytes > 0)
      result += text.substr(0, bytes);
    else if (begins_character(text[0]))
      result += '?';  // Continuation bytes are dropped, because they have no width.
    text.remove_prefix(std::max<std::size_t>(1, bytes));
  }
  return cut ? result + "…" : result;
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns) {
  std::string result;
  std::size_t column = indent;
  while (!text.empty()) {
    const auto space = std::min(text.find(' '), text.size());
    const auto word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    const bool first = column == indent;
    if (!first && column + 1 + width_of(word) > columns) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      result += ' ';
      ++column;
    }
    result += shortened(word, columns);
    column += width_of(word);
  }
  return result;
}

std::string TextTable::line(const std::vector<std::string>& cells,
                            const std::vector<std::size_t>& widths) const {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string gap(widths[i] - width_of(cells[i]), ' ');
    text += "  " + (i < left_ ? cells[i] + gap : gap + cells[i]);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string TextTable::text(const Style& style) const {
  std::vector<std::size_t> widths;
  for (const auto& cell : header_) widths.push_back(width_of(cell));
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::string result = style.dim(line(header_, widths)) + "\n";
  for (const auto& row : rows_) result += line(row, widths) + "\n";
  return result;
}

}  // namespace farandole
