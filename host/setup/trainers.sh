#!/usr/bin/env bash
# Puts verl and OpenRLHF into virtual environments, .deps/verl and .deps/openrlhf, for contract tests on the CPU. Does nothing when they
# are already there. What cannot be installed is said; the tests of it then fail.
set -euo pipefail
cd "$(dirname "$0")/../.."
. host/setup/pip.sh

# make_environment FOLDER PACKAGES
make_environment() {
  rm -rf "$1"
  python3 -m venv "$1" || {
    . host/setup/apt.sh python3-venv
    python3 -m venv "$1"
  }
}

# cachetools, uvicorn and fastapi: verl imports them and does not ask for them. Hydra needs an antlr4 that is no wheel; without it, pip
# goes back to a Hydra that verl cannot use.
verl="torch==2.11.0 verl==0.9.1 TransferQueue==0.1.11 hydra-core==1.3.8 cachetools uvicorn fastapi pytest"
if [ "$(cat .deps/verl/version 2>/dev/null || true)" != "$verl" ]; then
  echo "setup: verl" >&2
  make_environment .deps/verl
  .deps/verl/bin/python -m pip install --quiet --only-binary=:all: --no-binary=antlr4-python3-runtime $verl || {
    echo "error: pip could not install $verl, which need Python 3.10 to 3.12 and some 6 GB of disk" >&2
    exit 1
  }
  echo "$verl" >.deps/verl/version
fi

# OpenRLHF asks for deepspeed, flash-attn and bitsandbytes, which need a GPU's compiler. Its client of reward models does without;
# torch is borrowed from the other environment.
openrlhf="openrlhf==0.11.2 transformers==5.15.0 aiohttp sympy pylatexenc pytest"
if [ "$(cat .deps/openrlhf/version 2>/dev/null || true)" != "$openrlhf" ]; then
  echo "setup: OpenRLHF's client; its training, which needs a GPU, is left out" >&2
  make_environment .deps/openrlhf
  python=.deps/openrlhf/bin/python
  { $python -m pip install --quiet --only-binary=:all: ${openrlhf#* } &&
    $python -m pip install --quiet --only-binary=:all: --no-deps "${openrlhf%% *}"; } || {
    echo "error: pip could not install $openrlhf" >&2
    exit 1
  }
  packages='import sysconfig; print(sysconfig.get_path("purelib"))'
  $PWD/.deps/verl/bin/python -c "$packages" >"$($python -c "$packages")/torch-of-verl.pth"
  echo "$openrlhf" >.deps/openrlhf/version
fi
