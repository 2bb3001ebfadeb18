farandole_script_test(launch.front launch/front.sh 60)
farandole_script_test(launch.run launch/run.sh 300)
