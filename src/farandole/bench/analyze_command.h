// farandole bench analyze: how fast a trace becomes a verdict, beside the libraries that read it. Used by one
// thread.
#pragma once

namespace farandole {

// Throws UserError for wrong options, CorruptInput for a trace that cannot be read. Returns the exit code.
int analyze_command(int argc, const char* const* argv);

}  // namespace farandole
