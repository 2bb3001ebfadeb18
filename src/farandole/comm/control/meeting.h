// How the ranks of a job find rank 0.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>

namespace farandole {

// How a rank gets the invitation of rank 0, a text that nobody else may read.
struct MeetingPlace {
  // On rank 0. Throws: Error.
  std::function<void(const std::string& invitation)> publish = [](const std::string&) {};
  // On the others, again and again; std::nullopt if there is none yet. Throws: Error.
  std::function<std::optional<std::string>()> look = {};
  // Not empty: all ranks are on one node, where this text belongs to the job alone. Rank 0 then gives the
  // invitation to each process of its user that asks.
  std::string on_node = {};
};

// In a file that all ranks see. Only its owner can read it.
MeetingPlace meet_in_file(const std::filesystem::path& file);
// See MeetingPlace::on_node.
MeetingPlace meet_on_node(std::string text);

// A Unix socket without a file: its name begins with a zero byte.
struct UnixName {
  explicit UnixName(std::string_view name);
  sockaddr_un address{};
  socklen_t bytes = 0;
};
// True if the process at the other end belongs to the user of this one.
bool is_own_user(int unix_socket);

}  // namespace farandole
