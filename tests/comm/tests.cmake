# The rate of the reduction kernels (not part of ctest).
find_package(benchmark REQUIRED)
add_executable(comm_reduce_kernels_benchmark ${CMAKE_CURRENT_LIST_DIR}/reduce_kernels_benchmark.cc)
target_link_libraries(comm_reduce_kernels_benchmark PRIVATE farandole_comm farandole_flags benchmark::benchmark)
