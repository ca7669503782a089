#!/usr/bin/env bash
# All figures of speed from one run, as Markdown on standard output: every command with what it printed, and the times of the
# gate of each CPU kernel. To be run on a machine that has nothing else to do; about a quarter of an hour on two cores.
# ./tools/speed.sh [--ggml LIB.so] [--transformers 'COMMAND'] > FILE.md
#   --ggml LIB.so             tools/peers/ggml_plugin.cpp, built
#   --transformers COMMAND    tools/adapters/transformers_qwen3_next.py chunk, in the environment it needs
# build/bin/gdn-cts is measured (GDN_CTS names another). Exit status: 0; 1 a gate did not pass; 2 wrong use; else that of the command that failed.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
suite=${GDN_CTS:-build/bin/gdn-cts}
ggml= transformers=
while [ $# -gt 0 ]; do
  case $1:$# in
    --ggml:1 | --transformers:1) echo "speed: $1 needs a value" >&2; exit 2 ;;
    --ggml:*) ggml=$2 ;;
    --transformers:*) transformers=$2 ;;
    *) echo "usage: ./tools/speed.sh [--ggml LIB.so] [--transformers 'COMMAND'] > FILE.md" >&2; exit 2 ;;
  esac
  shift 2
done
[ -x "$suite" ] || { echo "speed: $suite is not there; build it, or name it by GDN_CTS" >&2; exit 2; }

heading() { printf '\n## %s\n' "$1"; }
# The command as a reader would type it: the places of programs and peers on this machine are left out.
shown() {
  local word text=
  for word; do
    case $word in
      "$suite") word=gdn-cts ;;
      "$ggml") word=libggml_plugin.so ;;
      "$transformers") word="'python3 tools/adapters/transformers_qwen3_next.py chunk'" ;;
    esac
    text+=" $word"
  done
  echo "${text# }"
}
bench() { # [NAME=VALUE...] options of gdn-cts bench
  local -a set=()
  while [[ $1 == *=* && $1 != --* ]]; do set+=("$1"); shift; done
  printf '\n```\n$ %s\n' "$(shown ${set[@]+"${set[@]}"} "$suite" bench "$@")"
  env ${set[@]+"${set[@]}"} "$suite" bench "$@"
  printf '```\n'
}

prefill=prefill/n1_t512_h16_hv32_k128_v128/fp32/h0
decode=decode/n1_t1_h16_hv32_k128_v128/fp32/h0,slots=1

echo "# Speed: one run"
heading "Oracle, one head of 4096 tokens, and multiprecision on the same work"
bench --what oracle --threads 1
if grep -qw avx512f /proc/cpuinfo; then bench GDN_ISA=avx2 --what oracle --threads 1; fi

heading "Kernels beside ggml's operator"
peer=(${ggml:+--peer "$ggml"})
for problem in "$prefill" "$decode"; do
  for threads in 1 2; do bench --what kernels --threads $threads --repeats 15 --problem "$problem" ${peer[@]+"${peer[@]}"}; done
done

if [ -n "$transformers" ]; then
  heading "Kernels beside transformers' PyTorch functions"
  bench --what kernels --threads 2 --repeats 3 --problem "$prefill" --peer "$transformers"
fi

heading "Growth: exponents of time, 1 is linear"
bench --what growth --repeats 3 --threads 1

heading "The gate of a kernel, two threads"
printf '\n`gdn-cts verify --kernel NAME --level LEVEL --golden DIR`: with sigma in DIR and no expected results, and once more. Wall time, and processor time of all threads.\n'
printf '\n| kernel | level | first | again |\n|---|---|---|---|\n'
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
TIMEFORMAT='%R %U %S'
gate() { "$suite" verify --kernel "$1" --level "$2" --golden "$dir/$2" --threads 2 >"$dir/text" 2>/dev/null || tee -a "$dir/failed" <"$dir/text" >&2; }
timed() { { time gate "$@"; } 2>&1 | tail -n 1 | awk '{printf "%.1f s (%.1f s)", $1, $2 + $3}'; }
for level in smoke ci; do
  for kernel in cpu_recurrent_fp32 cpu_recurrent_bf16 cpu_chunk_fp32 cpu_chunk_bf16; do
    gate "$kernel" "$level"                        # makes sigma, and says whether the kernel passes
    rm -f "$dir/$level"/*.h5 "$dir/$level"/manifest.jsonl
    first=$(timed "$kernel" "$level")
    printf '| `%s` | %s | %s | %s |\n' "$kernel" "$level" "$first" "$(timed "$kernel" "$level")"
  done
done
[ ! -e "$dir/failed" ]
