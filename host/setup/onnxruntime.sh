#!/usr/bin/env bash
# Puts ONNX Runtime's shared library into .deps/onnxruntime: the CPU's, or, where an NVIDIA GPU is present, the build for CUDA 13, whose
# libraries come with libtorch's. CORVER_ONNXRUNTIME=cuda or =cpu chooses. Does nothing when it is already there. A CUDA
# build stays on a machine without a GPU. An installed library stays until the new one is complete.
set -euo pipefail
cd "$(dirname "$0")/../.."

[ -n "${ORT_DYLIB_PATH:-}" ] && exit 0 # the user's own
. host/setup/lock.sh
version=1.31.1
installed=$(cat .deps/onnxruntime/version 2>/dev/null || true)
. host/setup/gpu.sh
choose_layout "${CORVER_ONNXRUNTIME:-}" "${installed#* }" "ONNX Runtime" CORVER_ONNXRUNTIME
[ "$installed" = "$version $layout" ] && exit 0
[ "$(uname -sm)" = "Linux x86_64" ] || {
  echo "error: make setup knows how to fetch ONNX Runtime for Linux x86-64 only; set ORT_DYLIB_PATH to a libonnxruntime of your own" >&2
  exit 1
}
. host/setup/pip.sh
. host/setup/replace.sh
echo "setup: ONNX Runtime $version ($layout)" >&2
begin_replacement .deps/onnxruntime.tmp "ONNX Runtime" "$version $layout" "$installed" CORVER_ONNXRUNTIME
new=.deps/onnxruntime.tmp/onnxruntime
if [ "$layout" = cuda ]; then package=onnxruntime-gpu; else package=onnxruntime; fi
fetch_wheels "$new" "$package==$version"
python3 - "$new" "$version" "$layout" <<'PY'
import glob, os, shutil, sys, zipfile
root, version, layout = sys.argv[1:]
libraries = {"libonnxruntime.so." + version: "libonnxruntime.so", "libonnxruntime_providers_shared.so": None}
if layout == "cuda":
    libraries["libonnxruntime_providers_cuda.so"] = None
for wheel in glob.glob(os.path.join(root, "*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for name, as_name in libraries.items():
            with archive.open("onnxruntime/capi/" + name) as source, open(os.path.join(root, as_name or name), "wb") as target:
                shutil.copyfileobj(source, target)
    os.remove(wheel)
PY
echo "$version $layout" >"$new/version"
put_in_place onnxruntime
