// An HTML page that loads nothing else, with style sheet and script, and the building blocks of its sections.
// Thread safety: any thread may call the functions at any time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace farandole::html {

std::string page(std::string_view title, std::string_view body);

// Returns "" if there is no content.
std::string section(const std::string& title, const std::string& sub, const std::string& content);

// Rows of cells. The first `left` columns contain text.
class Table {
 public:
  Table(const std::vector<std::string>& header, std::size_t left) : left_(left) { add_row(header, "th"); }
  void add(const std::vector<std::string>& cells) { add_row(cells, "td"); }
  std::string finish() { return "<div class=\"scroll\"><table>" + text_ + "</table></div>"; }

 private:
  void add_row(const std::vector<std::string>& cells, const char* tag);

  std::size_t left_;
  std::string text_;
};

}  // namespace farandole::html
