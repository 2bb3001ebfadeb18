# Opens the merged trace of a synthetic run in the usual viewers (make_trace is not part of ctest).
add_executable(timeline_make_trace ${CMAKE_CURRENT_LIST_DIR}/make_trace.cc)
target_link_libraries(timeline_make_trace PRIVATE farandole_timeline farandole_flags)
target_include_directories(timeline_make_trace PRIVATE ${PROJECT_SOURCE_DIR}/tests)
farandole_script_test(timeline.viewers timeline/chrome_trace/viewers_test 300)
farandole_script_test(timeline.command timeline/timeline_command_test 60)
if(CUPTI_INCLUDE_DIR)
  target_include_directories(timeline_test SYSTEM PRIVATE ${CUPTI_INCLUDE_DIR})
endif()
