# farandole_sandbox_tests(ROW NAME COST...): tests that each start a sandbox. Those of a row run one after the other. There are three
# rows, because a sandbox mostly waits for Slurm, which looks at time limits twice a minute, and all begin before other tests.
function(farandole_sandbox_tests row)
  set(tests ${ARGN})
  while(tests)
    list(POP_FRONT tests name cost)
    farandole_script_test(slurm.${name} slurm/${name}.sh ${cost})
    set_tests_properties(slurm.${name} PROPERTIES RESOURCE_LOCK slurm-${row})
  endwhile()
endfunction()
farandole_script_test(slurm.numbers slurm/numbers.sh 5)
farandole_sandbox_tests(1 cycles 900 requeue 500 lost_host 350 run 300 launch 200)
farandole_sandbox_tests(2 starts 900 nodes 500 doctor 450 preempt 350 training 200 timeline 60)
farandole_sandbox_tests(3 sweeps 500 mixed_world 400 submit 300 python 200)
set_tests_properties(slurm.nodes slurm.python PROPERTIES PROCESSORS 2)
set_tests_properties(slurm.numbers slurm.run slurm.mixed_world PROPERTIES LABELS logic)
set_tests_properties(slurm.doctor PROPERTIES LABELS "random;logic")
set_tests_properties(slurm.cycles slurm.starts PROPERTIES LABELS soak)
set_tests_properties(slurm.timeline PROPERTIES LABELS "program;soak")  # its verdict depends on times
set_tests_properties(slurm.requeue slurm.lost_host slurm.submit slurm.launch slurm.training slurm.preempt slurm.sweeps slurm.nodes slurm.python
                     PROPERTIES LABELS program)
