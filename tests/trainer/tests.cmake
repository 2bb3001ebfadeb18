if(FARANDOLE_TORCH)
  set(costs
    checkpoints/resume 110 precision 90 stops/restarts 70 checkpoints/exact_resume 60 quickstart_profile 40 refusals/bad_options 15
    stops/preempted 35 mnist 35 asked_traces 30 stops/killed_processes 30 stops/epoch_ends 25 checkpoints/starts 25 refusals/bad_run_dir 25
    nonfinite 20 checkpoints/full_disk 20 evaluation 20 compression 20 refusals/bad_data 15 synchronize 15 checkpoints/slow_disk 15
    checkpoints/save_memory 15 tuning 15 device 15 device_of_double 30 model_flops 15 config 10 checkpoints/checkpoint_tool 10 stops/stalled 10 stops/survivors 10
    stops/terminal 5 stops/lease 5 check_replicas 5 merge_limit 5 named_run 2 stops/kills 280)
  while(costs)
    list(POP_FRONT costs script cost)
    get_filename_component(name ${script} NAME)
    farandole_script_test(trainer.${name} trainer/${script}.sh ${cost})
    set_tests_properties(trainer.${name} PROPERTIES LABELS program)
  endwhile()
  set_tests_properties(trainer.resume trainer.precision trainer.restarts trainer.exact_resume trainer.quickstart_profile trainer.mnist
                       PROPERTIES PROCESSORS 2)
  add_library(failing_writes SHARED trainer/checkpoints/failing_writes.cc)
  target_link_libraries(failing_writes PRIVATE farandole_flags)
  set_target_properties(failing_writes PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} UNITY_BUILD OFF)
  farandole_script_test(trainer.failing_writes trainer/checkpoints/failing_writes.sh 30)
  farandole_script_test(trainer.all_failing_writes trainer/checkpoints/failing_writes.sh 600 all)
  set_tests_properties(trainer.failing_writes PROPERTIES LABELS "program;random")
  set_tests_properties(trainer.all_failing_writes PROPERTIES LABELS "program;soak" TIMEOUT 3600)
  farandole_script_test(trainer.many_killed_processes trainer/stops/killed_processes.sh 600 5)
  farandole_script_test(trainer.goodput trainer/stops/goodput.sh 280)
  farandole_script_test(trainer.quick_end_of_survivors trainer/stops/survivors.sh 280 5 2)
  set_tests_properties(trainer.kills trainer.many_killed_processes trainer.goodput trainer.quick_end_of_survivors PROPERTIES LABELS "program;soak" PROCESSORS 2)
endif()
