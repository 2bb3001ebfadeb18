# Without PyTorch in Python, they skip. Optimized programs only: Python cannot load a library with a sanitizer.
farandole_script_test(python.record python/record/record.sh 70)
farandole_script_test(python.guest python/record/guest.sh 60)
farandole_script_test(python.broken python/record/broken.sh 80)
farandole_script_test(python.backend python/backend.sh 60)
farandole_script_test(python.exits python/exits.sh 30)
farandole_script_test(python.faults python/faults.sh 60)
farandole_script_test(python.runner python/runner.sh 60)
farandole_script_test(python.hvd_ops python/hvd/hvd_ops.sh 60)
farandole_script_test(python.hvd_optimizer python/hvd/hvd_optimizer.sh 90)
farandole_script_test(python.estimator python/estimator/estimator.sh 60)
set_tests_properties(python.record python.guest python.broken python.backend python.exits python.faults python.runner python.hvd_ops
                     python.hvd_optimizer python.estimator
                     PROPERTIES PROCESSORS 2 LABELS program)
# Where tools/setup --spark or --frameworks has been called; tools/soak calls them.
farandole_script_test(python.spark python/estimator/spark.sh 60)
farandole_script_test(python.frameworks python/record/frameworks.sh 200)
farandole_script_test(python.launchers python/record/launchers.sh 120)
set_tests_properties(python.spark python.frameworks python.launchers PROPERTIES PROCESSORS 2 LABELS "program;random")
# Each version of PyTorch in the documentation, from PyPI.
farandole_script_test(python.versions python/versions.sh 600)
set_tests_properties(python.versions PROPERTIES PROCESSORS 2 TIMEOUT 3600 LABELS "program;soak")
