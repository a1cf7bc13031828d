#!/usr/bin/env bash
# Puts matplotlib into a virtual environment, .deps/plots. Does nothing when it is already there.
set -euo pipefail
cd "$(dirname "$0")/../.."
. host/setup/venv.sh

install_packages .deps/plots "matplotlib==3.10.9" "; check the network or pip's index settings and run again"
