#!/usr/bin/env bash
# Puts ONNX Runtime's shared library into .deps/onnxruntime. Does nothing when it is already there.
set -euo pipefail
cd "$(dirname "$0")/../.."

[ -n "${ORT_DYLIB_PATH:-}" ] && exit 0 # the user's own
version=1.23.2
[ "$(cat .deps/onnxruntime/version 2>/dev/null || true)" = "$version" ] && exit 0
[ "$(uname -sm)" = "Linux x86_64" ] || {
  echo "error: make setup knows how to fetch ONNX Runtime for Linux x86-64 only; set ORT_DYLIB_PATH to a libonnxruntime of your own" >&2
  exit 1
}
. host/setup/pip.sh
echo "setup: ONNX Runtime $version" >&2
rm -rf .deps/onnxruntime .deps/onnxruntime.tmp
fetch_wheels .deps/onnxruntime.tmp "onnxruntime==$version"
python3 - .deps/onnxruntime.tmp "$version" <<'PY'
import glob, os, shutil, sys, zipfile
root, version = sys.argv[1:]
for wheel in glob.glob(os.path.join(root, "*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for name, as_name in (("libonnxruntime.so." + version, "libonnxruntime.so"),
                              ("libonnxruntime_providers_shared.so", "libonnxruntime_providers_shared.so")):
            with archive.open("onnxruntime/capi/" + name) as source, open(os.path.join(root, as_name), "wb") as target:
                shutil.copyfileobj(source, target)
    os.remove(wheel)
PY
echo "$version" >.deps/onnxruntime.tmp/version
mv .deps/onnxruntime.tmp .deps/onnxruntime
