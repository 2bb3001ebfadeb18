farandole_script_test(slurm.run slurm/run.sh 300)
farandole_script_test(slurm.nodes slurm/nodes.sh 300)
farandole_script_test(slurm.doctor slurm/doctor.sh 300)
set_tests_properties(slurm.run slurm.nodes slurm.doctor PROPERTIES RUN_SERIAL TRUE)
