#!/usr/bin/env bash
# Puts PyTorch's CUDA build into .deps/cuda, beside the libtorch that is in use, and compiles the stand-in for the CUDA
# runtime (host/cuda-stub) against its headers.
set -euo pipefail
cd "$(dirname "$0")/../.."

. host/setup/system.sh
. host/setup/lock.sh
version=2.11.0
folder=.deps/cuda
if [ "$(cat $folder/version 2>/dev/null || true)" != "$version" ]; then
  . host/setup/pip.sh
  echo "setup: PyTorch $version for CUDA 13 (4 GB)" >&2
  rm -rf $folder $folder.tmp
  pip_run install --quiet --only-binary=:all: --target $folder.tmp "torch==$version" nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 || {
    echo "error: pip could not install torch $version for CUDA, which needs 10 GB of disk" >&2
    exit 1
  }
  mv $folder.tmp $folder
  echo $version >$folder/version
fi
mkdir -p target/cuda-stub
g++ -O1 -std=c++17 -Wall -Wextra -Wno-missing-field-initializers -shared -fPIC -I $folder/nvidia/cu13/include \
  -o target/cuda-stub/libcudastub.so host/cuda-stub/{runtime,blas,driver,record}.cpp
ln -sf libcudastub.so target/cuda-stub/libcuda.so.1
