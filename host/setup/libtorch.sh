#!/usr/bin/env bash
# Puts libtorch 2.11 into .deps/torch: the CPU libraries alone, or, where an NVIDIA GPU is present, the CUDA build.
# CORVER_TORCH=cuda or =cpu chooses. Does nothing when it is already there. A CUDA build stays on a machine without a GPU.
# The two layouts share their paths, so the built binary does not change. An installed libtorch stays until the new one is complete.
set -euo pipefail
cd "$(dirname "$0")/../.."

[ -n "${LIBTORCH:-}" ] && exit 0 # the user's own
. host/setup/lock.sh
torch_version=2.11.0
stamp=.deps/torch/corver-layout
installed=$(cat "$stamp" 2>/dev/null || true)
. host/setup/gpu.sh
choose_layout "${CORVER_TORCH:-}" "${installed#* }" libtorch CORVER_TORCH
[ "$installed" = "$torch_version $layout" ] && exit 0

[ "$(uname -sm)" = "Linux x86_64" ] || {
  echo "error: make setup knows how to fetch libtorch for Linux x86-64 only; set LIBTORCH to a libtorch $torch_version of your own" >&2
  exit 1
}
. host/setup/pip.sh
. host/setup/replace.sh
echo "setup: libtorch $torch_version ($layout)" >&2
begin_replacement .deps/torch.tmp libtorch "$torch_version $layout" "$installed" CORVER_TORCH

if [ "$layout" = cuda ]; then
  pip_run install --quiet --target .deps/torch.tmp "torch==$torch_version" || {
    echo "error: could not install torch==$torch_version with pip; check the network or pip's index settings and run again" >&2
    exit 1
  }
else
  # Two small wheels beside it: libtorch_cpu.so is linked against cudart and cupti even where no GPU exists.
  fetch_wheels .deps/torch.tmp/wheels "torch==$torch_version" nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85
  python3 - .deps/torch.tmp <<'PY'
import glob, os, re, shutil, sys, zipfile
root = sys.argv[1]
wanted = re.compile(r"torch/include/|torch/lib/(libtorch_cpu|libc10)\.so$|torch/lib/libgomp|nvidia/cu13/lib/lib(cudart|cupti)\.so\.\d+$")
for wheel in glob.glob(os.path.join(root, "wheels", "*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if wanted.match(name):
                archive.extract(name, root)
shutil.rmtree(os.path.join(root, "wheels"))
PY
  # The wheel's libtorch.so pulls in CUDA. This empty one has its name and needs the CPU library alone.
  gcc -shared -fPIC -x c /dev/null -o .deps/torch.tmp/torch/lib/libtorch.so -Wl,-soname,libtorch.so \
    -Wl,--no-as-needed -L.deps/torch.tmp/torch/lib -l:libtorch_cpu.so -Wl,-rpath,'$ORIGIN' \
    -Wl,--unresolved-symbols=ignore-in-shared-libs
fi
echo "$torch_version" >.deps/torch.tmp/torch/build-version
echo "$torch_version $layout" >.deps/torch.tmp/torch/corver-layout
put_in_place torch nvidia
