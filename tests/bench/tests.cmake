if(FARANDOLE_TORCH)  # without it there is no farandole bench
  farandole_script_test(bench.analyze bench/analyze.sh 15)
  farandole_script_test(bench.timeline bench/timeline.sh 30)
  farandole_script_test(bench.checkpoint bench/checkpoint.sh 20)
  farandole_script_test(bench.step bench/step.sh 15)
  set_tests_properties(bench.analyze bench.timeline bench.checkpoint bench.step PROPERTIES LABELS program PROCESSORS 2)
endif()
