// farandole bench timeline: what recording and merging cost. Used by one thread.
#pragma once

namespace farandole {

// Throws UserError for wrong options. Returns the exit code.
int timeline_command(int argc, const char* const* argv);

}  // namespace farandole
