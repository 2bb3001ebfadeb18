if(FARANDOLE_TORCH)
  foreach(script IN ITEMS resume exact_resume restarts starts evaluation preempted full_disk stalled compression synchronize tuning merge_limit named_run asked_traces
                          bad_options bad_data bad_run_dir lease checkpoint_tool nonfinite quickstart_profile mnist kills)
    farandole_script_test(trainer.${script} trainer/${script}.sh 280)
    set_tests_properties(trainer.${script} PROPERTIES LABELS program PROCESSORS 2)
  endforeach()
  set_tests_properties(trainer.kills PROPERTIES LABELS "program;soak")
endif()
