#!/usr/bin/env bash
# The gate, whole: builds the suite, makes the certified golden data of a level, judges the four core CPU kernels with
# it and leaves a report in out/report. Run again it rebuilds only what changed and reads the golden data it has.
# ./tools/gate.sh [LEVEL]       ci when not given; smoke, nightly, exhaustive
# Exit status: that of gdn-cts verify, 0 when all four kernels pass.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
root=$PWD
level=${1:-ci}
case $#:$level in
  [01]:smoke | [01]:ci | [01]:nightly | [01]:exhaustive) ;;
  *) echo "usage: ./tools/gate.sh [smoke|ci|nightly|exhaustive]" >&2; exit 2 ;;
esac

./tools/bootstrap.sh
cmake --preset release >&2
cmake --build --preset release --target gdn-cts >&2

out=$root/out
suite=$root/build/bin/gdn-cts
kernels=(cpu_recurrent_fp32 cpu_recurrent_bf16 cpu_chunk_fp32 cpu_chunk_bf16)

mkdir -p "$out/records"
# Made once; verify itself replaces what is missing, damaged or made by another edition.
if [ ! -e "$out/golden-$level.done" ]; then
  "$suite" generate --level "$level" -o "$out/golden"
  touch "$out/golden-$level.done"
fi
status=0
records=()
for kernel in "${kernels[@]}"; do
  record=$out/records/$kernel.jsonl
  s=0
  text=$("$suite" verify --kernel "$kernel" --golden "$out/golden" --level "$level" --json "$record") || s=$?
  [ "$s" -eq 0 ] || printf '%s\n\n' "$text"   # the table of a kernel that passes is in the report below
  [ "$s" -le 1 ] || exit "$s"                 # wrong use, or the suite itself could not run
  [ "$s" -eq 0 ] || status=1
  records+=("$record")
done
"$suite" report "${records[@]}" -o "$out/report"
exit "$status"
