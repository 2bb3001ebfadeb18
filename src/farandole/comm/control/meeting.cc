#include "farandole/comm/control/meeting.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/host.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

void write_invitation(const fs::path& file, const std::string& text) {
  const fs::path draft = file.string() + ".new";
  const OwnedDescriptor out(::open(draft.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
  if (out.get() < 0)
    throw Error(
        fmt::format("the ranks cannot meet: {} cannot be written: {}", file.string(), std::strerror(errno)));
  write_bytes(out.get(), text + "\n", draft.string());
  fs::rename(draft, file);
}

// NFS remembers for up to 30 s that a file does not exist. It asks again once this host has
// changed the folder.
void change_folder(const fs::path& folder) {
  const auto own = folder / fmt::format(".{}-{}", host_name(), ::getpid());
  OwnedDescriptor(::open(own.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ::unlink(own.c_str());
}

std::optional<std::string> read_invitation(const fs::path& file) {
  const OwnedDescriptor in(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat facts {};
  if (in.get() < 0 || ::fstat(in.get(), &facts) != 0) {
    change_folder(file.parent_path());
    return std::nullopt;
  }
  if (facts.st_uid != ::geteuid())
    throw UserError(fmt::format("the ranks cannot meet: {} belongs to another user; use a folder of your own",
                                file.string()));
  std::string text(static_cast<std::size_t>(std::min<off_t>(facts.st_size, 65536)), '\0');
  text.resize(read_bytes(in.get(), 0, std::as_writable_bytes(std::span(text)), file.string()));
  return text;
}

}  // namespace

MeetingPlace meet_in_file(const fs::path& file) {
  MeetingPlace meeting;
  meeting.publish = [file](const std::string& text) { write_invitation(file, text); };
  meeting.look = [file] { return read_invitation(file); };
  return meeting;
}

MeetingPlace meet_on_node(std::string text) {
  MeetingPlace meeting;
  meeting.on_node = fmt::format("farandole-{}-{:016x}", ::geteuid(), XXH3_64bits(text.data(), text.size()));
  meeting.look = [name = meeting.on_node]() -> std::optional<std::string> {
    const UnixName at(name);
    const OwnedDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at.address), at.bytes) != 0)
      return std::nullopt;
    if (!is_own_user(socket.get()))
      throw Error("the ranks cannot meet: another user of this host has taken the name of their socket");
    constexpr timeval limit{5, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    std::string invitation;
    char piece[1024];
    for (ssize_t got; (got = ::recv(socket.get(), piece, sizeof piece, 0)) > 0;)
      invitation.append(piece, static_cast<std::size_t>(got));
    if (invitation.empty()) return std::nullopt;
    return invitation;
  };
  return meeting;
}

UnixName::UnixName(std::string_view name) {
  address.sun_family = AF_UNIX;
  const auto length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

bool is_own_user(int unix_socket) {
  ucred other{};
  socklen_t bytes = sizeof other;
  return ::getsockopt(unix_socket, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 && other.uid == ::geteuid();
}

}  // namespace farandole
