#!/usr/bin/env bash
# Puts the official engine (the infini-gram wheel) into a virtual environment, .deps/infini-gram, for comparisons. Does
# nothing when it is already there. Its indexer imports numpy, which the wheel does not ask for; `transformers` it needs only to
# tokenise, and nothing here lets it.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=2.6.0
folder=.deps/infini-gram
[ "$(cat $folder/version 2>/dev/null || true)" = "$version" ] && exit 0
. host/setup/pip.sh
echo "setup: infini-gram $version" >&2
rm -rf $folder
python3 -m venv $folder || {
  . host/setup/apt.sh python3-venv
  python3 -m venv $folder
}
$folder/bin/python -m pip install --quiet --only-binary=:all: "infini-gram==$version" numpy || {
  echo "error: pip could not install infini-gram $version, which needs Python 3.11 or later and has wheels for Linux x86-64" >&2
  exit 1
}
echo "$version" >$folder/version
