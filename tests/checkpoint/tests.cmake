# __FILE__ may be relative to a folder that is not the test's (ccache's base_dir).
target_compile_definitions(checkpoint_test PRIVATE FARANDOLE_SOURCE="${PROJECT_SOURCE_DIR}")
