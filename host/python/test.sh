#!/usr/bin/env bash
# Installs the wheel, and nothing else, into a clean environment, target/wheel-env, and tests it from there.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
environment=$root/target/wheel-env

. host/setup/pip.sh
rm -rf "$environment"
python3 -m venv "$environment" || {
  . host/setup/apt.sh python3-venv
  python3 -m venv "$environment"
}
"$environment/bin/python" -m pip install --quiet --no-index target/wheels/corver-*.whl

# Nothing of the checkout is on a path, except the tests and mypy.
cd "$environment"
env -u ORT_DYLIB_PATH -u PYTHONPATH -u LIBTORCH XDG_CACHE_HOME="$environment/cache" PATH="$PATH:$root/.deps/wheel/bin" \
  bin/python -W error -m unittest discover --start-directory "$root/host/python/tests"
