#!/usr/bin/env bash
# Puts transformers, peft and trl into a virtual environment, .deps/peers, for comparisons. Does nothing when it is already there.
set -euo pipefail
cd "$(dirname "$0")/../.."

packages="torch==2.11.0 transformers==5.23.0 peft==0.21.2 trl==1.16.0 accelerate safetensors"
folder=.deps/peers
[ "$(cat $folder/version 2>/dev/null || true)" = "$packages" ] && exit 0
. host/setup/pip.sh
echo "setup: transformers, peft and trl" >&2
rm -rf $folder
python3 -m venv $folder || {
  . host/setup/apt.sh python3-venv
  python3 -m venv $folder
}
$folder/bin/python -m pip install --quiet --only-binary=:all: $packages || {
  echo "error: pip could not install $packages, which need Python 3.11 or later and some 6 GB of disk" >&2
  exit 1
}
echo "$packages" >$folder/version
