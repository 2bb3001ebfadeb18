// Writes the reports of a run when its job has ended (farandole run --report).
// Thread safety: none; use from one thread at a time.
#pragma once

#include <chrono>
#include <filesystem>

namespace farandole {

// Writes RUN/report.txt (why the job ended if it failed, and where the time went) and RUN/report.html. A
// trace that the ranks could not write is first made from their recorders. Prints a message about what is
// missing, for example because `patience` is over.
void write_run_report(const std::filesystem::path& run, int exit_code, std::chrono::seconds patience);

}  // namespace farandole
