if(FARANDOLE_TORCH)
  foreach(script IN ITEMS checkpoints/resume precision device device_of_double checkpoints/exact_resume stops/restarts
                          checkpoints/starts evaluation stops/preempted checkpoints/full_disk checkpoints/slow_disk
                          checkpoints/save_memory
                          stops/stalled stops/epoch_ends compression synchronize tuning merge_limit named_run
                          asked_traces config refusals/bad_options refusals/bad_data refusals/bad_run_dir stops/lease
                          checkpoints/checkpoint_tool nonfinite check_replicas stops/killed_processes stops/terminal stops/survivors
                          quickstart_profile mnist stops/kills)
    get_filename_component(name ${script} NAME)
    farandole_script_test(trainer.${name} trainer/${script}.sh 280)
    set_tests_properties(trainer.${name} PROPERTIES LABELS program PROCESSORS 2)
  endforeach()
  farandole_script_test(trainer.many_killed_processes trainer/stops/killed_processes.sh 600 5)
  farandole_script_test(trainer.goodput trainer/stops/goodput.sh 280)
  farandole_script_test(trainer.quick_end_of_survivors trainer/stops/survivors.sh 280 5 2)
  set_tests_properties(trainer.kills trainer.many_killed_processes trainer.goodput trainer.quick_end_of_survivors PROPERTIES LABELS "program;soak" PROCESSORS 2)
endif()
