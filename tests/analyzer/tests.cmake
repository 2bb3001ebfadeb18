farandole_script_test(analyzer.analyze-command analyzer/analyze_command_test 3)
# Runs of any size (not part of ctest).
if(NOT FARANDOLE_SANITIZE)
  add_executable(make_large_run ${CMAKE_CURRENT_LIST_DIR}/../tools/make_large_run.cc)
  target_link_libraries(make_large_run PRIVATE farandole_timeline farandole_flags)
  target_include_directories(make_large_run PRIVATE ${PROJECT_SOURCE_DIR}/tests)
endif()
