// A trace's spans and instants, each as one line of text with all its fields.
#pragma once

#include <string>
#include <vector>

#include "farandole/timeline/chrome_trace/trace_reader.h"

namespace farandole {

class VisitedSpans : public TraceVisitor {
 public:
  void span(const TraceSpan& span) override {
    texts.push_back(
        std::string(name_of(span.category)) + "|" + std::string(span.name) + "|" +
        std::string(span.operation) + "|" + std::to_string(span.pid) + "|" + std::to_string(span.tid) + "|" +
        std::to_string(span.start_ns) + "|" + std::to_string(span.duration_ns) + "|" +
        (span.step ? std::to_string(*span.step) : "-") + "|" +
        (span.collective ? std::to_string(span.collective->sequence) + "/" +
                               std::to_string(span.collective->communicator) + "/" +
                               std::to_string(span.collective->bytes)
                         : "-") +
        " " + (span.phase ? std::string(name_of(*span.phase)) : "-") + "|" + std::to_string(span.bytes) +
        "|" + std::string(span.category_text) + "|" + std::string(span.message.collective) + "|" +
        std::string(span.message.dtype) + "|" + std::string(span.message.process_group) + "|" +
        std::to_string(span.message.elements.value_or(0)) + "|" +
        std::to_string(span.message.ranks.value_or(0)));
  }
  void instant(const TraceInstant& what) override {
    texts.push_back(std::string(what.name) + "|" + std::to_string(what.pid) + "|" + std::to_string(what.tid) +
                    "|" + std::to_string(what.time_ns) + "|" + std::to_string(what.bytes));
  }
  bool wants(std::string_view category) const override { return category != "cuda_runtime"; }
  std::vector<std::string> texts;
};

}  // namespace farandole
