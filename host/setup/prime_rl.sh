#!/usr/bin/env bash
# Puts the source of prime-rl, which is on no package index, and the packages that its orchestrator's algorithms import into .deps/prime-rl.
# torch is that of .deps/peers. Does nothing when they are already there.
set -euo pipefail
cd "$(dirname "$0")/../.."
. host/setup/pip.sh
host/setup/peers.sh
. host/setup/lock.sh

commit=559b44772e471d1538537b8805cc77f3824a5e64 # 0.8.1.dev67
packages="verifiers==0.4.0 msgspec==0.22.0 pybase64==1.5.1 orjson==3.13.0 wandb==0.31.0"
folder=.deps/prime-rl
[ "$(cat $folder/version 2>/dev/null || true)" = "$commit $packages" ] && exit 0
echo "setup: prime-rl's algorithms; its training, which needs GPUs, is left out" >&2
rm -rf $folder
python3 -m venv $folder || {
  . host/setup/apt.sh python3-venv
  python3 -m venv $folder
}
git clone --quiet https://github.com/PrimeIntellect-ai/prime-rl $folder/source && git -C $folder/source checkout --quiet $commit || {
  echo "error: git could not fetch commit $commit of https://github.com/PrimeIntellect-ai/prime-rl" >&2
  exit 1
}
$folder/bin/python -m pip install --quiet --only-binary=:all: $packages || {
  echo "error: pip could not install $packages" >&2
  exit 1
}
site='import sysconfig; print(sysconfig.get_path("purelib"))'
.deps/peers/bin/python -c "$site" >"$($folder/bin/python -c "$site")/peers.pth"
printf '%s\n' "$PWD/$folder/source/src" "$PWD/$folder/source/packages/prime-rl-configs/src" >"$($folder/bin/python -c "$site")/source.pth"
echo "$commit $packages" >$folder/version
