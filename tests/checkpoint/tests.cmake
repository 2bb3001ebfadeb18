# __FILE__ may be relative to another folder than the test's (base_dir of ccache).
target_compile_definitions(checkpoint_test PRIVATE FARANDOLE_SOURCE="${PROJECT_SOURCE_DIR}")
