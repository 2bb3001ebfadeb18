// Everything a C++ program needs to record a timeline. Link Farandole::timeline.
//
//   {
//     farandole::Timeline timeline(farandole::run_timeline("runs/mine"));
//     timeline.set_step(0);
//     farandole::Span span(timeline, farandole::Category::forward, "forward");
//     …
//   }
//   farandole::merge_run("runs/mine");  // runs/mine/timeline.json.gz, for Perfetto and farandole analyze
#pragma once

#include "farandole/base/error.h"
#include "farandole/timeline/run_timeline.h"
#include "farandole/timeline/timeline.h"
