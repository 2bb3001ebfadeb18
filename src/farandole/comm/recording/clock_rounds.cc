#include "farandole/comm/recording/clock_rounds.h"

#include <pthread.h>
#include <sched.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/quiet_thread.h"

namespace farandole {
namespace {

using namespace std::chrono_literals;

constexpr auto look_for_questions = 200ms;
constexpr auto questions_follow_within = 20ms;  // the asking thread may have to wait for a core
constexpr auto first_answer_takes = 5s;         // rank 0's thread sleeps
constexpr auto answer_takes = 20ms;
constexpr int round_trips = 40;

struct Question {
  std::uint64_t number;  // 0 means that no more follow
};
struct Answer {
  std::uint64_t number;
  std::int64_t time_ns;
};

}  // namespace

ClockRounds::ClockRounds(std::unique_ptr<MessageChannel> channel, std::chrono::nanoseconds pause,
                         std::function<void(const RoundTrip&)> take)
    : channel_(std::move(channel)), pause_(pause), take_(std::move(take)) {
  thread_ = start_quiet_thread([this] {
    ::pthread_setname_np(::pthread_self(), "clock rounds");
    try {
      channel_->rank() == 0 ? answer() : ask();
    } catch (const Error&) {  // an MPI error means that a peer is lost; the watchdog reports it
    }
  });
}

ClockRounds::~ClockRounds() {
  stop_.stop();
  thread_.join();
}

void ClockRounds::answer() {
  while (stop_.sleep(look_for_questions)) {
    answer_some();
    auto last = Clock::now();
    while (!asking_.empty() && Clock::now() - last < questions_follow_within) {
      if (answer_some())
        last = Clock::now();
      else
        ::sched_yield();
    }
    asking_.clear();
  }
}

bool ClockRounds::answer_some() {
  const auto message = channel_->receive_any();
  if (!message) return false;
  const auto question = value_of<Question>(message->bytes);
  if (!question || question->number == 0) {
    asking_.erase(message->from);
  } else {
    channel_->send(message->from, bytes_of(Answer{question->number, now_ns()}));
    asking_.insert(message->from);
  }
  return true;
}

void ClockRounds::ask() {
  // Spreads the ranks over the pause, so that they do not all ask at the same time.
  const auto share = pause_ * channel_->rank() / channel_->size();
  if (!stop_.sleep(share)) return;
  do {
    if (const auto shortest = shortest_of_some()) take_(*shortest);
  } while (stop_.sleep(pause_));
}

std::optional<RoundTrip> ClockRounds::shortest_of_some() {
  if (!round_trip(first_answer_takes, true)) return std::nullopt;  // wakes rank 0
  std::optional<RoundTrip> shortest;
  const auto took = [](const RoundTrip& trip) { return trip.receive_ns - trip.send_ns; };
  for (int i = 0; i < round_trips; ++i) {
    const auto trip = round_trip(answer_takes, false);
    if (!trip) break;
    if (!shortest || took(*trip) < took(*shortest)) shortest = trip;
  }
  channel_->send(0, bytes_of(Question{0}));
  return shortest;
}

std::optional<RoundTrip> ClockRounds::round_trip(std::chrono::nanoseconds patience, bool naps) {
  const Question question{++asked_};
  RoundTrip trip;
  trip.send_ns = now_ns();
  channel_->send(0, bytes_of(question));
  const auto end = Clock::now() + patience;
  while (Clock::now() < end) {
    const auto message = channel_->receive_any();
    const auto answer = message ? value_of<Answer>(message->bytes) : std::nullopt;
    if (answer && answer->number == question.number) {
      trip.receive_ns = now_ns();
      trip.reference_ns = answer->time_ns;
      return trip;
    }
    if (message) continue;
    if (naps ? !stop_.sleep(1ms) : ::sched_yield() != 0) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace farandole
