// Finds functions in a library that is loaded at run time.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

namespace farandole {

class SharedLibrary {
 public:
  // Loads the file that the environment variable names. If the variable is not set or `variable` is null,
  // loads `name` as the dynamic linker finds it. The library stays loaded until the process ends.
  SharedLibrary(const char* variable, std::string name);

  // Sets the function to nullptr if it is missing.
  template <class Function>
  void find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(look_up(symbol));
  }
  // Why the library or one of the functions is missing; "" if all were found.
  const std::string& why_not() const { return why_not_; }

 private:
  void* look_up(const char* symbol);

  std::string name_;
  void* library_ = nullptr;
  std::string why_not_;
};

}  // namespace farandole
