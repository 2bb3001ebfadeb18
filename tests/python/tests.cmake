farandole_script_test(python.backend python/backend.sh 60)
