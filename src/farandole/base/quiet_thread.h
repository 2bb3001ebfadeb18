// Starts helper threads that do not disturb the threads of the program.
// Thread safety: any thread may call this at any time.
#pragma once

#include <functional>
#include <thread>

namespace farandole {

// Starts a thread that blocks all signals, because the program's signals are for the program's own threads.
std::thread start_quiet_thread(std::function<void()> body);

}  // namespace farandole
