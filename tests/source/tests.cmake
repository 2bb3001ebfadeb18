farandole_script_test(source.unique_types source/unique_types.py 30)
