// A whole training run, from its options to its last checkpoint. Called by every rank, on the main thread.
#pragma once

#include "farandole/train/session.h"
#include "farandole/train/train_options.h"

namespace farandole {

// Collective. `options` are checked; returns the exit code. Failures that all ranks know of end in order
// (Session::together).
int train(Session& session, TrainOptions options, int argc, const char* const* argv);

}  // namespace farandole
