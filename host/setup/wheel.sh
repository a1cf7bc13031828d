#!/usr/bin/env bash
# Puts build and hatchling, which pack wheels, and mypy, which checks their type stubs, into a virtual environment,
# .deps/wheel. Does nothing when it is already there.
set -euo pipefail
cd "$(dirname "$0")/../.."
. host/setup/venv.sh

install_packages .deps/wheel "build==1.6.1 hatchling==1.33.0 mypy==2.4.1" "; check the network or pip's index settings and run again"
