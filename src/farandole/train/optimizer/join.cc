#include "farandole/train/join.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <thread>

#include "farandole/train/collectives_internals.h"

namespace farandole {
namespace {

JoinCommunicator& joinable(TensorCollectives& ranks) {
  return *ranks.internals().communicator;
}

using Shadow = std::function<std::size_t()>;

// Runs each on its own thread, because the other ranks may call them in any order. The first
// runs on this thread.
std::vector<std::size_t> run_together(const std::vector<Shadow>& shadows) {
  std::vector<std::size_t> counts(shadows.size());
  std::vector<std::exception_ptr> failures(shadows.size());
  const auto run = [&](std::size_t i) {
    try {
      counts[i] = shadows[i]();
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < shadows.size(); ++i) threads.emplace_back(run, i);
  run(0);
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures)
    if (failure != nullptr) std::rethrow_exception(failure);
  return counts;
}

}  // namespace

Join::Join(Session& session, std::vector<DistributedOptimizer*> optimizers, std::vector<Group*> groups,
           JoinOptions options)
    : session_(session),
      optimizers_(std::move(optimizers)),
      groups_(std::move(groups)),
      exceptions_at_start_(std::uncaught_exceptions()) {
  for (auto* optimizer : optimizers_) optimizer->join(options.divide_by_all);
  for (auto* group : groups_)
    if (group != nullptr) joinable(*group).join(options.divide_by_all);
  joinable(session_).join(options.divide_by_all);
}

Join::~Join() noexcept(false) {
  if (std::uncaught_exceptions() == exceptions_at_start_) finish();
}

int Join::finish() {
  if (last_ >= 0) return last_;
  last_ = session_.rank();  // If the rest fails, the destructor must not try again.
  std::vector<Shadow> shadows;
  for (auto* optimizer : optimizers_) shadows.push_back([optimizer] { return optimizer->shadow(); });
  shadows.push_back([this] { return joinable(session_).shadow(); });
  const auto counted = static_cast<std::ptrdiff_t>(shadows.size());
  for (auto* group : groups_)
    if (group != nullptr) shadows.push_back([group] { return joinable(*group).shadow(); });
  const auto counts = run_together(shadows);
  // The rank that took part in the fewest steps and collectives of others had batches longest.
  std::int64_t own = 0;
  for (auto i = counts.begin(); i != counts.begin() + counted; ++i) own += static_cast<std::int64_t>(*i);
  const auto all = session_.all_gather(torch::tensor({own}, torch::kInt64));
  last_ = static_cast<int>(all.argmin().item<std::int64_t>());
  return last_;
}

}  // namespace farandole
