#!/usr/bin/env bash
# Installs what was built into an empty folder, builds the example plugins against it from outside the tree, and gates them
# with the installed program.   test.sh CMAKE BUILD-DIRECTORY [CUDA-COMPILER]
set -euo pipefail
cmake=$1 build=$2 nvcc=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset GDN_CTS_PROGRAM

"$cmake" --install "$build" --prefix "$work/a prefix" > "$work/install.log"
prefix=$work/a\ prefix
for f in bin/gdn-cts include/gdn_kernel.h share/man/man1/gdn-cts.1 share/gdn-cts/adapters/gdn_cts_adapter/__init__.py; do
  [ -e "$prefix/$f" ] || { echo "not installed: $f"; exit 1; }
done
program=$prefix/bin/gdn-cts

build_example() {
  cp -r "$prefix/share/gdn-cts/examples/$1" "$work/$1"
  "$cmake" -G Ninja -S "$work/$1" -B "$work/$1/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release "${@:2}" > "$work/$1.log" 2>&1 &&
    "$cmake" --build "$work/$1/build" >> "$work/$1.log" 2>&1 || { cat "$work/$1.log"; exit 1; }
}

build_example plugin_cpp
"$program" verify --plugin "$work/plugin_cpp/build/libmy_kernel.so" --level smoke > "$work/verdict" || { cat "$work/verdict"; exit 1; }
tail -1 "$work/verdict"

# The installed adapters find their package, from any folder.
if /usr/bin/python3 -c 'import h5py, numpy' 2>/dev/null; then
  (cd "$work" && "$program" verify --exec "/usr/bin/python3 '$prefix/share/gdn-cts/adapters/numpy_recurrence.py'" --family pass_through --level smoke) > "$work/verdict" ||
    { cat "$work/verdict"; exit 1; }
  tail -1 "$work/verdict"
fi

if [ -n "$nvcc" ]; then
  build_example plugin_cuda -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES=90
  status=0
  "$program" verify --plugin "$work/plugin_cuda/build/libmy_cuda_kernel.so" --family pass_through --level smoke > "$work/verdict" || status=$?
  if [ -e /dev/nvidiactl ]; then [ "$status" -eq 0 ]; else [ "$status" -eq 1 ] && grep -q 'no CUDA device' "$work/verdict"; fi ||
    { cat "$work/verdict"; exit 1; }
  tail -1 "$work/verdict"
fi
