#!/usr/bin/env bash
# The gate, whole: builds the suite, makes the certified golden data of level ci, judges the four core CPU kernels with
# it and leaves a report. Run again it rebuilds only what changed and reads the golden data it has.
# ./tools/gate.sh [OPTIONS OF gdn-cts verify]     for example  ./tools/gate.sh --level smoke
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
root=$PWD
./tools/bootstrap.sh
cmake --preset release >&2
cmake --build --preset release --target gdn-cts >&2

out=$root/out
level=ci
arguments=("$@")
for i in "${!arguments[@]}"; do
  case ${arguments[i]} in
    --level) level=${arguments[i + 1]:-} ;;
    --level=*) level=${arguments[i]#--level=} ;;
  esac
done
[ "$level" = ci ] && arguments+=(--level ci)
suite=$root/build/bin/gdn-cts
kernels=(cpu_recurrent_fp32 cpu_recurrent_bf16 cpu_chunk_fp32 cpu_chunk_bf16)

mkdir -p "$out/records"
"$suite" generate --level "$level" -o "$out/golden"
status=0
records=()
for kernel in "${kernels[@]}"; do
  record=$out/records/$kernel.jsonl
  s=0
  text=$("$suite" verify --kernel "$kernel" --golden "$out/golden" --json "$record" "${arguments[@]}") || s=$?
  [ "$s" -eq 0 ] || printf '%s\n\n' "$text"   # the table of a kernel that passes is in the report below
  [ "$s" -le 1 ] || exit "$s"                 # wrong use, or the suite itself could not run
  [ "$s" -eq 0 ] || status=1
  records+=("$record")
done
"$suite" report "${records[@]}" -o "$out/report"
exit "$status"
