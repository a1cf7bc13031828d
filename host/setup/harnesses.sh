#!/usr/bin/env bash
# Puts Inspect AI, two releases of verifiers and a client of the Model Context Protocol into virtual environments, .deps/inspect,
# .deps/verifiers, .deps/rubric and .deps/mcp, for contract tests. Does nothing when they are already there.
set -euo pipefail
cd "$(dirname "$0")/../.."
. host/setup/pip.sh

# install NAME PACKAGES
install() {
  [ "$(cat ".deps/$1/version" 2>/dev/null || true)" = "$2" ] && return
  echo "setup: $1" >&2
  rm -rf ".deps/$1"
  python3 -m venv ".deps/$1" || {
    . host/setup/apt.sh python3-venv
    python3 -m venv ".deps/$1"
  }
  # wget, which the older verifiers asks for, is no wheel.
  ".deps/$1/bin/python" -m pip install --quiet --only-binary=:all: --no-binary=wget $2 || {
    echo "error: pip could not install $2, which need Python 3.11 or later" >&2
    exit 1
  }
  echo "$2" >".deps/$1/version"
}

install inspect "inspect-ai==0.3.285"
install verifiers "verifiers==0.4.0"
install rubric "verifiers==0.1.9.post2"
install mcp "mcp==2.3.0"
