// One program with several names (farandole_test_program). Each name has a main of its own.
#pragma once

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

namespace farandole {

// Calls the one of `mains` that has the name of this program's file, and returns its exit code.
inline int call_by_name(const std::map<std::string, int (*)(int, char**)>& mains, int argc, char** argv) {
  const std::string name = std::filesystem::read_symlink("/proc/self/exe").filename();
  const auto found = mains.find(name);
  if (found != mains.end()) return found->second(argc, argv);
  std::fprintf(stderr, "%s: call this program by one of its other names:", name.c_str());
  for (const auto& one : mains) std::fprintf(stderr, " %s", one.first.c_str());
  std::fputs("\n", stderr);
  return 64;
}

}  // namespace farandole
