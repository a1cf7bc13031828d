#!/usr/bin/env bash
# Puts verl, OpenRLHF and SkyRL into virtual environments, .deps/verl, .deps/openrlhf and .deps/skyrl, for contract tests on the CPU. Does
# nothing when they are already there. What cannot be installed is said; the tests of it then fail.
set -euo pipefail
cd "$(dirname "$0")/../.."
. host/setup/lock.sh
. host/setup/pip.sh

# make_environment FOLDER [PYTHON]
make_environment() {
  local python=${2:-python3}
  rm -rf "$1"
  "$python" -m venv "$1" || {
    . host/setup/apt.sh "$(basename "$python")-venv"
    "$python" -m venv "$1"
  }
}

# Prints the path of a Python 3.12: that of the path, or one of pyenv's.
python_3_12() {
  local python
  for python in python3.12 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12.*/bin/python3; do
    "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null || continue
    "$python" -c 'import sys; print(sys.executable)'
    return
  done
  return 1
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

# SkyRL asks for vLLM and flash-attn, which need a GPU's compiler. Its generator, estimators and trainer are imported without them.
# cloudpickle comes with vLLM. On Python 3.11 its TypedDicts fail.
skyrl="skyrl==0.3.0 skyrl-gym==0.4.0"
skyrl_needs="torch==2.11.0 ray==2.56.0 transformers==5.8.0 peft==0.18.1 omegaconf==2.3.0 cloudpickle loguru tensorboard datasets
  cloudpathlib typer rich tqdm jaxtyping aiohttp torchdata pytest"
if [ "$(cat .deps/skyrl/version 2>/dev/null || true)" != "$skyrl $skyrl_needs" ]; then
  if python=$(python_3_12); then
    echo "setup: SkyRL; its training, which needs a GPU, is left out" >&2
    make_environment .deps/skyrl "$python"
    python=.deps/skyrl/bin/python
    { $python -m pip install --quiet --only-binary=:all: --no-binary=antlr4-python3-runtime $skyrl_needs &&
      $python -m pip install --quiet --only-binary=:all: --no-deps $skyrl; } || {
      echo "error: pip could not install $skyrl, which need some 6 GB of disk" >&2
      exit 1
    }
    echo "$skyrl $skyrl_needs" >.deps/skyrl/version
  else
    echo "error: SkyRL needs Python 3.12, and there is neither python3.12 nor one of pyenv's; its tests will fail" >&2
  fi
fi
