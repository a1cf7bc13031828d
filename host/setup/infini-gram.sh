#!/usr/bin/env bash
# Puts the official engine (the infini-gram wheel) into a virtual environment, .deps/infini-gram, for comparisons. Does
# nothing when it is already there. Its indexer imports numpy and transformers, which the wheel does not ask for, and the slow
# Llama-2 tokenizer, which transformers 5 no longer has, needs the other two.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=2.6.0
packages="infini-gram==$version numpy transformers==4.57.1 sentencepiece protobuf"
folder=.deps/infini-gram
[ "$(cat $folder/version 2>/dev/null || true)" = "$packages" ] && exit 0
. host/setup/pip.sh
echo "setup: infini-gram $version" >&2
rm -rf $folder
python3 -m venv $folder || {
  . host/setup/apt.sh python3-venv
  python3 -m venv $folder
}
$folder/bin/python -m pip install --quiet --only-binary=:all: $packages || {
  echo "error: pip could not install infini-gram $version, which needs Python 3.11 or later and has wheels for Linux x86-64" >&2
  exit 1
}
echo "$packages" >$folder/version
