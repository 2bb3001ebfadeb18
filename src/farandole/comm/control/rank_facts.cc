#include "farandole/comm/control/rank_facts.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/host.h"

namespace farandole {
namespace {

std::uint64_t hash_of(const std::string& text) {
  return XXH3_64bits(text.data(), text.size());
}

// Processes in different namespaces cannot open each other's memory or Unix sockets without a file.
std::string namespaces() {
  std::string text;
  for (const char* const name : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    struct stat facts {};
    ::stat(name, &facts);
    text += fmt::format(" {}", facts.st_ino);
  }
  return text;
}

struct Fixed {
  std::uint64_t node, machine;
  std::uint32_t clock;
  std::uint16_t host_bytes, addresses;
};
// Enough for IPv4 and IPv6.
struct PackedAddress {
  std::byte address[sizeof(sockaddr_in6)], mask[sizeof(sockaddr_in6)];
  std::int32_t speed;
  std::uint32_t loopback;
};

template <class T>
void append_value(std::vector<std::byte>& to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

std::span<const std::byte> take_bytes(std::span<const std::byte>& from, std::size_t count) {
  if (from.size() < count) throw Error("a rank has sent damaged facts about itself");
  const auto taken = from.first(count);
  from = from.subspan(count);
  return taken;
}

template <class T>
T take_value(std::span<const std::byte>& from) {
  T value;
  std::memcpy(&value, take_bytes(from, sizeof value).data(), sizeof value);
  return value;
}

}  // namespace

RankFacts own_facts() {
  const auto host = host_name(), boot = boot_id();
  return {host.substr(0, 255), hash_of(host + " " + boot + namespaces()), hash_of(boot), clock_id(), {}};
}

void append(std::vector<std::byte>& to, const RankFacts& facts) {
  append_value(to,
               Fixed{facts.node, facts.machine, facts.clock, static_cast<std::uint16_t>(facts.host.size()),
                     static_cast<std::uint16_t>(facts.addresses.size())});
  const auto host = std::as_bytes(std::span(facts.host));
  to.insert(to.end(), host.begin(), host.end());
  for (const auto& address : facts.addresses) {
    PackedAddress packed{};
    std::memcpy(packed.address, &address.address, sizeof packed.address);
    std::memcpy(packed.mask, &address.mask, sizeof packed.mask);
    packed.speed = static_cast<std::int32_t>(std::min(address.speed, 1'000'000'000L));
    packed.loopback = address.loopback ? 1 : 0;
    append_value(to, packed);
  }
}

RankFacts take_facts(std::span<const std::byte>& bytes) {
  const auto fixed = take_value<Fixed>(bytes);
  RankFacts facts{"", fixed.node, fixed.machine, fixed.clock, {}};
  const auto host = take_bytes(bytes, fixed.host_bytes);
  facts.host.assign(reinterpret_cast<const char*>(host.data()), host.size());
  for (int i = 0; i < fixed.addresses; ++i) {
    const auto packed = take_value<PackedAddress>(bytes);
    auto& address = facts.addresses.emplace_back();
    std::memcpy(&address.address, packed.address, sizeof packed.address);
    std::memcpy(&address.mask, packed.mask, sizeof packed.mask);
    address.speed = packed.speed;
    address.loopback = packed.loopback != 0;
  }
  return facts;
}

}  // namespace farandole
