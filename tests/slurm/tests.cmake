# farandole_sandbox_tests(ROW NAME COST...): tests that each start a sandbox. Those of a row run one after the other. There are two
# rows, because a sandbox mostly waits for Slurm, which looks at time limits twice a minute.
function(farandole_sandbox_tests row)
  set(tests ${ARGN})
  while(tests)
    list(POP_FRONT tests name cost)
    farandole_script_test(slurm.${name} slurm/${name}.sh ${cost})
    set_tests_properties(slurm.${name} PROPERTIES RESOURCE_LOCK slurm-${row})
  endwhile()
endfunction()
farandole_script_test(slurm.numbers slurm/numbers.sh 5)
farandole_sandbox_tests(1 cycles 900 requeue 500 lost_host 400 run 300 submit 250 launch 200 timeline 60)
farandole_sandbox_tests(2 starts 900 doctor 450 mixed_world 400 preempt 350 sweeps 300 nodes 250 python 60)
set_tests_properties(slurm.nodes slurm.python PROPERTIES PROCESSORS 2)
set_tests_properties(slurm.timeline PROPERTIES RUN_SERIAL TRUE)  # its verdict depends on times
set_tests_properties(slurm.doctor slurm.timeline PROPERTIES LABELS random)
set_tests_properties(slurm.cycles slurm.starts PROPERTIES LABELS soak)
set_tests_properties(slurm.python PROPERTIES LABELS program)
