#!/usr/bin/env bash
# Puts matplotlib into a virtual environment, .deps/plots. Does nothing when it is already there.
set -euo pipefail
cd "$(dirname "$0")/../.."

packages="matplotlib==3.10.9"
folder=.deps/plots
[ "$(cat $folder/version 2>/dev/null || true)" = "$packages" ] && exit 0
. host/setup/pip.sh
echo "setup: matplotlib" >&2
rm -rf $folder
python3 -m venv $folder || {
  . host/setup/apt.sh python3-venv
  python3 -m venv $folder
}
$folder/bin/python -m pip install --quiet --only-binary=:all: $packages || {
  echo "error: pip could not install $packages; check the network or pip's index settings and run again" >&2
  exit 1
}
echo "$packages" >$folder/version
