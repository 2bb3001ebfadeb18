#include "farandole/analyzer/report/html/parts.h"

#include <fmt/format.h>

#include "farandole/analyzer/report/html/svg.h"

namespace farandole::html {

std::string section(const std::string& title, const std::string& sub, const std::string& content) {
  if (content.empty()) return "";
  return fmt::format("<section><h2>{}</h2>{}{}</section>\n", escaped(title),
                     sub.empty() ? "" : "<p class=\"sub\">" + escaped(sub) + "</p>", content);
}

void Table::add_row(const std::vector<std::string>& cells, const char* tag) {
  text_ += "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i)
    text_ += fmt::format("<{}{}>{}</{}>", tag, i < left_ ? " class=\"l\"" : "", escaped(cells[i]), tag);
  text_ += "</tr>\n";
}

}  // namespace farandole::html
