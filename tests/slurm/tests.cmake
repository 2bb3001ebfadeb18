farandole_script_test(slurm.numbers slurm/numbers.sh 60)
farandole_script_test(slurm.run slurm/run.sh 300)
farandole_script_test(slurm.requeue slurm/requeue.sh 600)
farandole_script_test(slurm.sweeps slurm/sweeps.sh 300)
farandole_script_test(slurm.nodes slurm/nodes.sh 600)
farandole_script_test(slurm.doctor slurm/doctor.sh 900)
farandole_script_test(slurm.timeline slurm/timeline.sh 300)
farandole_script_test(slurm.launch slurm/launch.sh 300)
# One sandbox at a time. slurm.doctor mostly waits for Slurm, which looks at time limits twice a minute; other tests run
# meanwhile.
set_tests_properties(slurm.run slurm.requeue slurm.sweeps slurm.nodes slurm.doctor slurm.timeline slurm.launch PROPERTIES RESOURCE_LOCK slurm)
set_tests_properties(slurm.nodes PROPERTIES PROCESSORS 2)
set_tests_properties(slurm.run slurm.timeline PROPERTIES RUN_SERIAL TRUE)
set_tests_properties(slurm.doctor slurm.timeline PROPERTIES LABELS random)
