// A command line of farandole fit, and one rank of a fit.
// Thread safety: call from the training thread only.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "farandole/base/error.h"
#include "farandole/estimator/estimator.h"

namespace farandole {

struct FitArguments {
  EstimatorOptions options;
  std::string table;         // Empty if none is given.
  bool only_checks = false;  // The options were to be checked.
};
// Parses a command line. Returns std::nullopt after it has printed the text of --help or --version.
// Throws: UserError as OptionParser and EstimatorOptions::check().
std::optional<FitArguments> parse_fit(int argc, const char* const* argv);

// Trains, and keeps the result in the store. Continues the run that open_fit() finds. If `stop` returns true
// on any rank, all ranks save a checkpoint and return ExitCode::preempted.
// Throws: UserError and CorruptInput on all ranks if model, table and options do not fit together.
// Collective: every rank of the job must call this in the same order.
ExitCode fit_on_rank(Session& session, const EstimatorOptions& options, const std::string& table,
                     const std::function<bool()>& stop, std::string& run);

}  // namespace farandole
