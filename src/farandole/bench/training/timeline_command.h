// farandole bench timeline: what recording and merging cost. With LibTorch, which the file in train/ has,
// also what they add to training steps. One rank's main.
#pragma once

namespace farandole {

// argv[1] is "timeline". Throws Error. Returns the exit code.
int timeline_command(int argc, const char* const* argv);

}  // namespace farandole
