#include "farandole/comm/watch/status_board.h"

#include <array>
#include <cstring>
#include <utility>

namespace farandole {

namespace {
constexpr std::size_t status_words = sizeof(RankStatus) / 8;
constexpr std::uint64_t question_bit = std::uint64_t{1} << 63;
}  // namespace

// New memory is zero, which is a valid state of every field.
struct StatusBoard::Header {
  std::atomic<std::uint64_t> token;     // of the arena
  std::atomic<std::uint64_t> question;  // `question_bit` | communicator << 32 | sequence
  std::atomic<std::int64_t> asked_ns;
  std::atomic<std::uint32_t> ending;
  std::atomic<std::uint32_t> loss_state;  // 0 none, 1 being written, 2 complete
  LostRank lost;
};

// There are two copies. The copy that is not being written is complete, even if the writer was stopped or
// killed while it wrote the other one. Status n is in copy n % 2, which changes again only after `published`
// has become n + 1. Stores with release and loads with acquire ensure that a reader that sees a later word
// also sees this change.
struct alignas(64) StatusBoard::Slot {
  std::atomic<std::uint32_t> published;
  std::atomic<std::uint32_t> left;
  std::atomic<std::int64_t> published_ns;
  std::array<std::array<std::atomic<std::uint64_t>, status_words>, 2> copies;
};

std::size_t StatusBoard::bytes_for(std::size_t slots) {
  return sizeof(Header) + (slots + 1) * sizeof(Slot);
}

std::unique_ptr<StatusBoard> StatusBoard::create(std::size_t slots) {
  auto arena = SharedArena::create(bytes_for(slots), bytes_for(slots));
  std::byte* const memory = arena->data();
  return std::unique_ptr<StatusBoard>(new StatusBoard(std::move(arena), nullptr, memory, slots));
}

std::unique_ptr<StatusBoard> StatusBoard::open(const ArenaAddress& address, std::size_t slots) {
  auto mapping = map_peer(address);
  std::byte* const memory = mapping->data();
  return std::unique_ptr<StatusBoard>(new StatusBoard(nullptr, std::move(mapping), memory, slots));
}

std::unique_ptr<StatusBoard> StatusBoard::alone() {
  auto mapping = std::make_unique<ArenaMapping>(-1, bytes_for(1));
  std::byte* const memory = mapping->data();
  return std::unique_ptr<StatusBoard>(new StatusBoard(nullptr, std::move(mapping), memory, 1));
}

StatusBoard::StatusBoard(std::shared_ptr<SharedArena> arena, std::unique_ptr<ArenaMapping> mapping,
                         std::byte* memory, std::size_t slots)
    : arena_(std::move(arena)),
      mapping_(std::move(mapping)),
      slots_(slots),
      header_(reinterpret_cast<Header*>(memory)) {}

StatusBoard::Slot& StatusBoard::slot(std::size_t index) const {
  constexpr auto header_bytes = (sizeof(Header) + alignof(Slot) - 1) / alignof(Slot) * alignof(Slot);
  auto* first = reinterpret_cast<std::byte*>(header_) + header_bytes;
  return reinterpret_cast<Slot*>(first)[index];
}

void StatusBoard::publish(std::size_t index, const RankStatus& status, std::int64_t now_ns) {
  std::array<std::uint64_t, status_words> words;
  std::memcpy(words.data(), &status, sizeof status);
  Slot& to = slot(index);
  const auto number = to.published.load(std::memory_order_relaxed) + 1;
  for (std::size_t i = 0; i < words.size(); ++i)
    to.copies[number % 2][i].store(words[i], std::memory_order_release);
  to.published.store(number, std::memory_order_release);
  to.published_ns.store(now_ns, std::memory_order_relaxed);
}

RankStatus StatusBoard::read(std::size_t index) const {
  const Slot& from = slot(index);
  std::array<std::uint64_t, status_words> words{};
  constexpr int enough = 10'000;  // its writer writes only a few times per second
  for (int attempt = 0; attempt < enough; ++attempt) {
    const auto number = from.published.load(std::memory_order_acquire);
    if (number == 0) return {};
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = from.copies[number % 2][i].load(std::memory_order_acquire);
    if (from.published.load(std::memory_order_relaxed) == number) break;
  }
  RankStatus status;
  std::memcpy(static_cast<void*>(&status), words.data(), sizeof status);
  return status;
}

std::int64_t StatusBoard::published_ns(std::size_t index) const {
  return slot(index).published_ns;
}

void StatusBoard::leave(std::size_t index) {
  slot(index).left = 1;
}

bool StatusBoard::left(std::size_t index) const {
  return slot(index).left != 0;
}

void StatusBoard::ask(const CallKey& stalled, std::int64_t now_ns) {
  header_->asked_ns = now_ns;
  header_->question = question_bit | std::uint64_t{stalled.communicator} << 32 | stalled.sequence;
}

std::optional<StatusBoard::Question> StatusBoard::question() const {
  const std::uint64_t word = header_->question;
  if (word == 0) return std::nullopt;
  return Question{
      {static_cast<std::uint32_t>((word & ~question_bit) >> 32), static_cast<std::uint32_t>(word)},
      header_->asked_ns};
}

void StatusBoard::post_loss(const LostRank& lost) {
  std::uint32_t none = 0;
  if (!header_->loss_state.compare_exchange_strong(none, 1)) return;
  header_->lost = lost;
  header_->loss_state = 2;
}

std::optional<LostRank> StatusBoard::loss() const {
  if (header_->loss_state != 2) return std::nullopt;
  return header_->lost;
}

bool StatusBoard::post_ending() {
  return header_->ending.exchange(1) == 0;
}

bool StatusBoard::ending() const {
  return header_->ending != 0;
}

}  // namespace farandole
