farandole_script_test(launch.front launch/front.sh 2)
farandole_script_test(launch.new launch/new.sh 2)
farandole_script_test(launch.run launch/run.sh 30)
farandole_script_test(launch.sessions launch/sessions.sh 5)
farandole_script_test(launch.python launch/python.sh 5)
farandole_script_test(launch.ddp launch/ddp.sh 60)
set_tests_properties(launch.front launch.new launch.run launch.sessions launch.python PROPERTIES LABELS logic)
set_tests_properties(launch.ddp PROPERTIES LABELS program)  # a Python that loads nothing of ours
