// Which spans a thread is in, innermost first. The thread sets it for spans that are recorded and, while it
// is watched, for all spans. Farandole's own.
// Thread safety: none; use from one thread at a time. Other threads may read the category, and nothing else.
#pragma once

#include <atomic>

#include "farandole/timeline/event.h"

namespace farandole {

class Span;

struct CurrentSpan {
  bool watched = false;  // set by the thread itself
  std::atomic<const Span*> innermost{nullptr};
  std::atomic<Category> category{Category::other};  // of the innermost span; valid only if there is one
};

inline constinit thread_local CurrentSpan current_span;

}  // namespace farandole
