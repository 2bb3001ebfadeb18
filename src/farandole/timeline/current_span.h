// Which spans a thread is in, innermost first: set by that thread for spans that are recorded and, from
// when somebody watches it on, for all. Other threads may read its category, and nothing else.
#pragma once

#include <atomic>

#include "farandole/timeline/event.h"

namespace farandole {

class Span;

struct CurrentSpan {
  bool watched = false;  // set by the thread itself
  std::atomic<const Span*> innermost{nullptr};
  std::atomic<Category> category{Category::other};  // of the innermost; only where there is one
};

inline constinit thread_local CurrentSpan current_span;

}  // namespace farandole
