// Threads of Farandole's own beside those of the program. Usable from any thread.
#pragma once

#include <functional>
#include <thread>

namespace farandole {

// A thread that no signal is delivered to: those of the program are for its own threads.
std::thread start_quiet_thread(std::function<void()> body);

}  // namespace farandole
