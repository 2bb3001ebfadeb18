if(FARANDOLE_TORCH)
  farandole_script_test(bench.timeline bench/timeline.sh 280)
  set_tests_properties(bench.timeline PROPERTIES LABELS program PROCESSORS 2)
endif()
