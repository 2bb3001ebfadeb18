# The merged trace of a made-up run in the viewers that people use, and what a span costs (not part of ctest).
foreach(program make_trace span_benchmark)
  add_executable(timeline_${program} ${CMAKE_CURRENT_LIST_DIR}/${program}.cc)
  target_link_libraries(timeline_${program} PRIVATE farandole_timeline farandole_flags)
  target_include_directories(timeline_${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
endforeach()
find_package(benchmark REQUIRED)
target_link_libraries(timeline_span_benchmark PRIVATE benchmark::benchmark)
farandole_script_test(timeline.viewers timeline/viewers_test 300)
