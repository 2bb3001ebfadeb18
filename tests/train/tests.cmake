if(FARANDOLE_TORCH)
  farandole_test_program(torch_program train/torch_program.cc train/optimizer/deadlocking.cc train/straggling.cc train/mistakes/mistaken.cc train/run/bare_program.cc train/run/metric_files.cc train/run/own_training.cc
                         estimator/export_models.cc estimator/launching.cc estimator/many_fits.cc gpu/gpt_step.cc
                         LAYERS bench estimator
                         NAMES bare_program deadlocking export_models gpt_step launching many_fits metric_files mistaken own_training straggling)
  set_target_properties(torch_program PROPERTIES UNITY_BUILD_BATCH_SIZE 0)  # one unit: LibTorch's header is parsed once
  farandole_script_test(train.bare_program train/run/bare_program.sh 20)
  farandole_script_test(train.own_training train/run/own_training.sh 90)
  farandole_script_test(train.own_disk train/run/own_disk.sh 20)
  farandole_script_test(train.deadlocks train/optimizer/deadlocks.sh 60)
  farandole_script_test(train.mistakes train/mistakes/mistakes.sh 60)
  set_tests_properties(train.bare_program train.own_disk train.own_training train.deadlocks train.mistakes PROPERTIES LABELS program)
  foreach(script IN ITEMS metric_files stragglers)
    farandole_script_test(train.${script} train/${script}.sh 20)
    set_tests_properties(train.${script} PROPERTIES LABELS program)
  endforeach()
  # Real ranks that are delayed. Whether other ranks are also late depends on the machine.
  set_tests_properties(train.stragglers PROPERTIES LABELS "program;soak")
endif()
