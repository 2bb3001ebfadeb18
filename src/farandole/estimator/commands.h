// The commands farandole fit, transform, evaluate, runs and model. main calls one of them once.
// Thread safety: none; use from one thread at a time.
#pragma once

namespace farandole {

// Each reads its options, does its work, and returns the exit code. Errors are printed on stderr in one line.
// fit, transform and evaluate start -n ranks, unless they already run on a rank.
int fit_command(int argc, const char* const* argv);
int transform_command(int argc, const char* const* argv);
int evaluate_command(int argc, const char* const* argv);
int runs_command(int argc, const char* const* argv);
int model_command(int argc, const char* const* argv);

}  // namespace farandole
