#!/usr/bin/env bash
# Makes a Python environment with PyTorch and Hugging Face transformers for transformers_qwen3_next.py. Not needed by
# the suite itself. About 5.6 GB of disk: PyTorch's only Linux wheel on PyPI brings its CUDA libraries along.
# ./tools/adapters/setup_transformers.sh [DIRECTORY]        default: build/venv-transformers in this checkout
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" >/dev/null && pwd)
target=${1:-$here/../../build/venv-transformers}
python=${PYTHON:-python3}

pins=(torch==2.15.0 transformers==5.24.0 h5py==3.16.0 numpy==2.4.6)   # the versions the adapter was tried with

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "setup_transformers: needs Python 3.11 or newer (set PYTHON to one)" >&2; exit 3; }
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  { echo "setup_transformers: $python has no venv module (Debian: apt-get install python3-venv)" >&2; exit 3; }
[ -x "$target/bin/python" ] || "$python" -m venv "$target"
"$target/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "${pins[@]}"
target=$(cd -- "$target" >/dev/null && pwd)
"$target/bin/python" - <<'CHECK'
import torch, transformers
print(f"ready: torch {torch.__version__}, transformers {transformers.__version__}")
CHECK
echo "gdn-cts verify --exec '\"$target/bin/python\" \"$here/transformers_qwen3_next.py\" chunk'"
