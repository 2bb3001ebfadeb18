// The message of an error that is expected. It must be one line.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <exception>
#include <gtest/gtest.h>
#include <string>

namespace farandole {

// Returns the text of the error that `action` throws; fails if it does not throw E.
template <class E, class F>
std::string message_of(F action) {
  try {
    action();
  } catch (const E& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no exception";
  return "";
}

}  // namespace farandole
