#include "farandole/base/process/run_main.h"

#include <cstdio>
#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/base/text/phrases.h"

namespace farandole {

int run_main(std::string_view name, const std::function<int()>& body) {
  const auto fail = [&](const std::exception& error, ExitCode code) {
    fmt::print(stderr, "{}: {}\n", name, printable(error.what()));
    return static_cast<int>(code);
  };
  try {
    return body();
  } catch (const Error& error) {
    return fail(error, error.exit_code());
  } catch (const std::exception& error) {
    return fail(error, ExitCode::failure);
  }
}

}  // namespace farandole
