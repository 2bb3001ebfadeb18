# Sourced by tests/gpu/run: an archive of built programs, for a machine with a GPU that lacks the packages of tools/setup.

# pack ARCHIVE BUILD PROGRAM…: programs of the build folder and the libraries that they need, with Open MPI and its plugins. The
# libraries of C, C++, LibTorch and CUDA are left out: the other machine has its own, which fit its driver.
pack() {
  local archive=$1 build=$2 folder torch prefix plugins kept library program
  shift 2
  folder=$(mktemp -d) || return 1
  trap 'rm -rf "$folder"' RETURN
  prefix=$(ompi_info --parsable --path prefix | cut -d: -f3)
  plugins=$(ompi_info --parsable --path pkglibdir | cut -d: -f3)
  [[ -n $prefix && $plugins == "$prefix"/* ]] ||
    { echo "gpu/run: ompi_info does not say where Open MPI is; put Open MPI in PATH" >&2; return 1; }
  kept=${plugins#"$prefix"/}
  mkdir -p "$folder"/{bin,programs,libraries,share} "$folder/$kept"
  for program in "$@"; do
    strip -o "$folder/programs/$program" "$build/bin/$program" || return 1
  done
  mkdir "$folder/share/farandole" && cp -r profiles "$folder/share/farandole/" || return 1
  cp -L "$(command -v mpirun)" "$folder/programs/mpirun" && cp -rL "$prefix/share/openmpi" "$folder/share/" || return 1
  # Ranks of one machine use none of these; they would bring the libraries of many networks.
  for library in "$plugins"/mca_*.so; do
    [[ $library =~ (_ucx|_ofi|_psm2?|_openib|/mca_(atomic|memheap|scoll|spml|sshmem)_[a-z]+)\.so$ ]] ||
      cp -L "$library" "$folder/$kept/" || return 1
  done
  torch=$(ldd "$build/bin/gpt_step" | awk '$1 == "libtorch_cpu.so" { sub("/[^/]*$", "", $3); print $3 }')
  ldd "$folder"/programs/* "$folder/$kept"/*.so | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u |
    while read -r library; do
      [[ ${library##*/} =~ ^lib(c|m|dl|rt|util|pthread|resolv|stdc\+\+|gcc_s|gomp|cudart|cupti)\.so ||
        $library == "${torch:-none}"/* ]] ||
        strip -o "$folder/libraries/${library##*/}" "$library" || return 1
    done || return 1
  # Each program starts through a script, so that no other program of the machine loads these libraries. The plugins of PMIx are
  # left out, and each rank would warn of that.
  for program in mpirun "$@"; do
    cat >"$folder/bin/$program" <<'SCRIPT' && chmod +x "$folder/bin/$program" || return 1
#!/bin/sh
root=$(dirname "$(dirname "$0")")
LD_LIBRARY_PATH=$root/libraries:$FARANDOLE_TORCH_FOLDER${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} OPAL_PREFIX=$root \
  PMIX_MCA_pcompress_base_silence_warning=1 PMIX_MCA_mca_base_component_show_load_errors=0 exec "$root/programs/$(basename "$0")" "$@"
SCRIPT
  done
  tar -czf "$archive" -C "$folder" . || return 1
  echo "gpu/run: $archive has $# programs, $(($(stat -c %s "$archive") >> 20)) MiB"
}

# unpack ARCHIVE FOLDER TORCH: unpacks, or prints why the programs cannot start here. TORCH: LibTorch's libraries; may be empty.
unpack() {
  local programs missing
  rm -rf "$2" && mkdir -p "$2" && tar -xzf "$1" -C "$2" 2>/dev/null ||
    { echo "$1 cannot be unpacked; make it with tests/gpu/run --pack on a machine that has built Farandole"; return 1; }
  programs=("$2"/programs/*)
  [[ -n $3 ]] || programs=("$2"/programs/{*_test,*_speed,mpirun})
  # `ldd -r` also shows which functions the LibTorch of this machine lacks.
  missing=$(LD_LIBRARY_PATH=$2/libraries:$3 ldd -r "${programs[@]}" 2>&1 |
    grep -m 1 -E 'not found|undefined symbol.*/programs/' | sed -E 's/^[[:space:]]+//; s/[[:space:]]+/ /g')
  [[ -z $missing ]] || { echo "the packed programs cannot start here ($missing); build and pack them on a system" \
    "that is no newer than this one, with the same LibTorch"; return 1; }
}
