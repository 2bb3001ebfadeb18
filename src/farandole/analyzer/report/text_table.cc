#include "farandole/analyzer/report/text_table.h"

#include <algorithm>

#include "farandole/base/text/phrases.h"

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

std::string shortened(std::string_view text, std::size_t columns) {
  auto result = printable(text);
  if (width_of(result) <= columns) return result;
  std::size_t end = 0;
  for (std::size_t left = columns; end < result.size(); ++end)
    if (begins_character(result[end]) && left-- <= 1) break;
  return result.substr(0, end) + "…";
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
