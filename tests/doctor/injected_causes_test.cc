// Sixty runs with one injected cause each: the first sentence of the analyzer's verdict, or of the doctor's,
// names the cause.
#include <algorithm>
#include <csignal>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "analyzer/trace_builder.h"
#include "doctor/run_of.h"
#include "lane.h"

#include "farandole/analyzer/report/report.h"
#include "farandole/doctor/diagnosis.h"

namespace farandole {
namespace {

using testing::TraceBuilder;

constexpr std::int64_t us = 1000, ms = TraceBuilder::ms;

std::string first_sentence(const std::string& text) {
  return text.substr(0, text.find(". "));
}

// What each rank does in a step. Units: ns.
struct Step {
  std::int64_t data = 4 * ms, forward = 15 * ms, backward = 35 * ms, optimizer = 6 * ms;
  std::int64_t nothing = 0;     // behind backward, before it waits for the last bucket
  std::int64_t checkpoint = 0;  // behind the optimizer
};

// A run on CPUs, in which a thread beside the training thread reduces the buckets.
struct Training {
  int ranks = 4, steps = 18, buckets = 3;
  std::int64_t transfer = ms / 2;
  std::uint64_t bytes = 2'000'000;
  std::function<void(int rank, int step, Step&)> change = [](int, int, Step&) {};
  std::function<void(TraceBuilder&, std::int64_t end)> also = [](TraceBuilder&, std::int64_t) {};
};

std::string verdict_on(const TraceBuilder& trace, const char* device) {
  const TemporaryFolder folder;
  trace.write_run(folder / "run", {{"device", device}});
  return analyze_run(folder / "run").verdict;
}

std::string verdict_on(const Training& run, std::mt19937& random) {
  TraceBuilder trace(run.ranks, true);
  const auto ranks = static_cast<std::size_t>(run.ranks);
  const auto about = [&](std::int64_t ns) {
    return ns * static_cast<std::int64_t>(990 + random() % 20) / 1000;
  };
  std::vector<std::int64_t> now(ranks, 0);
  std::int64_t sequence = 0;
  for (int number = 0; number < run.steps; ++number) {
    std::vector<Step> steps(ranks);
    std::vector<std::int64_t> begin = now, backward(ranks);
    for (int rank = 0; rank < run.ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      auto& step = steps[r];
      run.change(rank, number, step);
      for (auto* part : {&step.data, &step.forward, &step.backward, &step.optimizer}) *part = about(*part);
      trace.span(rank, 0, "data", now[r], now[r] + step.data);
      now[r] += step.data;
      trace.span(rank, 0, "forward", now[r], now[r] + step.forward);
      backward[r] = now[r] + step.forward;
      now[r] = backward[r] + step.backward;
      trace.span(rank, 0, "backward", backward[r], now[r]);
    }
    std::int64_t end = 0;
    for (int bucket = 1; bucket <= run.buckets; ++bucket) {
      std::vector<std::int64_t> ready(ranks);
      for (std::size_t r = 0; r < ranks; ++r) {
        ready[r] = std::max(end, backward[r] + steps[r].backward * bucket / run.buckets);
        if (bucket == run.buckets) ready[r] += steps[r].nothing;
      }
      end = *std::max_element(ready.begin(), ready.end()) + run.transfer;
      for (int rank = 0; rank < run.ranks; ++rank)
        trace.collective(rank, 1, sequence, ready[static_cast<std::size_t>(rank)], end, run.bytes, "bucket");
      ++sequence;
    }
    for (int rank = 0; rank < run.ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      trace.span(rank, 0, "wait", now[r] + steps[r].nothing, end);
      now[r] = end + steps[r].optimizer;
      trace.span(rank, 0, "optimizer", end, now[r]);
      trace.step(rank, number, begin[r], now[r]);
      if (steps[r].checkpoint > 0) trace.span(rank, 0, "checkpoint", now[r], now[r] + steps[r].checkpoint);
      now[r] += steps[r].checkpoint;
    }
  }
  run.also(trace, *std::max_element(now.begin(), now.end()));
  return verdict_on(trace, "cpu");
}

struct GpuStep {
  std::int64_t compute = 0, copies = 0, reduction = 0, idle = 0;
};

std::string verdict_on_gpus(int ranks, const GpuStep& step, const std::string& copy_category,
                            const std::string& copy_name) {
  TraceBuilder trace(ranks, true);
  const auto length = step.compute + step.copies + step.reduction + step.idle;
  for (int rank = 0; rank < ranks; ++rank)
    for (int number = 0; number < 12; ++number) {
      auto at = number * length;
      trace.step(rank, number, at, at + length);
      trace.span(rank, 0, "forward", at, at + length / 3);
      trace.span(rank, 0, "backward", at + length / 3, at + length);
      trace.span(rank, 2, copy_category, at, at + step.copies, {}, copy_name);
      at += step.copies;
      for (int kernel = 0; kernel < 4; ++kernel, at += step.idle / 4) {
        trace.span(rank, 2, "gpu_kernel", at, at + step.compute / 4, {}, "gemm");
        at += step.compute / 4;
      }
      trace.span(rank, 3, "gpu_kernel", at, at + step.reduction, {}, "ncclDevKernel_AllReduce_Sum_f32");
    }
  return verdict_on(trace, "cuda");
}

// A rank ends in step 12, and another, which waits for it, a second later.
std::string diagnosis_of(int ranks, int who, const std::function<void(RunEvidence&, RankRecord&)>& inject) {
  using evidence::noon, evidence::second;
  auto run = evidence::run_of(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    auto& evidence = run.ranks[static_cast<std::size_t>(rank)];
    evidence.host = "node1";
    auto& recorder = evidence.recorder.emplace();
    recorder.readable = true;
    recorder.step = 12;
    recorder.last_ns = noon - second;
    recorder.doing.emplace();
    recorder.doing->category = rank == who ? Category::backward : Category::wait;
    recorder.doing->name = name_of(recorder.doing->category);
    recorder.doing->start_ns = noon - second;
    auto& end = evidence.end.emplace();
    end.rank = rank;
    end.host = evidence.host;
    end.told = rank != who;
    end.signal = rank == who ? 0 : SIGTERM;
    end.time_ns = noon + (rank == who ? 0 : second);
  }
  inject(run, *run.ranks[static_cast<std::size_t>(who)].end);
  return diagnose(run).verdict;
}

struct Case {
  std::string cause, sentence;
  std::vector<std::string> names;  // All must be there.
};

class InjectedCauses : public ::testing::Test {
 protected:
  int any(int from, int to) {
    return from + static_cast<int>(random_() % static_cast<unsigned>(to - from + 1));
  }
  void add(const std::string& cause, const std::string& verdict, std::vector<std::string> names) {
    cases_.push_back({cause, first_sentence(verdict), std::move(names)});
  }

  void slow_ranks() {
    const std::vector<std::pair<std::string, std::int64_t Step::*>> phases = {
        {"data", &Step::data},
        {"forward", &Step::forward},
        {"backward", &Step::backward},
        {"optimizer", &Step::optimizer}};
    for (const auto& [name, part] : phases)
      for (const int ranks : {2, 4, 8}) {
        const int who = any(0, ranks - 1);
        const auto more = any(20, 60) * ms;
        Training run{.ranks = ranks};
        run.change = [&, part = part](int rank, int, Step& step) { step.*part += rank == who ? more : 0; };
        add("slow rank by " + name, verdict_on(run, random_), {"rank " + std::to_string(who) + "'s " + name});
      }
  }

  // The ranks 0 to `sharing` - 1 have one core.
  void shared_cores() {
    for (const auto& [ranks, sharing] :
         std::vector<std::pair<int, int>>{{2, 2}, {4, 2}, {4, 4}, {8, 3}, {6, 2}}) {
      const int core = any(0, 40);
      Training run{.ranks = ranks};
      run.change = [&, sharing = sharing](int rank, int, Step& step) {
        if (rank >= sharing) return;
        for (auto* part : {&step.data, &step.forward, &step.backward, &step.optimizer}) *part *= sharing;
      };
      run.also = [&, ranks = ranks, sharing = sharing](TraceBuilder& trace, std::int64_t end) {
        for (int rank = 0; rank < ranks; ++rank)
          for (std::int64_t at = 200 * ms; at < end + 200 * ms; at += 200 * ms) {
            const bool shares = rank < sharing;
            trace.counter(rank, "core wait %", at, shares ? 100.0 * (sharing - 1) / sharing : 0.3);
            trace.counter(rank, "core", at, shares ? core : 50 + rank);
          }
      };
      add("shared core", verdict_on(run, random_),
          {"waiting for a core", "share core " + std::to_string(core)});
    }
  }

  void slow_disks() {
    for (const bool all : {true, true, false, false, false}) {
      const int every = any(4, 8), who = any(0, 3);
      Training run;
      run.change = [&](int rank, int number, Step& step) {
        if (number % every == every - 1 && (all || rank == who)) step.checkpoint = 400 * ms;
      };
      add("slow disk", verdict_on(run, random_), {"checkpoint"});
    }
  }

  void slow_data() {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      const auto more = any(15, 80) * ms;
      Training run{.ranks = ranks};
      run.change = [&](int, int, Step& step) { step.data += more; };
      add("slow data", verdict_on(run, random_), {"loading data"});
    }
  }

  void small_buckets() {
    for (const int ranks : {2, 3, 4, 6, 8}) {
      Training run{.ranks = ranks, .steps = 10, .buckets = any(40, 80), .transfer = any(800, 1500) * us};
      run.bytes = static_cast<std::uint64_t>(any(1, 60)) << 10;
      add("small buckets", verdict_on(run, random_), {"communication", "small collectives"});
    }
  }

  void late_collectives() {
    for (const int ranks : {2, 3, 4, 5, 8}) {
      const int who = any(0, ranks - 1);
      const auto late = any(15, 50) * ms;
      Training run{.ranks = ranks};
      run.change = [&](int rank, int, Step& step) { step.nothing = rank == who ? late : 0; };
      add("late collective", verdict_on(run, random_), {"rank " + std::to_string(who) + "'s other work"});
    }
  }

  void copies_and_idle_gpus() {
    const std::vector<std::pair<std::string, std::string>> copies = {
        {"gpu_memcpy", "HtoD"},
        {"gpu_memcpy", "Memcpy DtoH (Device -> Pageable)"},
        {"gpu_kernel", "__amd_rocclr_copyBuffer"},
        {"gpu_kernel", "Memcpy HtoD (Host -> Device)"},
        {"gpu_kernel", "CopyDeviceToHost"}};
    for (int i = 0; i < 5; ++i) {
      const auto& [category, name] = copies[static_cast<std::size_t>(i)];
      add("copies",
          verdict_on_gpus(1 + i % 3, {any(4, 20) * ms, any(40, 90) * ms, ms, 2 * ms}, category, name),
          {"copies from, to and within GPUs"});
      add("idle GPU",
          verdict_on_gpus(1 + i % 3, {any(4, 20) * ms, 2 * ms, ms, any(40, 90) * ms}, category, name),
          {"GPUs are idle"});
    }
  }

  void lost_ranks() {
    for (const int signal : {SIGKILL, SIGSEGV, SIGBUS, SIGABRT}) {
      const int ranks = any(2, 8), who = any(0, ranks - 1);
      add("lost rank", diagnosis_of(ranks, who, [&](RunEvidence&, RankRecord& end) { end.signal = signal; }),
          {"rank " + std::to_string(who) + " ", "signal " + std::to_string(signal)});
    }
    for (int i = 0; i < 4; ++i) {
      const int ranks = any(2, 8), who = any(0, ranks - 1);
      add("out of memory",
          diagnosis_of(ranks, who,
                       [&](RunEvidence&, RankRecord& end) {
                         end.signal = SIGKILL;
                         end.out_of_memory = "its control group counts 1 more out-of-memory kill";
                       }),
          {"rank " + std::to_string(who) + " ", "out of memory"});
    }
    const std::string reason = "--lr is 'x'; give a number";
    for (const int code : {1, 3, 64, 65, 127}) {
      const int ranks = any(2, 8), who = any(0, ranks - 1);
      const bool has_reason = code == 64 || code == 65;  // every rank ends in the same way
      add("exit code",
          diagnosis_of(ranks, who,
                       [&](RunEvidence& run, RankRecord& end) {
                         end.exit_code = code;
                         auto& log = run.ranks[static_cast<std::size_t>(who)].log;
                         log.found = true;
                         log.error = reason;
                       }),
          {has_reason ? reason : "rank " + std::to_string(who) + " ", "exit code " + std::to_string(code)});
    }
  }

  std::mt19937 random_{seed(38)};
  std::vector<Case> cases_;
};

TEST_F(InjectedCauses, AreNamedInTheFirstSentence) {
  slow_ranks();
  shared_cores();
  slow_disks();
  slow_data();
  small_buckets();
  late_collectives();
  copies_and_idle_gpus();
  lost_ranks();
  ASSERT_EQ(cases_.size(), 60U);
  std::string missed;
  std::size_t named = 0;
  for (const auto& [cause, sentence, names] : cases_) {
    const bool all = std::all_of(names.begin(), names.end(), [&, &sentence = sentence](const auto& name) {
      return sentence.find(name) != std::string::npos;
    });
    named += all ? 1 : 0;
    if (!all) missed += "\n" + cause + ": " + sentence;
  }
  EXPECT_GE(named, 59U) << missed;
}

}  // namespace
}  // namespace farandole
