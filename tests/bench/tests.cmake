if(FARANDOLE_TORCH)  # without it there is no farandole bench
  farandole_script_test(bench.timeline bench/timeline.sh 5)
  farandole_script_test(bench.checkpoint bench/checkpoint.sh 20)
  farandole_script_test(bench.step bench/step.sh 15)
  set_tests_properties(bench.timeline bench.checkpoint bench.step PROPERTIES LABELS program PROCESSORS 2)
endif()
