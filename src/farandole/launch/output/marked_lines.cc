#include "farandole/launch/output/marked_lines.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fmt/format.h>
#include <optional>
#include <random>

namespace farandole {
namespace {

constexpr char line_mark = '\x1e';
constexpr std::size_t most_text = 1000;
constexpr std::size_t most_pending = 65536;  // Words may have no end.

struct MarkedLine {
  int rank = 0;
  LineKind kind = LineKind::out;
  std::string_view text;
};

// `line` follows the mark and ends with '\n'.
std::optional<MarkedLine> parse_line(std::string_view line) {
  MarkedLine result;
  const auto [letter, error] = std::from_chars(line.data(), line.data() + line.size(), result.rank);
  const bool goes_on = std::isupper(static_cast<unsigned char>(*letter)) != 0;
  const auto kind = static_cast<char>(std::tolower(static_cast<unsigned char>(*letter)));
  if (error != std::errc() || std::string_view("oesrx").find(kind) == std::string_view::npos)
    return std::nullopt;
  result.kind = static_cast<LineKind>(kind);
  result.text = line.substr(static_cast<std::size_t>(letter + 1 - line.data()));
  if (goes_on) result.text.remove_suffix(1);
  return result;
}

}  // namespace

std::string random_word() {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
  constexpr std::size_t length = 8;
  std::random_device random;
  std::string word;
  while (word.size() < length) word += letters[random() % letters.size()];
  return word;
}

std::string mark_lines(const LineMark& mark, std::string_view text) {
  const auto letter = static_cast<char>(mark.kind);
  const auto goes_on = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  std::string lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const auto length = std::min({end, text.size(), most_text});
    const bool ends = length == end;
    lines += fmt::format("{}{}{}{}{}\n", line_mark, mark.word, mark.rank, ends ? letter : goes_on,
                         text.substr(0, length));
    text.remove_prefix(length + (ends ? 1 : 0));
  }
  return lines;
}

void MarkedLines::take_line(std::string_view line) {
  // Words without a newline may stand in front.
  const auto begin = line.ends_with('\n') ? line.find(mark_) : std::string_view::npos;
  const auto marked =
      begin == std::string_view::npos ? std::nullopt : parse_line(line.substr(begin + mark_.size()));
  const auto words = marked ? line.substr(0, begin) : line;
  if (!words.empty()) take_words_(words);
  if (marked) take_(marked->rank, marked->kind, marked->text);
}

void MarkedLines::feed(std::string_view bytes) {
  for (auto end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    pending_.append(bytes.substr(0, end + 1));
    take_line(pending_);
    pending_.clear();
    bytes.remove_prefix(end + 1);
  }
  pending_.append(bytes);
  if (pending_.size() > most_pending) finish();
}

void MarkedLines::finish() {
  if (!pending_.empty()) take_line(pending_);
  pending_.clear();
}

}  // namespace farandole
