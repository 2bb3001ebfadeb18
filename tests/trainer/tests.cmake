if(FARANDOLE_TORCH)
  foreach(script IN ITEMS resume exact_resume restarts starts evaluation preempted full_disk stalled compression synchronize tuning merge_limit named_run asked_traces
                          bad_options bad_data bad_run_dir lease checkpoint_tool nonfinite killed_processes quickstart_profile mnist kills)
    farandole_script_test(trainer.${script} trainer/${script}.sh 280)
    set_tests_properties(trainer.${script} PROPERTIES LABELS program PROCESSORS 2)
  endforeach()
  farandole_script_test(trainer.many_killed_processes trainer/killed_processes.sh 600 5)
  set_tests_properties(trainer.kills trainer.many_killed_processes PROPERTIES LABELS "program;soak" PROCESSORS 2)
endif()
