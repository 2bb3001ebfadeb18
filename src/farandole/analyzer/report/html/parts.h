// Building blocks of the page's sections. Pure functions and values.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace farandole::html {

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
