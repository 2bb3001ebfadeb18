#include "farandole/comm/mpi/mpi_check.h"

#include <string>

#include "farandole/base/error.h"

namespace farandole {

void check_mpi(int code, std::string_view call, std::string_view name) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  std::string message(call);
  if (!name.empty()) message += " of '" + std::string(name) + "'";
  throw Error(message + ": " + std::string(text, static_cast<std::size_t>(length)), ExitCode::peer_lost);
}

}  // namespace farandole
