#include "farandole/checkpoint/hdf5_handle.h"

#include <utility>
#include <vector>

namespace farandole {
namespace {

// HDF5's state belongs to the process, and so does its lock.
std::recursive_mutex& hdf5_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

// Collects descriptions from the outermost to the innermost call. The innermost one gives the cause.
herr_t collect(unsigned, const H5E_error2_t* error, void* descriptions) {
  auto& all = *static_cast<std::vector<std::string>*>(descriptions);
  if (error->desc != nullptr && *error->desc != '\0') all.emplace_back(error->desc);
  return 0;
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(hdf5_mutex()) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Handle::Hdf5Handle(Hdf5Handle&& other) noexcept
    : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}

Hdf5Handle& Hdf5Handle::operator=(Hdf5Handle&& other) noexcept {
  if (this != &other) {
    close();
    id_ = std::exchange(other.id_, H5I_INVALID_HID);
    close_ = other.close_;
  }
  return *this;
}

herr_t Hdf5Handle::close() {
  if (id_ < 0) return 0;
  const Hdf5Lock lock;
  return close_(std::exchange(id_, H5I_INVALID_HID));
}

std::string Hdf5Check::error_stack() {
  std::vector<std::string> descriptions;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, collect, &descriptions);
  H5Eclear2(H5E_DEFAULT);
  if (descriptions.empty()) return "no reason given";
  std::string text = descriptions.front();
  if (descriptions.size() > 1) text += ": " + descriptions.back();
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

void Hdf5Check::fail(std::string_view what, std::string_view reason) const {
  const auto message = file_ + ": " + std::string(what) + ": " + std::string(reason);
  if (exit_code_ == ExitCode::corrupt_input) throw CorruptInput(message);
  if (exit_code_ == ExitCode::user_error) throw UserError(message);
  throw Error(message, exit_code_);
}

}  // namespace farandole
