// The spans that a thread is in, innermost first. Recorded spans always set it. If `watched` is true,
// all spans set it.
// Thread safety: only the owning thread uses this; other threads may read `category`.
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
