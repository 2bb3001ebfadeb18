farandole_script_test(python.record python/record.sh 70)
