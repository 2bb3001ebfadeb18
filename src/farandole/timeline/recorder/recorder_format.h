// The format of the flight recorder's file (.ftl), defined once for its writer (recorder_map.h, timeline.cc)
// and its reader (recorder_file.h). Plain values in host byte order, which the field byte_order identifies.
// Thread safety: any thread may call this at any time.
//
//   Header | ThreadEntry × thread_slots | names | chunk × chunk_count
//
// Records go into chunks. A thread starts with the chunk that is reserved for its slot. When its last
// chunk is full, it takes another one from the common pool, or reuses its own oldest chunk if the pool is
// empty. So busy threads get more of the file, and when the file is full, the records of all threads reach
// about equally far back.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "farandole/timeline/event.h"

namespace farandole {

enum class RecordKind : std::uint8_t { none, span, collective, instant, counter };

// One event: a cache line. What the fields mean that have no comment depends on the kind of the event. The
// functions write and read them as a whole.
struct Record {
  // Which fields of an MPI call are set.
  enum MpiDetail : std::uint16_t {
    has_bytes = 1,
    has_peer = 2,
    has_root = 4,
    has_tag = 8,
    has_ranks = 16,
    has_requests = 32,
    // 64 meant polls in records of older writers, which are then shown as single calls.
    has_polls = 128,
  };

  std::int64_t start_ns;  // CLOCK_MONOTONIC of the rank's host
  std::int64_t end_ns;    // equals start_ns for instants and counters
  std::int64_t step;      // -1 means outside of steps
  std::uint64_t payload;
  std::uint32_t name;
  std::uint32_t operation;
  std::uint32_t sequence;
  std::uint16_t communicator;
  std::uint16_t track;  // thread slot that shows the record, mostly that of the recording thread
  RecordKind kind;
  Category category;
  std::uint16_t details;  // MpiDetail; 0 if the event is not an MPI call of the program
  std::uint32_t peer;
  std::uint64_t check;  // record_check()

  // A collective, with the name of its operation.
  void set_collective(const Collective& what, std::uint32_t operation_name) {
    sequence = what.sequence;
    communicator = what.communicator;
    payload = what.bytes;
    operation = operation_name;
  }
  Collective collective() const { return {sequence, communicator, payload}; }
  // 0 if the record has no operation.
  std::uint32_t operation_name() const { return kind == RecordKind::span && details != 0 ? 0 : operation; }

  // An instant, or a copy of a GPU; 0 if it is not about bytes.
  void set_bytes(std::uint64_t bytes) { payload = bytes; }
  std::uint64_t bytes() const { return payload; }

  // A counter.
  void set_value(double value) { payload = std::bit_cast<std::uint64_t>(value); }
  double value() const { return std::bit_cast<double>(payload); }

  // A span of GPU work: the phase that launched it.
  void set_launched_in(Category phase) {
    communicator = static_cast<std::uint16_t>(1 + static_cast<int>(phase));
  }
  std::optional<Category> launched_in() const {
    if (kind != RecordKind::span || communicator == 0 || communicator > category_names.size())
      return std::nullopt;
    return static_cast<Category>(communicator - 1);
  }

  // How long before its start it was launched, up to 4 s; 0: unknown.
  void set_queued_ns(std::int64_t ns) {
    sequence = static_cast<std::uint32_t>(std::clamp<std::int64_t>(ns, 0, UINT32_MAX));
  }
  std::uint32_t queued_ns() const { return kind == RecordKind::span && details == 0 ? sequence : 0; }

  // A span that is an MPI call of the program, or a copy of a GPU, of which only the bytes are known. Empty
  // for other records.
  void set_mpi_call(const MpiCall& call) {
    const auto set = [this](MpiDetail detail, const auto& value, auto& field) {
      if (!value) return;
      details = static_cast<std::uint16_t>(details | detail);
      field = static_cast<std::remove_reference_t<decltype(field)>>(*value);
    };
    set(has_bytes, call.bytes, payload);
    set(has_peer, call.peer, peer);
    set(has_root, call.root, peer);
    set(has_tag, call.tag, sequence);
    set(has_ranks, call.ranks, operation);
    set(has_requests, call.requests, operation);
    set(has_polls, call.polls > 0 ? &call.polls : nullptr, payload);
  }
  MpiCall mpi_call() const {
    MpiCall call;
    if (kind != RecordKind::span) return call;
    if (details == 0 && payload > 0) call.bytes = payload;
    const auto get = [this]<class Value>(MpiDetail detail, std::optional<Value>& value, auto field) {
      if ((details & detail) != 0) value = static_cast<Value>(field);
    };
    get(has_bytes, call.bytes, payload);
    get(has_peer, call.peer, peer);
    get(has_root, call.root, peer);
    get(has_tag, call.tag, sequence);
    get(has_ranks, call.ranks, operation);
    get(has_requests, call.requests, operation);
    if ((details & has_polls) != 0) call.polls = payload;
    return call;
  }
};
static_assert(sizeof(Record) == 64 && std::is_trivially_copyable_v<Record>);

// Differs if any bit of the record or its place in the thread's sequence differs. The end and the payload of
// polls are not covered, because they grow after the record was written and a kill may come at any moment
// (RecorderRings::extends_last()). It is computed from the fields, which the writer holds in registers;
// reading them back as words would wait for the narrow stores.
inline constexpr std::uint64_t place_factor = 0x9E3779B97F4A7C15u;
inline std::uint64_t record_contents(const Record& r) {
  const auto word = [](std::uint64_t low, std::uint64_t high) { return low | high << 32; };
  const std::uint64_t place = std::uint64_t{r.communicator} | std::uint64_t{r.track} << 16;
  const std::uint64_t kind = static_cast<std::uint64_t>(r.kind) |
                             static_cast<std::uint64_t>(r.category) << 8 | std::uint64_t{r.details} << 16;
  const bool grows = (r.details & Record::has_polls) != 0;
  return static_cast<std::uint64_t>(r.start_ns) ^
         std::rotl(grows ? 0 : static_cast<std::uint64_t>(r.end_ns), 9) ^
         std::rotl(static_cast<std::uint64_t>(r.step), 18) ^ std::rotl(grows ? 0 : r.payload, 27) ^
         std::rotl(word(r.name, r.operation), 36) ^ std::rotl(word(r.sequence, place), 45) ^
         std::rotl(word(kind, r.peer), 54);
}
inline std::uint64_t record_check(const Record& r, std::uint64_t index) {
  return (index + 1) * place_factor ^ record_contents(r);
}
// The place that an undamaged record was written for.
inline std::uint64_t record_index(const Record& r) {
  constexpr std::uint64_t inverse = 0xF1DE83E19937733Du;  // of place_factor, modulo 2^64
  static_assert(place_factor * inverse == 1);
  return (r.check ^ record_contents(r)) * inverse - 1;
}

namespace recorder {

inline constexpr std::array<char, 8> magic = {'F', 'A', 'R', 'A', 'N', 'D', 'O', '1'};
inline constexpr std::uint32_t byte_order = 0x01020304;
inline constexpr std::uint32_t version = 1;
inline constexpr std::uint32_t thread_slots = 32;
inline constexpr std::uint32_t chunk_count = 256;
// A larger number is damage and must not make readers allocate tables of that size.
inline constexpr std::int32_t most_ranks = 1 << 20;
inline constexpr std::size_t longest_name = 512;  // bytes kept of an interned name
// Prefix of a metadata name, "fact: mpi=4.1"; no record uses such a name.
inline constexpr std::string_view fact_mark = "fact: ";
// Metadata: who numbers the steps. "optimizer": nobody but the library, from 0 in each start.
inline constexpr std::string_view steps_fact = "steps";
inline constexpr std::string_view counted_steps = "optimizer";
// Metadata: the rank reports a stall after so many seconds in one collective; 0 means never.
inline constexpr std::string_view stall_seconds_fact = "stall_seconds";
inline constexpr std::size_t smallest_file = 128 << 10;

// Never changes after creation. `crc` is that of crc_of().
struct FixedHeader {
  std::array<char, 8> magic;
  std::uint32_t byte_order;
  std::uint32_t version;
  std::uint32_t record_bytes;
  std::uint32_t thread_slots;
  std::uint32_t chunk_count;
  std::uint32_t chunk_records;
  std::uint64_t threads_offset;
  std::uint64_t names_offset;
  std::uint64_t names_bytes;
  std::uint64_t chunks_offset;
  std::uint64_t file_bytes;
  std::int64_t start_monotonic_ns;
  std::int64_t start_realtime_ns;
  std::int32_t rank;
  std::int32_t world_size;
  std::uint32_t process;
  std::uint32_t clock;         // clock_id(); 0 in files of older writers
  std::array<char, 256> host;  // ends with a zero
  std::uint32_t part_pages;  // Of a part of a node's file, its length; 0 in other files.  Units: 4096 bytes.
  std::uint32_t crc;
};

// The CRC-32 of the bytes before `crc`.
std::uint32_t crc_of(const FixedHeader& header);

// What a reader needs of a whole start, also after the rings have overwritten its records. All zero in files
// of older writers.
struct Totals {
  std::int64_t first_step;      // the first argument of set_step() that is not negative
  std::int64_t first_step_ns;   // CLOCK_MONOTONIC of that call; 0: there was none
  std::int64_t newest_step_ns;  // CLOCK_MONOTONIC of the newest such call
  std::int64_t restoring_ns;    // training thread, in spans of category checkpoint before the first step
  std::int64_t saving_ns;       // the same, after it
};

struct Header {
  FixedHeader fixed;
  alignas(64) std::uint64_t dropped;  // events that found no slot or no chunk
  std::int64_t step;                  // the argument of the last set_step()
  std::int64_t end_monotonic_ns;      // 0 if the recorder was not closed (killed or still running)
  std::uint32_t next_chunk;           // next chunk of the pool; chunk_count if the pool is empty
  std::uint32_t reserved;
  // Bytes of names. Each name is a 16-bit length and that many bytes; ids count from 0.
  alignas(64) std::uint64_t names_used;
  alignas(64) Totals totals;
};
static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) <= 4096);

// A span or collective that has begun. Its record is written when it ends, which a killed
// process does not reach.
struct OpenEvent {
  std::int64_t start_ns;  // 0 while it is being started
  std::uint32_t name;
  std::uint32_t operation;
  std::uint32_t sequence;
  std::uint16_t communicator;
  RecordKind kind;  // span, collective, or none if the thread is in neither
  Category category;
};
static_assert(std::is_trivially_copyable_v<OpenEvent> && sizeof(OpenEvent) == 24);

struct ThreadEntry {
  alignas(64) std::uint64_t head;  // number of records ever written, published after each one
  std::uint32_t chunks_used;
  std::uint32_t in_use;                   // 1 after the slot was assigned
  OpenEvent open;                         // the innermost one; all zero in files of older writers
  alignas(64) std::array<char, 64> name;  // ends with a zero
  std::array<std::uint16_t, chunk_count> chunks;
};
static_assert(std::is_trivially_copyable_v<ThreadEntry> && sizeof(ThreadEntry) == 640);

// A round trip between this rank's clock and rank 0's clock (clock_model.h), so that a file can be
// aligned on its own.
struct ClockSample {
  std::int64_t send_ns;
  std::int64_t reference_ns;
  std::int64_t receive_ns;
  std::uint64_t check;  // clock_check()
};
inline std::uint64_t clock_check(const ClockSample& sample) {
  return 0x9E3779B97F4A7C15u ^ static_cast<std::uint64_t>(sample.send_ns) ^
         std::rotl(static_cast<std::uint64_t>(sample.reference_ns), 21) ^
         std::rotl(static_cast<std::uint64_t>(sample.receive_ns), 42);
}

// The table is between the header and the threads. It is all zero on rank 0 and in files of older writers.
inline constexpr std::size_t clocks_offset = 2048;
struct ClockTable {
  std::array<ClockSample, 64> samples;
};
static_assert(sizeof(Header) <= clocks_offset && clocks_offset + sizeof(ClockTable) <= 4096);

struct Geometry {
  std::size_t threads_offset = 4096;
  std::size_t names_offset = threads_offset + thread_slots * sizeof(ThreadEntry);
  std::size_t names_bytes;
  std::size_t chunks_offset;
  std::uint32_t chunk_records;
  std::size_t file_bytes;

  // The layout of a file of up to `bytes` bytes. `bytes` must be at least smallest_file.
  explicit constexpr Geometry(std::size_t bytes) {
    names_bytes = bytes / 64 < (16u << 10)  ? 16u << 10
                  : bytes / 64 > (1u << 20) ? 1u << 20
                                            : bytes / 64 / 64 * 64;
    chunks_offset = names_offset + names_bytes;
    const std::size_t records = (bytes - chunks_offset) / sizeof(Record) / chunk_count;
    chunk_records = records < UINT32_MAX ? static_cast<std::uint32_t>(records) : UINT32_MAX;
    file_bytes = chunks_offset + std::size_t{chunk_records} * chunk_count * sizeof(Record);
  }
};
static_assert(Geometry(smallest_file).chunk_records >= 2);

}  // namespace recorder
}  // namespace farandole
