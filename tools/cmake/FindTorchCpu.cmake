# Finds LibTorch and imports torch_cpu and c10 as the target Torch::cpu, without the wheel's own TorchConfig.cmake, which
# insists on nvcc. Searched: CMAKE_PREFIX_PATH (a site's LibTorch or Spack's py-torch), then the wheel in .deps or, where this
# file is installed, the LibTorch that Farandole was built with. TorchCpu_FOLDER is the folder of include and lib.

file(GLOB _wheel ${PROJECT_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch)
list(APPEND _wheel ${TorchCpu_BUILT_WITH})
file(GLOB _prefixed)
foreach(_prefix IN LISTS CMAKE_PREFIX_PATH)
  file(GLOB _site ${_prefix}/lib/python3*/site-packages/torch ${_prefix}/lib64/python3*/site-packages/torch)
  list(APPEND _prefixed ${_prefix} ${_site})
endforeach()

find_path(TorchCpu_API_DIR torch/torch.h HINTS ${_prefixed} ${_wheel}
          PATH_SUFFIXES include/torch/csrc/api/include)
find_path(TorchCpu_INCLUDE_DIR torch/version.h HINTS ${_prefixed} ${_wheel}
          PATH_SUFFIXES include include/torch/csrc/api/include)
find_library(TorchCpu_LIBRARY torch_cpu HINTS ${_prefixed} ${_wheel} PATH_SUFFIXES lib)
find_library(TorchCpu_C10_LIBRARY c10 HINTS ${_prefixed} ${_wheel} PATH_SUFFIXES lib)
get_filename_component(TorchCpu_BASE_DIR "${TorchCpu_API_DIR}/../../../.." ABSOLUTE)
get_filename_component(TorchCpu_FOLDER "${TorchCpu_BASE_DIR}/.." ABSOLUTE)

foreach(_header IN ITEMS "${TorchCpu_BASE_DIR}/torch/version.h" "${TorchCpu_API_DIR}/torch/version.h"
                         "${TorchCpu_BASE_DIR}/torch/headeronly/version.h")
  if(EXISTS "${_header}")
    file(READ "${_header}" _text)
    if(_text MATCHES "TORCH_VERSION_MAJOR ([0-9]+).*TORCH_VERSION_MINOR ([0-9]+).*TORCH_VERSION_PATCH ([0-9]+)")
      set(TorchCpu_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
    endif()
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchCpu
  REQUIRED_VARS TorchCpu_LIBRARY TorchCpu_C10_LIBRARY TorchCpu_API_DIR VERSION_VAR TorchCpu_VERSION
  REASON_FAILURE_MESSAGE "run tools/setup, or name a LibTorch 2.1 or later in CMAKE_PREFIX_PATH")

if(TorchCpu_FOUND AND NOT TARGET Torch::cpu)
  add_library(Torch::c10 SHARED IMPORTED)
  set_target_properties(Torch::c10 PROPERTIES IMPORTED_LOCATION ${TorchCpu_C10_LIBRARY})
  add_library(Torch::cpu SHARED IMPORTED)
  # Last in the search: the wheel carries an {fmt} of its own that must not hide the one that spdlog was built with.
  set_target_properties(Torch::cpu PROPERTIES
    IMPORTED_LOCATION ${TorchCpu_LIBRARY}
    INTERFACE_COMPILE_OPTIONS "SHELL:-idirafter ${TorchCpu_BASE_DIR};SHELL:-idirafter ${TorchCpu_API_DIR}"
    INTERFACE_LINK_LIBRARIES Torch::c10)
endif()
