# Sourced by script tests that need PyTorch in Python. The wheel in .deps has all of it, but names libraries of CUDA that
# tools/setup leaves out and that nothing on a CPU calls.

# wheel_python [VENV FOLDER]: lets /usr/bin/python3 import the PyTorch of a virtual environment, by default of the wheel in .deps.
# Libraries that this machine lacks are replaced by libraries in FOLDER, by default in the build, made by the first test that needs
# them, whose functions end the process. Returns 1 if there is no wheel, or if PyTorch still cannot be imported.
wheel_python() {
  local folder=${2:-$FARANDOLE_BIN/../tests/stand-ins} packages libraries
  packages=$(echo "${1:-$FARANDOLE_SOURCE/.deps/venv}"/lib/python3*/site-packages)
  libraries=("$packages"/torch/lib/libtorch_{cuda,cuda_linalg,nvshmem,python}.so)
  [[ -e ${libraries[0]} ]] || return 1
  (flock 9 && make_stand_ins) 9>"$folder.lock" || return 1
  export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONPATH=$packages${PYTHONPATH:+:$PYTHONPATH}
}
make_stand_ins() {
  local missing
  [[ ! $folder/stand_ins.c -nt ${libraries[0]} ]] || return 0
  mkdir -p "$folder"
  mapfile -t missing < <(ldd "${libraries[@]}" 2>/dev/null | awk '/not found/ { print $1 }' | sort -u)
  # Those of C++ and of Python are found once the other libraries are loaded.
  for library in "${libraries[@]}"; do ldd -r "$library" 2>&1; done |
    awk '$1 == "undefined" && $3 !~ /^(_Z|_?Py)/ { sub(",", "", $3); print "void " $3 "(void) { abort(); }" }' | sort -u |
    { echo 'void abort(void);'; cat; } >"$folder/made.c"
  cc -w -shared -fPIC -fno-builtin -o "$folder/stand_ins.so" "$folder/made.c" || return 1
  for library in "${missing[@]}"; do ln -sf stand_ins.so "$folder/$library"; done
  LD_LIBRARY_PATH=$folder PYTHONPATH=$packages /usr/bin/python3 -W ignore -c 'import torch' && mv "$folder/made.c" "$folder/stand_ins.c"
}
