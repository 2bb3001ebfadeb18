// The run directory of a supervised rank. If the launcher does not know it, the supervisor asks the program
// of the rank for it: the run-directory handshake (base/run/run_files.h).
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "farandole/base/files/file_bytes.h"
#include "farandole/launch/records/launch_folder.h"

namespace farandole {

class SupervisedRun {
 public:
  // `known` is the launcher's knowledge.
  SupervisedRun(LaunchedRun known, int rank);
  // Returns a change of the program's environment: asks for the run directory, if the launcher does not know
  // it, and otherwise removes the question of an outer launcher.
  std::pair<std::string, std::optional<std::string>> question() const;
  // Returns an empty path if nobody knows the folder, or if it no longer exists.
  const std::filesystem::path& folder();
  // Copies the recorder file from this node, because SIGKILL may follow for this process and for the rank.
  // Ignores errors: if they persist, bring_recorder() reports them.
  void save_recorder();
  // Moves the recorder file of a killed rank from this node. A rank that was not killed has moved
  // its own file.
  // Throws: Error if this fails.
  void bring_recorder();
  // Writes the record of the rank's end, with the run directory that the program has named.
  void end(RankRecord& record);

 private:
  const int rank_;
  // The program's answer, in a file without a name. It vanishes with the process, however that ends.
  OwnedDescriptor answer_;
  LaunchedRun run_;
  LaunchFolder launch_folder_;
};

}  // namespace farandole
