#!/usr/bin/env bash
# Puts the official engine (the infini-gram wheel) into a virtual environment, .deps/infini-gram, for comparisons. Does
# nothing when it is already there. Its indexer imports numpy and transformers, which the wheel does not ask for, and the slow
# Llama-2 tokenizer, which transformers 5 no longer has, needs the other two.
set -euo pipefail
cd "$(dirname "$0")/../.."
. host/setup/venv.sh

install_packages .deps/infini-gram "infini-gram==2.6.0 numpy transformers==4.57.1 sentencepiece protobuf" \
  ", which need Python 3.11 or later and have wheels for Linux x86-64"
