farandole_script_test(launch.front launch/front.sh 60)
farandole_script_test(launch.run launch/run.sh 300)
farandole_script_test(launch.sessions launch/sessions.sh 180)
farandole_script_test(launch.ddp launch/ddp.sh 180)
