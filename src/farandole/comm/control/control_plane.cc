#include "farandole/comm/control/control_plane.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <random>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <xxhash.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/process/launch_environment.h"
#include "farandole/base/process/quiet_thread.h"

namespace farandole {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view version_of_protocol = "farandole-1-";
// Channels of this class. The others have the highest bit.
constexpr ControlPlane::Channel hello = 1, book_of_ranks = 2, time_question = 3, time_answer = 4,
                                end_of_job = 5;
constexpr ControlPlane::Channel given = ControlPlane::Channel{1} << 63;

// For all addresses of a rank. While a busy node makes and removes network namespaces, first packets of
// connections were lost for seconds.
constexpr auto connect_limit = 30s;
constexpr auto unreachable_limit = 10s;  // for rank 0, from when it was found
constexpr auto greeting_limit = 5s;      // a stranger may say nothing
constexpr int most_strangers = 256;      // that have said nothing yet
constexpr auto time_follows = 200us;
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 31;

// The first bytes of each connection; the answer has the token's complement.
struct Greeting {
  std::uint64_t token = 0;
  std::uint64_t number = 0;  // of connect(); 0: it carries messages
  std::int32_t from = 0, to = 0;
};

struct TimeAnswer {
  std::uint64_t number = 0;
  std::int64_t reference_ns = 0, received_ns = 0;  // the latter is set where it arrives
};

OwnedDescriptor listen_at(const UnixName& name) {
  OwnedDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes) != 0 ||
      ::listen(socket.get(), 4096) != 0)
    throw Error(fmt::format("the ranks cannot meet: a Unix socket cannot be made: {}", std::strerror(errno)));
  return socket;
}

bool is_unix(int socket) {
  int domain = 0;
  socklen_t bytes = sizeof domain;
  return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

bool may_retry(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

struct ControlPlane::FrameHead {
  Channel channel = 0;
  std::uint64_t bytes = 0;
};

struct ControlPlane::Way {
  Way(const void* to, socklen_t length) : bytes(length) { std::memcpy(&address, to, length); }
  sockaddr_storage address{};
  socklen_t bytes;
};

struct ControlPlane::Connection {
  OwnedDescriptor socket;
  Kind kind = Kind::stranger;
  int peer = any;
  std::uint64_t number = 0;
  std::vector<Way> ways{};  // to try after the present one
  Clock::time_point until = Clock::time_point::max();
  std::deque<std::vector<std::byte>> out{};
  std::size_t out_done = 0;  // bytes of out.front()
  // The message, greeting or answer that is arriving.
  FrameHead head{};
  std::vector<std::byte> in{};
  std::size_t in_done = 0;
  bool in_body = false;

  // Fills `in`. Returns false if it is not full yet, and closes() if nothing more will come.
  bool fill(std::size_t bytes) {
    in.resize(bytes);
    while (in_done < bytes) {
      const auto got = ::recv(socket.get(), in.data() + in_done, bytes - in_done, 0);
      if (got <= 0) {
        over = got == 0 || !may_retry(errno);
        return false;
      }
      in_done += static_cast<std::size_t>(got);
    }
    in_done = 0;
    return true;
  }
  bool over = false;
};

ControlPlane::ControlPlane(Start start)
    : rank_(start.rank),
      size_(start.size),
      meeting_(std::move(start.meeting)),
      obeys_(start.obeys),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      woken_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      ranks_(static_cast<std::size_t>(size_)) {
  if (size_ > 1 && rank_ == 0)
    allow_open_files(static_cast<std::size_t>(size_) + most_strangers, "raise ulimit -n");
  if (epoll_.get() < 0 || woken_.get() < 0) throw Error("too many open files; raise ulimit -n");
  std::random_device random;
  for (auto* number : {&token_, &name_}) *number = (std::uint64_t{random()} << 32) | random();
  auto& own = ranks_[static_cast<std::size_t>(rank_)];
  own = std::move(start.facts);
  add(OwnedDescriptor(::dup(woken_.get())), Kind::wake);
  if (start.several_nodes && size_ > 1) {
    own.addresses = own_addresses();
    for (auto& listener : farandole::listen_at(own.addresses)) add(std::move(listener), Kind::listener);
    if (own.addresses.empty())
      throw UserError(fmt::format(
          "{} has no address at which it can listen for TCP; see FARANDOLE_INTERFACE and `ip address`",
          own.host));
  }
  if (rank_ == 0 && size_ > 1) {
    add(listen_at(UnixName(name_of(0))), Kind::listener);
    if (!meeting_.on_node.empty()) add(listen_at(UnixName(meeting_.on_node)), Kind::invites);
  }
  thread_ = start_quiet_thread([this] { run(); });
}

ControlPlane::~ControlPlane() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake();
  thread_.join();
}

std::string ControlPlane::name_of(int rank) const {
  return fmt::format("farandole-{:016x}-{}", name_, rank);
}

std::string ControlPlane::invitation() const {
  std::vector<std::byte> facts;
  append(facts, ranks_.front());
  std::string text = fmt::format("{}{:016x}{:016x}", version_of_protocol, token_, name_);
  for (const auto byte : facts) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

void ControlPlane::read_invitation(const std::string& text) {
  std::vector<std::byte> facts;
  unsigned byte = 0;
  if (!text.starts_with(version_of_protocol) ||
      std::sscanf(text.c_str() + version_of_protocol.size(), "%16lx%16lx", &token_, &name_) != 2)
    throw Error("rank 0 has another version of Farandole, or its invitation is damaged");
  for (auto at = version_of_protocol.size() + 32;
       at + 1 < text.size() && std::sscanf(text.c_str() + at, "%2x", &byte) == 1; at += 2)
    facts.push_back(static_cast<std::byte>(byte));
  std::span<const std::byte> rest(facts);
  ranks_.front() = take_facts(rest);
}

void ControlPlane::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  arrived_.notify_all();
}

bool ControlPlane::stopped() {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

void ControlPlane::join(std::optional<std::chrono::nanoseconds> limit) {
  if (size_ == 1) return;
  std::optional<Clock::time_point> until;
  if (limit) until = Clock::now() + *limit;
  if (rank_ != 0) return join_others(until);
  meeting_.publish(invitation());
  for (std::set<int> heard{0}; static_cast<int>(heard.size()) < size_;) {
    const auto message = wait(hello, any, until);
    if (!message) break;
    heard.insert(message->from);
    std::span<const std::byte> bytes(message->bytes);
    auto facts = take_facts(bytes);
    const std::lock_guard lock(mutex_);
    ranks_[static_cast<std::size_t>(message->from)] = std::move(facts);
  }
  std::vector<std::byte> book;
  for (const auto& facts : ranks_) append(book, facts);
  const std::lock_guard lock(mutex_);
  book_ = std::move(book);
  send_book();
}

// The file may be that of an earlier start of the job, whose rank 0 cannot be reached.
void ControlPlane::join_others(std::optional<Clock::time_point> until) {
  std::string tried;
  Clock::time_point found;  // the invitation that is tried
  bool meets_again = false;
  for (auto pause = 2ms;; pause = std::min(2 * pause, 50ms)) {
    const auto text = meeting_.look();
    if (text && *text != tried) found = Clock::now();
    if (text && (std::exchange(meets_again, false) || *text != tried)) meet(tried = *text);
    if (const auto book = wait(book_of_ranks, any, Clock::now() + pause)) return read_book(book->bytes);
    const std::lock_guard lock(mutex_);
    if (std::exchange(lost_, {}).contains(0)) {
      if (Clock::now() - found > unreachable_limit)
        throw Error(fmt::format("no connection to rank 0 on {} can be made", ranks_.front().host),
                    ExitCode::peer_lost);
      meets_again = true;
    }
    if (until && Clock::now() >= *until) throw Error("rank 0 has not come", ExitCode::peer_lost);
  }
}

void ControlPlane::meet(const std::string& invitation) {
  std::vector<std::byte> own;
  {
    const std::lock_guard lock(mutex_);
    const auto name = name_;
    read_invitation(invitation);
    if (name_ != name) add(listen_at(UnixName(name_of(rank_))), Kind::listener);
    append(own, ranks_[static_cast<std::size_t>(rank_)]);
    lost_.erase(0);
  }
  send(0, hello, own);
}

void ControlPlane::read_book(std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  book_.assign(bytes.begin(), bytes.end());
  for (auto& facts : ranks_) facts = take_facts(bytes);
  send_book();
}

// Rank 0 tells the first rank of each node, and this one the others of its node.
void ControlPlane::send_book() {
  std::set<std::uint64_t> told;
  const auto own_node = ranks_[static_cast<std::size_t>(rank_)].node;
  for (int rank = 0; rank < size_; ++rank) {
    const auto& facts = ranks_[static_cast<std::size_t>(rank)];
    const bool is_first = told.insert(facts.node).second;
    if (rank == rank_ || facts.host.empty()) continue;
    const bool tells = facts.node == own_node ? first_of(own_node) == rank_ : rank_ == 0 && is_first;
    if (tells) push(dial_if_needed(rank), book_of_ranks, book_);
  }
}

int ControlPlane::first_of(std::uint64_t node) const {
  const auto found = std::ranges::find(ranks_, node, &RankFacts::node);
  return static_cast<int>(found - ranks_.begin());
}

void ControlPlane::end_all(int exit_code) {
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_) send(rank, end_of_job, byte_view(exit_code));
  for (const auto until = Clock::now() + 1s; Clock::now() < until; std::this_thread::sleep_for(1ms)) {
    const std::lock_guard lock(mutex_);
    if (!has_unsent()) return;
  }
}

ControlPlane::Channel ControlPlane::new_channel(std::span<const int> ranks) {
  const auto hash = XXH3_64bits(ranks.data(), ranks.size_bytes());
  const std::lock_guard lock(mutex_);
  const std::uint64_t text[] = {hash, channels_[hash]++};
  return XXH3_64bits(text, sizeof text) | given;
}

void ControlPlane::send(int to, Channel channel, std::span<const std::byte> message) {
  const std::lock_guard lock(mutex_);
  if (to == rank_) {
    inboxes_[channel].push_back({rank_, {message.begin(), message.end()}});
    return arrived_.notify_all();
  }
  if (lost_.contains(to) || ranks_[static_cast<std::size_t>(to)].host.empty()) return;
  push(dial_if_needed(to), channel, message);
}

ControlPlane::Connection& ControlPlane::dial_if_needed(int to) {
  const auto found = ways_.find(to);
  return found != ways_.end() ? *found->second : dial(to, 0);
}

std::optional<Message> ControlPlane::take_from(Channel channel, int from) {
  const auto inbox = inboxes_.find(channel);
  if (inbox == inboxes_.end()) return std::nullopt;
  auto& messages = inbox->second;
  const auto found = std::ranges::find_if(
      messages, [from](const Message& message) { return from == any || message.from == from; });
  if (found == messages.end()) return std::nullopt;
  Message message = std::move(*found);
  messages.erase(found);
  if (messages.empty()) inboxes_.erase(inbox);
  return message;
}

std::optional<Message> ControlPlane::take(Channel channel, int from) {
  const std::lock_guard lock(mutex_);
  return take_from(channel, from);
}

std::optional<Message> ControlPlane::wait(Channel channel, int from, std::optional<Clock::time_point> until) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto message = take_from(channel, from)) return message;
    if (stopped_) throw Error("the ranks do not speak to each other any more");
    if (from != any && lost_.contains(from))
      throw Error(fmt::format("rank {} on {} has ended, or cannot be reached", from,
                              ranks_[static_cast<std::size_t>(from)].host),
                  ExitCode::peer_lost);
    if (!until)
      arrived_.wait(lock);
    else if (arrived_.wait_until(lock, *until) == std::cv_status::timeout)
      return take_from(channel, from);
  }
}

std::optional<RoundTrip> ControlPlane::ask_time(int of, std::chrono::nanoseconds limit) {
  const auto until = Clock::now() + limit;
  TimeAnswer question;
  {
    const std::lock_guard lock(mutex_);
    question.number = ++questions_;
    spin_until_ = Clock::now() + time_follows;
  }
  wake();
  RoundTrip trip;
  trip.send_ns = now_ns();
  send(of, time_question, byte_view(question));
  while (const auto message = wait(time_answer, of, until)) {
    const auto answer = value_of<TimeAnswer>(message->bytes);
    if (!answer || answer->number != question.number) continue;
    trip.reference_ns = answer->reference_ns;
    trip.receive_ns = answer->received_ns;
    return trip;
  }
  return std::nullopt;
}

OwnedDescriptor ControlPlane::connect(int with, std::uint64_t number) {
  const auto until = Clock::now() + connect_limit;
  std::unique_lock lock(mutex_);
  if (rank_ > with) dial(with, number);
  const auto key = std::pair(with, number);
  arrived_.wait_until(lock, until, [&] { return stopped_ || sockets_.contains(key); });
  auto socket = sockets_.extract(key);
  if (socket.empty() || socket.mapped().get() < 0)
    throw Error(fmt::format("no connection to rank {} on {} can be made", with,
                            ranks_[static_cast<std::size_t>(with)].host),
                ExitCode::peer_lost);
  return std::move(socket.mapped());
}

void ControlPlane::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto done = ::write(woken_.get(), &one, sizeof one);
}

bool ControlPlane::has_unsent() const {
  return std::ranges::any_of(connections_, [](const Connection& connection) {
    return !connection.out.empty() && connection.kind != Kind::closed;
  });
}

void ControlPlane::run() {
  ::pthread_setname_np(::pthread_self(), "control plane");
  std::array<epoll_event, 64> events;
  std::optional<Clock::time_point> until;
  for (;;) {
    int limit_ms = -1;
    {
      const std::lock_guard lock(mutex_);
      const auto now = Clock::now();
      end_late(now);
      if (ends_ && !until) until = now + patience;
      if (ends_ && (now >= *until || !has_unsent())) return;
      if (now < spin_until_)
        limit_ms = 0;
      else if (ends_)
        limit_ms = 1;
      else if (std::ranges::any_of(connections_,
                                   [](const auto& one) { return one.until != Clock::time_point::max(); }))
        limit_ms = 200;
    }
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), limit_ms);
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < count; ++i) advance(*static_cast<Connection*>(events[i].data.ptr), events[i].events);
    connections_.remove_if([](const Connection& connection) { return connection.kind == Kind::closed; });
  }
}

ControlPlane::Connection& ControlPlane::add(OwnedDescriptor socket, Kind kind) {
  auto& connection = connections_.emplace_back();
  connection.socket = std::move(socket);
  connection.kind = kind;
  epoll_event event{EPOLLIN, {.ptr = &connection}};
  if (connection.socket.get() >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.socket.get(), &event);
  return connection;
}

void ControlPlane::watch(Connection& connection, std::uint32_t for_events) const {
  epoll_event event{for_events, {.ptr = &connection}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event);
}

void ControlPlane::accept_all(const Connection& listener) {
  for (;;) {
    OwnedDescriptor socket(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (socket.get() < 0 && (errno == EMFILE || errno == ENFILE)) std::this_thread::sleep_for(1ms);
    if (socket.get() < 0) return;
    if (is_unix(socket.get()) && !is_own_user(socket.get())) continue;
    if (listener.kind == Kind::invites) {
      const auto text = invitation();
      ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
      continue;
    }
    const auto strangers = std::ranges::count(connections_, Kind::stranger, &Connection::kind);
    // A rank sends its greeting at once, so the connection that has said nothing for longest is no rank's.
    if (strangers >= most_strangers)
      close(*std::ranges::find(connections_, Kind::stranger, &Connection::kind));
    add(std::move(socket), Kind::stranger).until = Clock::now() + greeting_limit;
  }
}

ControlPlane::Connection& ControlPlane::dial(int to, std::uint64_t number) {
  const auto &own = ranks_[static_cast<std::size_t>(rank_)], &other = ranks_[static_cast<std::size_t>(to)];
  auto& connection = add(OwnedDescriptor(), Kind::connecting);
  connection.peer = to;
  connection.number = number;
  if (own.node == other.node) {
    const UnixName name(name_of(to));
    connection.ways.emplace_back(&name.address, name.bytes);
  }
  for (const auto& address : reachable(own.addresses, other.addresses, own.host == other.host))
    connection.ways.emplace_back(&address.address, size_of_address(address.address));
  if (number == 0) ways_[to] = &connection;
  try_next_way(connection);
  wake();  // It may be the first one with a limit.
  return connection;
}

void ControlPlane::try_next_way(Connection& connection) {
  connection.kind = Kind::connecting;
  connection.in_done = 0;
  while (!connection.ways.empty()) {
    const auto way = connection.ways.front();
    connection.ways.erase(connection.ways.begin());
    connection.socket = new_socket(way.address.ss_family);
    if (::connect(connection.socket.get(), reinterpret_cast<const sockaddr*>(&way.address), way.bytes) != 0 &&
        errno != EINPROGRESS)
      continue;
    connection.until = Clock::now() + connect_limit / static_cast<int>(connection.ways.size() + 1);
    epoll_event event{EPOLLOUT, {.ptr = &connection}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.socket.get(), &event);
    return;
  }
  close(connection);
}

void ControlPlane::end_late(Clock::time_point now) {
  for (auto& connection : connections_) {
    if (now < connection.until || connection.kind == Kind::closed) continue;
    connection.kind == Kind::stranger ? close(connection) : try_next_way(connection);
  }
}

void ControlPlane::advance(Connection& connection, std::uint32_t events) {
  switch (connection.kind) {
    case Kind::closed:
      return;
    case Kind::wake: {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto done = ::read(connection.socket.get(), &count, sizeof count);
      return;
    }
    case Kind::listener:
    case Kind::invites:
      return accept_all(connection);
    case Kind::connecting:
      return greet(connection);
    case Kind::greeted:
      return check_answer(connection);
    case Kind::stranger:
      return welcome(connection);
    case Kind::open:
      if ((events & EPOLLOUT) != 0) flush(connection);
      if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read_some(connection);
  }
}

void ControlPlane::greet(Connection& connection) {
  int error = 0;
  socklen_t bytes = sizeof error;
  const Greeting greeting{token_, connection.number, rank_, connection.peer};
  if (::getsockopt(connection.socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0 ||
      (is_unix(connection.socket.get()) && !is_own_user(connection.socket.get())) ||
      ::send(connection.socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting)
    return try_next_way(connection);
  connection.kind = Kind::greeted;
  watch(connection, EPOLLIN);
}

// Another host may have the same address, with another rank of the job.
void ControlPlane::check_answer(Connection& connection) {
  if (!connection.fill(sizeof token_)) {
    if (connection.over) try_next_way(connection);
    return;
  }
  if (value_of<std::uint64_t>(connection.in) != ~token_) return try_next_way(connection);
  open(connection);
}

void ControlPlane::welcome(Connection& stranger) {
  if (!stranger.fill(sizeof(Greeting))) {
    if (stranger.over) close(stranger);
    return;
  }
  const auto greeting = value_of<Greeting>(stranger.in).value();
  const auto answer = ~token_;
  if (greeting.token != token_ || greeting.to != rank_ || greeting.from < 0 || greeting.from >= size_ ||
      greeting.from == rank_ ||
      ::send(stranger.socket.get(), &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer)
    return close(stranger);
  stranger.peer = greeting.from;
  stranger.number = greeting.number;
  open(stranger);
}

void ControlPlane::open(Connection& connection) {
  connection.until = Clock::time_point::max();
  if (connection.number != 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr);
    sockets_[{connection.peer, connection.number}] = std::move(connection.socket);
    connection.kind = Kind::closed;
    return arrived_.notify_all();
  }
  connection.kind = Kind::open;
  const int on = 1;
  ::setsockopt(connection.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(connection.socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ways_.try_emplace(connection.peer, &connection);
  lost_.erase(connection.peer);
  flush(connection);
}

void ControlPlane::read_some(Connection& connection) {
  constexpr int most_messages = 64;  // so that others get their turn
  for (int i = 0; i < most_messages; ++i) {
    if (!connection.in_body) {
      if (!connection.fill(sizeof(FrameHead))) break;
      connection.head = value_of<FrameHead>(connection.in).value();
      connection.over = connection.head.bytes > most_bytes;
      if (connection.over) break;
      connection.in_body = true;
    }
    if (!connection.fill(connection.head.bytes)) break;
    connection.in_body = false;
    deliver(connection);
  }
  if (connection.over) close(connection);
}

void ControlPlane::deliver(Connection& connection) {
  const auto channel = connection.head.channel;
  if (channel == time_question || channel == time_answer) {
    auto time = value_of<TimeAnswer>(connection.in);
    if (!time) return;
    const auto now = now_ns();
    spin_until_ = Clock::now() + time_follows;
    if (channel == time_question) {
      time->reference_ns = now;
      return push(connection, time_answer, byte_view(*time));
    }
    time->received_ns = now;
    const auto bytes = byte_view(*time);
    inboxes_[channel].push_back({connection.peer, {bytes.begin(), bytes.end()}});
  } else if (channel == end_of_job) {
    const auto code = value_of<int>(connection.in);
    // A launcher of ours blames the first rank that was no victim.
    const bool supervised = std::getenv(supervised_variable) != nullptr;
    if (obeys_ && code) std::_Exit(supervised ? static_cast<int>(ExitCode::peer_lost) : *code);
  } else if (channel == hello && !book_.empty()) {
    // It has come late. One that is known means a later start of the job, whose rank 0 it finds when
    // this one ends.
    if (ranks_[static_cast<std::size_t>(connection.peer)].host.empty())
      push(connection, book_of_ranks, book_);
  } else {
    inboxes_[channel].push_back({connection.peer, std::move(connection.in)});
    connection.in = {};
  }
  arrived_.notify_all();
}

void ControlPlane::push(Connection& connection, Channel channel, std::span<const std::byte> message) {
  const FrameHead head{channel, message.size()};
  auto& frame = connection.out.emplace_back();
  frame.reserve(sizeof head + message.size());
  const auto bytes = byte_view(head);
  frame.insert(frame.end(), bytes.begin(), bytes.end());
  frame.insert(frame.end(), message.begin(), message.end());
  if (connection.kind == Kind::open && connection.out.size() == 1) flush(connection);
}

void ControlPlane::flush(Connection& connection) {
  auto& out = connection.out;
  while (!out.empty()) {
    const auto& frame = out.front();
    const auto sent = ::send(connection.socket.get(), frame.data() + connection.out_done,
                             frame.size() - connection.out_done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && may_retry(errno)) return watch(connection, EPOLLIN | EPOLLOUT);
    if (sent < 0) {  // The thread then reads the end, after what has arrived.
      ::shutdown(connection.socket.get(), SHUT_WR);
      out.clear();
      break;
    }
    connection.out_done += static_cast<std::size_t>(sent);
    if (connection.out_done < frame.size()) continue;
    out.pop_front();
    connection.out_done = 0;
  }
  watch(connection, EPOLLIN);
}

void ControlPlane::close(Connection& connection) {
  const bool was_of_rank = connection.peer != any && connection.kind != Kind::closed;
  const bool was_open = connection.kind == Kind::open;
  connection.kind = Kind::closed;
  connection.socket.reset();
  const auto unsent = std::exchange(connection.out, {});
  if (!was_of_rank) return;
  if (connection.number != 0) {
    sockets_.try_emplace({connection.peer, connection.number});
  } else {
    std::erase_if(ways_, [&](const auto& way) { return way.second == &connection; });
    const auto other = std::ranges::find_if(connections_, [&](const Connection& one) {
      return one.kind == Kind::open && one.peer == connection.peer;
    });
    if (other == connections_.end()) {
      lost_.insert(connection.peer);
    } else if (ways_.try_emplace(connection.peer, &*other).second && !was_open) {
      other->out.insert(other->out.end(), unsent.begin(), unsent.end());
      flush(*other);  // The other rank can reach this one, but not the other way round.
    }
  }
  arrived_.notify_all();
}

}  // namespace farandole
