#!/usr/bin/env bash
# Builds the project and runs every test, on a machine that may be empty; what CI runs. Ends with CTest's summary.
# ./tools/test.sh [CTEST ARGUMENTS]    for example  ./tools/test.sh -R process
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
./tools/bootstrap.sh
cmake --preset release >&2
cmake --build --preset release >&2
exec ctest --preset release -j "$(nproc)" "$@"
