#include "farandole/comm/wrap/traced_communicator.h"

#include <gtest/gtest.h>
#include <thread>

#include "fusion/thread_world.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/comm/shm/shared_memory_communicator.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

TEST(TracedCommunicator, RecordsWhatTheAnalyzerNeeds) {
  const TemporaryFolder folder;
  TimelineOptions options{.file = folder / "rank-0000.ftl"};
  {
    Timeline timeline(options);
    ThreadWorld::run(1, [&](Communicator& inner) {
      // The communicator stays owned by the world. This one only forwards calls.
      struct Pass : FailingCommunicator {
        explicit Pass(Communicator& to) : to_(to) {}
        void allreduce(std::string_view name, void* data, std::size_t count, DType dtype,
                       ReduceOp op) override {
          to_.allreduce(name, data, count, dtype, op);
        }
        Communicator& to_;
      };
      TracedCommunicator traced(std::make_unique<Pass>(inner), timeline, 3);
      std::vector<double> data(10, 1.0);
      timeline.set_step(7);
      traced.allreduce("bucket 0", data.data(), data.size(), DType::float64, ReduceOp::sum);
      traced.allreduce("bucket 1", data.data(), 5, DType::float64, ReduceOp::sum);
      traced.allreduce("bucket 0", data.data(), data.size(), DType::float64, ReduceOp::sum);
    });
  }
  const RecorderFile file(options.file);
  std::vector<Record> records;
  for (std::size_t slot = 0; slot < file.threads().size(); ++slot)
    for (const auto& record : file.records(slot)) records.push_back(record);
  ASSERT_EQ(records.size(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(records[i].sequence, i);
    EXPECT_EQ(records[i].communicator, 3);
    EXPECT_EQ(records[i].step, 7);
    EXPECT_EQ(file.names()[records[i].operation], "allreduce");
    EXPECT_EQ(file.names()[records[i].name], i == 1 ? "bucket 1" : "bucket 0");
    EXPECT_EQ(records[i].payload, i == 1 ? 40u : 80u);
  }
}

// A non-blocking allreduce is on its own track. The work of this thread for it is among the
// spans of the thread.
TEST(TracedCommunicator, RecordsANonblockingAllreduce) {
  const TemporaryFolder folder;
  TimelineOptions options{.file = folder / "rank-0000.ftl"};
  ThreadWorld::run(2, [&](Communicator& world) {
    TimelineOptions own = options;
    if (world.rank != 0) own.file.clear();
    const auto kept = own.file.empty() ? std::make_unique<Timeline>() : std::make_unique<Timeline>(own);
    Timeline& timeline = *kept;
    CollectiveRegistry registry;
    TracedCommunicator traced(std::make_unique<SharedMemoryCommunicator>(
                                  world, SharedMemoryOptions{.arena_bytes = std::size_t{64} << 20}),
                              timeline, 3, &registry);
    auto* const nonblocking = traced.nonblocking_allreduce();
    ASSERT_NE(nonblocking, nullptr);
    const std::size_t count = 10'000;
    auto buffer = traced.allocate(count * sizeof(double));
    nonblocking->start("bucket 0", buffer.get(), count, DType::float64, ReduceOp::sum);
    EXPECT_TRUE(registry.read().at(0).in_flight);
    if (world.rank == 0) {
      while (!nonblocking->test()) std::this_thread::yield();
    } else {
      nonblocking->wait();
    }
    EXPECT_FALSE(registry.read().at(0).in_flight);
  });
  const RecorderFile file(options.file);
  std::vector<Record> collectives, spans;
  for (std::size_t slot = 0; slot < file.threads().size(); ++slot)
    for (const auto& record : file.records(slot))
      (record.kind == RecordKind::collective ? collectives : spans).push_back(record);
  ASSERT_EQ(collectives.size(), 1u);
  EXPECT_EQ(file.names()[collectives[0].name], "bucket 0");
  EXPECT_EQ(collectives[0].payload, 80'000u);
  ASSERT_GE(spans.size(), 1u);
  for (const auto& span : spans) {
    EXPECT_EQ(span.category, Category::communication);
    EXPECT_NE(span.track, collectives[0].track);
    EXPECT_GE(span.start_ns, collectives[0].start_ns);
    EXPECT_LE(span.end_ns, collectives[0].end_ns);
  }
}

// A non-blocking allreduce that fails in the function with this name.
class FailingNonblocking : public FailingCommunicator, private NonblockingAllreduce {
 public:
  NonblockingAllreduce* nonblocking_allreduce() override { return this; }

 private:
  void start(std::string_view name, void*, std::size_t, DType, ReduceOp) override {
    fail_in("start", name_ = name);
  }
  bool test() override { return fail_in("test", name_), false; }
  void wait() override { fail_in("wait", name_); }
  bool can_progress() const override { return true; }
  static void fail_in(std::string_view call, const std::string& name) {
    if (call == name) throw Error("the peer is gone", ExitCode::peer_lost);
  }
  std::string name_;
};

TEST(TracedCommunicator, RecordsCollectivesThatFail) {
  const TemporaryFolder folder;
  TimelineOptions options{.file = folder / "rank-0000.ftl"};
  {
    Timeline timeline(options);
    CollectiveRegistry registry;
    TracedCommunicator traced(std::make_unique<FailingNonblocking>(), timeline, 3, &registry);
    const auto in_flight = [&] { return registry.read().at(0).in_flight; };
    float data = 0;
    EXPECT_THROW(traced.allreduce("blocking", &data, 1, DType::float32, ReduceOp::sum), Error);
    EXPECT_FALSE(in_flight());
    auto* const nonblocking = traced.nonblocking_allreduce();
    const auto start = [&](std::string_view name) {
      nonblocking->start(name, &data, 1, DType::float32, ReduceOp::sum);
      EXPECT_TRUE(in_flight());
    };
    EXPECT_THROW(start("start"), Error);
    EXPECT_FALSE(in_flight());
    start("test");
    EXPECT_THROW(nonblocking->test(), Error);
    EXPECT_FALSE(in_flight());
    start("wait");
    EXPECT_FALSE(nonblocking->test());
    EXPECT_THROW(nonblocking->wait(), Error);
    EXPECT_FALSE(in_flight());
  }
  const RecorderFile file(options.file);
  std::vector<std::string> recorded;
  for (std::size_t slot = 0; slot < file.threads().size(); ++slot)
    for (const auto& record : file.records(slot)) {
      if (record.kind != RecordKind::collective) continue;
      recorded.push_back(file.names().at(record.name));
      EXPECT_EQ(record.sequence + 1, recorded.size());
      EXPECT_EQ(record.payload, 4u);
    }
  EXPECT_EQ(recorded, (std::vector<std::string>{"blocking", "start", "test", "wait"}));
}

TEST(TracedCommunicator, IsInTheRegistryWhileACollectiveLasts) {
  Timeline off;
  CollectiveRegistry registry;
  ThreadWorld::run(1, [&](Communicator&) {
    struct Look : FailingCommunicator {
      explicit Look(CollectiveRegistry& on) : registry_(on) {}
      void allreduce(std::string_view, void*, std::size_t, DType, ReduceOp) override {
        seen = registry_.read().at(0);
        throw Error("lost");
      }
      CollectiveRegistry& registry_;
      CollectiveStatus seen;
    };
    auto look = std::make_unique<Look>(registry);
    const auto& seen = look->seen;
    TracedCommunicator traced(std::move(look), off, 3, &registry);
    int data = 0;
    EXPECT_THROW(traced.allreduce("bucket 7", &data, 1, DType::int32, ReduceOp::sum), Error);
    EXPECT_TRUE(seen.in_flight);
    EXPECT_EQ(seen.blocked, own_thread());
    EXPECT_EQ(seen.caller, 0) << "the owner";
    EXPECT_EQ(seen.name, "bucket 7");
    EXPECT_EQ(seen.bytes, 4u);
    EXPECT_EQ(seen.entered, 1u);
    EXPECT_LE(seen.since_ns, now_ns());
    EXPECT_FALSE(registry.read().at(0).in_flight);
    traced.set_patient(true);  // never counts as waiting for long
    EXPECT_THROW(traced.allreduce("join", &data, 1, DType::int32, ReduceOp::sum), Error);
    EXPECT_TRUE(seen.in_flight);
    EXPECT_EQ(seen.entered, 2u);
    EXPECT_GT(seen.since_ns, now_ns());
    const auto call = [&] {
      EXPECT_THROW(traced.allreduce("bucket 8", &data, 1, DType::int32, ReduceOp::sum), Error);
    };
    std::thread([&] {
      call();
      EXPECT_EQ(seen.caller, own_thread());
      EXPECT_EQ(seen.blocked, own_thread());
    }).join();
    // From now on, other threads call for this one.
    traced.note_servant(true, false);
    EXPECT_LT(registry.read().at(0).caller, 0);
    std::thread(call).join();
    EXPECT_LT(seen.caller, 0);
    EXPECT_EQ(seen.blocked, seen.caller);
    EXPECT_EQ(seen.awaits, 0);
    traced.note_servant(true, true);
    std::thread(call).join();
    EXPECT_EQ(seen.awaits, own_thread());
    traced.note_servant(false, false);
    EXPECT_EQ(registry.read().at(0).caller, 0);
    call();
    EXPECT_EQ(seen.blocked, own_thread());
  });
  EXPECT_FALSE(registry.read().at(0).open);
}

}  // namespace
}  // namespace farandole
