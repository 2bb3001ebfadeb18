# What developers measure by hand (not part of ctest).
find_package(benchmark REQUIRED)
function(farandole_benchmark name layer)
  add_executable(${name} benchmarks/${name}.cc)
  target_link_libraries(${name} PRIVATE farandole_${layer} farandole_flags benchmark::benchmark)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
endfunction()
farandole_benchmark(reduce_kernels_benchmark comm)
farandole_benchmark(span_benchmark timeline)
