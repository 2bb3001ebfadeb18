// Resources that this process and its host's network have used since they started, as the system counts them.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>

namespace farandole {

struct ProcessCounters {
  std::int64_t cpu_ns = 0;  // of all threads, including those of libraries
  std::int64_t page_faults = 0;
  std::int64_t major_page_faults = 0;  // page faults that waited for a disk
  std::int64_t context_switches = 0;   // switches because a thread waited
  std::int64_t preemptions = 0;        // switches to another thread or process that was due to run
  // From and to storage, without the page cache.
  std::optional<std::int64_t> file_read_bytes, file_written_bytes;
  // Of the whole host with all its processes: all network interfaces except loopback, and InfiniBand ports.
  std::optional<std::int64_t> network_received_bytes, network_sent_bytes;

  static ProcessCounters read();
};

std::optional<double> resident_mib();

}  // namespace farandole
