#include "farandole/timeline/recorder/page_guard.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

namespace farandole {
namespace {

// A signal handler can reach only static objects, and may use only system calls and lock-free atomics.
struct Mapping {
  std::atomic<bool> taken{false};
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::atomic<std::atomic<bool>*> replaced{nullptr};  // By page.
  std::atomic<bool> busy{false};                      // A thread is replacing a page.
};
constinit std::array<Mapping, PageGuard::most> mappings;
constinit std::atomic<std::uintptr_t> page_bytes{0};
struct sigaction handler_before;

// Returns false if the address is not in a guarded mapping, or if there is no memory.
bool replace_page(std::uintptr_t address) {
  const std::uintptr_t bytes = page_bytes.load(), page = address & ~(bytes - 1);
  for (Mapping& mapping : mappings) {
    if (address < mapping.begin.load() || address >= mapping.end.load()) continue;
    if (mapping.busy.exchange(true)) return true;  // The write is repeated until the other thread is done.
    // The other thread may have replaced this page before this handler began.
    std::atomic<bool>& done = mapping.replaced.load()[(page - mapping.begin.load()) / bytes];
    void* const copy =
        done.load() ? MAP_FAILED
                    : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy != MAP_FAILED) {
      // If the page cannot be read either, this call fails and the copy stays zero. A load
      // would raise SIGBUS.
      const iovec to{copy, bytes}, from{reinterpret_cast<void*>(page), bytes};
      [[maybe_unused]] const auto ignored = ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0);
      done.store(::mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, from.iov_base) != MAP_FAILED);
    }
    mapping.busy.store(false);
    return done.load();
  }
  return false;
}

void handle_bus_error(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool replaced = replace_page(reinterpret_cast<std::uintptr_t>(info->si_addr));
  errno = error;
  if (replaced) return;
  if ((handler_before.sa_flags & SA_SIGINFO) != 0) return handler_before.sa_sigaction(signal, info, context);
  if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN)
    return handler_before.sa_handler(signal);
  ::signal(SIGBUS, SIG_DFL);  // The write is repeated and ends the process.
}

bool install_handler() {
  page_bytes.store(static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)));
  struct sigaction action {};
  action.sa_sigaction = handle_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  return ::sigaction(SIGBUS, &action, &handler_before) == 0;
}

}  // namespace

PageGuard::PageGuard(std::byte* base, std::size_t bytes) {
  [[maybe_unused]] static const bool installed = install_handler();
  pages_ = (bytes + page_bytes - 1) / page_bytes;
  replaced_ = std::make_unique<std::atomic<bool>[]>(pages_);
  while (slot_ < most && mappings[slot_].taken.exchange(true)) ++slot_;
  if (slot_ == most) return;
  Mapping& mapping = mappings[slot_];
  mapping.replaced.store(replaced_.get());
  mapping.busy.store(false);
  mapping.begin.store(reinterpret_cast<std::uintptr_t>(base));
  mapping.end.store(reinterpret_cast<std::uintptr_t>(base) + bytes);
}

PageGuard::~PageGuard() {
  if (slot_ == most) return;
  mappings[slot_].end.store(0);
  mappings[slot_].taken.store(false);
}

std::size_t PageGuard::lost_bytes() const {
  return page_bytes * static_cast<std::size_t>(std::count(replaced_.get(), replaced_.get() + pages_, true));
}

}  // namespace farandole
