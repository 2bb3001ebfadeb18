// What this process, and its host's network, have used since they began, as the system counts it. Usable from
// any thread.
#pragma once

#include <cstdint>
#include <optional>

namespace farandole {

struct ProcessCounters {
  std::int64_t cpu_ns = 0;  // of all threads, those of libraries included
  std::int64_t page_faults = 0;
  std::int64_t major_page_faults = 0;  // that waited for a disk
  std::int64_t context_switches = 0;   // because a thread waited
  std::int64_t preemptions = 0;        // because another process or thread was to run
  std::optional<std::int64_t> file_read_bytes, file_written_bytes;  // from and to storage, not the page cache
  // Of the host, all of its processes: every network interface but loopback, and InfiniBand ports.
  std::optional<std::int64_t> network_received_bytes, network_sent_bytes;

  static ProcessCounters read();
};

std::optional<double> resident_mib();

}  // namespace farandole
