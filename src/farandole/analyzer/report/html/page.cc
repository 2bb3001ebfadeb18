#include <algorithm>
#include <fmt/format.h>

#include "farandole/analyzer/report/html/charts.h"
#include "farandole/analyzer/report/html/svg.h"

namespace farandole::html {
namespace {

// Okabe and Ito's colours, which colour-blind readers can distinguish. They are the same on
// light and dark backgrounds.
constexpr std::string_view style = R"css(
:root{--bg:#fff;--ink:#1c2126;--dim:#5c6670;--line:#d9dee3;--card:#f6f8f9;--accent:#0072b2;--warn:#b34a00;
--data:#e69f00;--forward:#56b4e9;--backward:#0072b2;--optimizer:#009e73;--wait:#d55e00;--checkpoint:#cc79a7;
--evaluation:#c9b800;--other:#a3abb2;--idle:#dde2e6}
@media (prefers-color-scheme:dark){:root{--bg:#14181c;--ink:#e8ecef;--dim:#9aa5af;--line:#333b43;--card:#1c2228;
--accent:#56b4e9;--warn:#f09a5a;--backward:#2b8fd0;--other:#77828c;--idle:#2c343b}}
@media print{:root{--bg:#fff;--ink:#000;--dim:#444;--line:#bbb;--card:#fff;--accent:#0072b2;--warn:#b34a00;
--backward:#0072b2;--other:#a3abb2;--idle:#dde2e6}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",
"DejaVu Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 32px 64px}
header{margin-bottom:22px}
.brand{color:var(--dim);font-size:13px;letter-spacing:.04em;margin:0 0 6px;overflow-wrap:anywhere}
.verdict{font-size:22px;line-height:1.4;font-weight:600;margin:0 0 10px;max-width:52em;text-wrap:pretty}
.facts{color:var(--dim);margin:0;font-size:13.5px;overflow-wrap:anywhere}
article+article{border-top:2px solid var(--line);margin-top:56px;padding-top:36px}
nav{margin:0 0 24px;font-size:14px}nav a{margin-right:18px}
a{color:var(--accent)}
h2{font-size:18px;margin:0 0 2px}
.sub{color:var(--dim);margin:0 0 12px;font-size:13.5px;max-width:62em}
section{margin:38px 0 0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(142px,1fr));gap:12px}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px}
.card .name{color:var(--dim);font-size:13px}.card .value{font-size:20px;font-weight:600;white-space:nowrap;font-variant-numeric:tabular-nums}
.unknown{margin:10px 0 0}
.pairs{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,max(320px,40%)),1fr));gap:18px 28px}
.card .more{color:var(--dim);font-size:12.5px}
.finding{border-left:4px solid var(--wait);padding:2px 0 2px 14px;margin:0 0 16px}
.finding h3{margin:0;font-size:15.5px}.finding p{margin:2px 0;max-width:60em}
.gain{color:var(--warn);font-weight:600;white-space:nowrap}
.none{color:var(--dim)}
code{white-space:nowrap;font-size:.93em}
svg{width:100%;height:auto;display:block;overflow:visible;font-size:13px;font-family:inherit}
svg text{fill:var(--ink)}svg .small{font-size:11.5px;fill:var(--dim)}svg .strong{font-weight:600}
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--dim);stroke-width:1}
.mark{stroke:var(--ink);stroke-width:1.2;stroke-dasharray:4 3}
.curve{fill:none;stroke:var(--backward);stroke-width:1.8}.dashed{stroke-dasharray:6 4}
.band{fill:var(--forward);opacity:.3;stroke:none}
.curve.of-eval{stroke:var(--wait)}.band.of-eval{fill:var(--wait);opacity:.18}
.whisker{stroke:var(--dim);stroke-width:2}.dot{stroke:var(--bg);stroke-width:1}
.box{fill:var(--card);stroke:var(--line)}
.map{image-rendering:pixelated}
.f-data{fill:var(--data)}.f-forward{fill:var(--forward)}.f-backward{fill:var(--backward)}.f-optimizer{fill:var(--optimizer)}
.f-wait{fill:var(--wait)}.f-checkpoint{fill:var(--checkpoint)}.f-evaluation{fill:var(--evaluation)}.f-other{fill:var(--other)}
.f-idle{fill:var(--idle)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums;width:100%}
th,td{text-align:right;padding:4px 8px;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--dim);font-weight:600;white-space:normal;vertical-align:bottom}
th.l,td.l{text-align:left}td.l{white-space:normal;overflow-wrap:anywhere}td.l+td.l{min-width:6em}
summary{cursor:pointer;color:var(--accent);margin:6px 0}
.notes li{margin:4px 0}
#tip{position:fixed;display:none;pointer-events:none;background:var(--ink);color:var(--bg);padding:3px 8px;border-radius:4px;
font-size:12.5px}
footer{margin-top:48px;color:var(--dim);font-size:12.5px}
@media print{svg,.card,.finding,tr{break-inside:avoid}h2,.sub{break-after:avoid}nav,.screen{display:none}
body{font-size:11px}main{max-width:none;padding:0}section{margin:22px 0 0}.verdict{font-size:17px}h2{font-size:14px}
.sub,.facts,.finding h3,.card .more,.card .name{font-size:10.5px}.card .value{font-size:16px}
.cards{grid-template-columns:repeat(5,1fr);gap:6px}.scroll{overflow:visible}table{font-size:9.5px}
th,td{padding:2px 5px;white-space:normal}.notes{font-size:10px}
details:not([open])>*:not(summary){display:none}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)css";

// The text under the pointer in the lateness map.
constexpr std::string_view script = R"js(
for(const map of document.querySelectorAll("image.map")){
const d=map.dataset,rows=+d.rows,columns=+d.columns,per=+d.per,most=+d.most,values=atob(d.values),tip=document.getElementById("tip");
map.addEventListener("mousemove",e=>{const b=map.getBoundingClientRect();
const x=Math.min(columns-1,Math.max(0,Math.floor((e.clientX-b.left)/b.width*columns)));
const y=Math.min(rows-1,Math.max(0,Math.floor((e.clientY-b.top)/b.height*rows)));
const s=values.charCodeAt(y*columns+x)/255,ms=s*s*most,names=map.parentNode.dataset.names.split("|");
tip.textContent="rank "+names[y]+", step "+(x*per)+(per>1?" to "+(x*per+per-1):"")+" of the window: "+(ms>=1?ms.toFixed(1)+" ms":(1e3*ms).toFixed(0)+" µs")+" late"+(s==1?" or more":"");
tip.style.display="block";tip.style.left=Math.min(e.clientX+14,innerWidth-330)+"px";tip.style.top=(e.clientY+14)+"px"});
map.addEventListener("mouseleave",()=>tip.style.display="none")}
)js";

}  // namespace

std::string page(std::string_view title, std::string_view body) {
  std::string text =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<meta name=\"color-scheme\" content=\"light dark\"><title>";
  text += escaped(title);
  text += "</title><style>";
  text += style;
  text += "</style></head><body><main>\n";
  text += body;
  text += "</main><div id=\"tip\"></div><script>";
  text += script;
  text += "</script></body></html>\n";
  return text;
}

std::string section(const std::string& title, const std::string& sub, const std::string& content) {
  if (content.empty()) return "";
  return fmt::format("<section><h2>{}</h2>{}{}</section>\n", escaped(title),
                     sub.empty() ? "" : "<p class=\"sub\">" + escaped(sub) + "</p>", content);
}

std::string table_of(const Table& table, std::size_t most) {
  std::string text = "<div class=\"scroll\"><table>";
  const auto says_nothing = [&](const Column& column) {
    return !table.rows.empty() && std::all_of(table.rows.begin(), table.rows.end(), [&](const Json& row) {
      return cell_text(column, row) == column.unknown;
    });
  };
  std::vector<bool> left_out;
  for (const auto& column : table.columns)
    left_out.push_back(left_out.size() >= table.left && says_nothing(column));
  const auto add_row = [&](const char* tag, auto cell) {
    text += "<tr>";
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      if (!left_out[i])
        text += fmt::format("<{}{}>{}</{}>", tag, i < table.left ? " class=\"l\"" : "",
                            escaped(cell(table.columns[i])), tag);
    text += "</tr>\n";
  };
  add_row("th", [](const Column& column) { return column.label; });
  for (std::size_t i = 0; i < std::min(most, table.rows.size()); ++i)
    add_row("td", [&](const Column& column) { return cell_text(column, table.rows[i]); });
  return text + "</table></div>";
}

}  // namespace farandole::html
