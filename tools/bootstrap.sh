#!/usr/bin/env bash
# Installs what the build needs and this machine lacks (Debian, Ubuntu). Why: ./tools/test.sh and ./tools/gate.sh
# have to work on an empty machine with nothing but git, and must need neither root nor network where all is there.
set -euo pipefail

packages=(g++ cmake ninja-build libeigen3-dev catch2 libhdf5-dev hdf5-tools libmpfr-dev libcli11-dev libfmt-dev
          nlohmann-json3-dev libssl-dev gnuplot-nox python3-h5py python3-numpy python3-pytest git)

if ! command -v dpkg-query >/dev/null; then
  echo "bootstrap: not a Debian or Ubuntu system; install the equivalents of: ${packages[*]} and Boost headers >= 1.74" >&2
  exit 0   # the configure step names what is missing
fi

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
# Debian 12 has Boost 1.81 beside 1.74, and their -dev packages conflict: any Boost already here is kept.
boost=present
[ -e /usr/include/boost/version.hpp ] || boost=missing
if [ "${#missing[@]}" -eq 0 ] && [ "$boost" = present ]; then
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    [ "$boost" = missing ] && missing+=("libboost1.81-dev (or libboost-dev)")
    echo "bootstrap: these packages are missing, and installing them needs root or sudo: ${missing[*]}" >&2
    exit 3
  fi
  as_root=(sudo)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" >&2; }
# An empty machine has no package lists, an old one has lists of versions that are gone.
known() { apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [^(]'; }

updated=no
update() { [ "$updated" = yes ] || { apt update; updated=yes; }; }
for package in "${missing[@]}"; do known "$package" || update; done
if [ "$boost" = missing ]; then
  known libboost1.81-dev || update
  if known libboost1.81-dev; then missing+=(libboost1.81-dev); else missing+=(libboost-dev); fi
fi
echo "bootstrap: installing ${missing[*]}" >&2
if ! apt install -y --no-install-recommends "${missing[@]}"; then
  [ "$updated" = no ] || { echo "bootstrap: apt-get could not install: ${missing[*]}" >&2; exit 3; }
  update
  apt install -y --no-install-recommends "${missing[@]}" || { echo "bootstrap: apt-get could not install: ${missing[*]}" >&2; exit 3; }
fi
