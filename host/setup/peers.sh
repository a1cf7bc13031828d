#!/usr/bin/env bash
# Puts transformers, peft and trl into a virtual environment, .deps/peers, for comparisons. Does nothing when it is already there.
set -euo pipefail
cd "$(dirname "$0")/../.."
. host/setup/venv.sh

install_packages .deps/peers "torch==2.11.0 transformers==5.23.0 peft==0.21.2 trl==1.16.0 accelerate safetensors" \
  ", which need Python 3.11 or later and some 6 GB of disk"
