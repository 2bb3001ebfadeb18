// The base of every call into HDF5: the process-wide lock, handles that close themselves, and
// one check that throws.
// Thread safety: any thread may call this at any time.
#pragma once

#include <hdf5.h>
#include <mutex>
#include <string>
#include <string_view>

#include "farandole/base/error.h"

namespace farandole {

// Must be held around every call into HDF5 in this process, because not every build of HDF5 is thread-safe,
// and data sets are read while a checkpoint is written. Code that calls HDF5 without Hdf5File must take it
// too. It may be nested. Large arrays of a checkpoint are written without it. It also switches off HDF5's
// printing of errors for this thread.
class Hdf5Lock {
 public:
  Hdf5Lock();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

// Owns one HDF5 identifier.
class Hdf5Handle {
 public:
  using Close = herr_t (*)(hid_t);

  Hdf5Handle() = default;
  Hdf5Handle(hid_t id, Close closer) : id_(id), close_(closer) {}
  ~Hdf5Handle() { close(); }
  Hdf5Handle(Hdf5Handle&& other) noexcept;
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept;

  hid_t get() const { return id_; }
  herr_t close();  // negative if HDF5 failed; the handle is empty in any case

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

// Checks results of HDF5. If a call failed, throws an exception with this exit code; its one-line message
// contains the file, the call and HDF5's own description. Use it while the Hdf5Lock of the call is held.
class Hdf5Check {
 public:
  Hdf5Check(std::string file, ExitCode exit_code) : file_(std::move(file)), exit_code_(exit_code) {}

  template <typename Result>
  Result operator()(Result result, std::string_view call) const {
    if (result < 0) fail(call, error_stack());
    return result;
  }
  Hdf5Handle operator()(hid_t id, Hdf5Handle::Close close, std::string_view call) const {
    return Hdf5Handle((*this)(id, call), close);
  }
  [[noreturn]] void fail(std::string_view what, std::string_view reason) const;
  const std::string& file() const { return file_; }
  // HDF5's description of what has just failed.
  static std::string error_stack();

 private:
  std::string file_;
  ExitCode exit_code_;
};

}  // namespace farandole
