farandole_script_test(slurm.run slurm/run.sh 300)
set_tests_properties(slurm.run PROPERTIES RUN_SERIAL TRUE)
