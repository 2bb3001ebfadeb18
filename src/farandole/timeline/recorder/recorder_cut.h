// Gives back the disk space that recorders have allocated and not used. Each recorder allocates its whole
// size at the start, so that recording never meets a full disk; most runs use a small part of it.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>

namespace farandole {

// Protects the recorder's file from cut_recorder() as long as the descriptor is open, also if this process is
// killed. Does nothing if the file system has no locks.
void protect_recorder(int fd) noexcept;

// Takes a lock that lasts until the descriptor, which is open for writing, is closed. Returns false if
// another process has protected the file or taken this lock, or if the file system has no locks.
bool claim_file(int fd) noexcept;

// Makes holes of what the file does not use and ends it after its last record. All readers can still read it,
// also those of earlier versions. Its time of modification stays. The writer may be this process, which has
// unmapped the file, or one that has ended. Returns false, and changes nothing, if another process still
// records into the file, if the file is damaged, or if it cannot be written.
bool cut_recorder(const std::filesystem::path& file) noexcept;

// Cuts the recorders of a run whose rank is `part` modulo `parts`. The ranks of a job share those of an
// earlier start in this way.
void cut_recorders(const std::filesystem::path& run_dir, int part = 0, int parts = 1) noexcept;

}  // namespace farandole
