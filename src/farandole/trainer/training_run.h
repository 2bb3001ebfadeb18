// A whole training run, from its options to its last checkpoint. Called by every rank, on the main thread.
#pragma once

#include <functional>

#include "farandole/train/session.h"
#include "farandole/trainer/train_options.h"

namespace farandole {

// Collective. `options` are checked; returns the exit code. Failures that all ranks know of end in order
// (Session::together). Where `stop_requested` says so on any rank, all save a checkpoint and return 75.
int train(Session& session, TrainOptions options, int argc, const char* const* argv,
          std::function<bool()> stop_requested);

}  // namespace farandole
