farandole_script_test(launch.front launch/front.sh 2)
farandole_script_test(launch.run launch/run.sh 30)
farandole_script_test(launch.sessions launch/sessions.sh 5)
farandole_script_test(launch.ddp launch/ddp.sh 60)
