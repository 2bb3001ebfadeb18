// The lines of Python that the training thread executes, if this process is Python. Its faulthandler writes
// them even while the GIL is held.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace farandole {

struct PythonFrame {
  std::string function, file;
  int line = 0;

  std::string text() const;   // "fetch at data/loader.py:118"
  std::string place() const;  // "data/loader.py:118 in fetch"
};

// Python has called faulthandler.register(signal, file, all_threads=False). Stacks of this process then have
// its lines. The file becomes ours: it is emptied whenever a stack is taken.
// Throws: UserError if the signal has no handler or the file cannot be emptied.
// Thread safety: any thread may call this at any time. The other functions belong to ThreadProbe.
void watch_python(int signal, int file);
bool python_is_watched() noexcept;

void empty_python_stack() noexcept;
// Lets Python write the stack of the calling thread. Async-signal-safe.
void write_python_stack() noexcept;
std::vector<PythonFrame> read_python_stack();

// The frames in what faulthandler has written, innermost first.
std::vector<PythonFrame> parse_python_stack(std::string_view text);
// The innermost line that belongs to the user's program, not to an installed package; if there is none, the
// innermost line. "" without frames.
std::string place_in_program(const std::vector<PythonFrame>& frames);

}  // namespace farandole
