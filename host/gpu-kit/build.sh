#!/usr/bin/env bash
# Packs the binaries, the rules and ONNX Runtime's CPU library into target/gpu-kit, a folder for a machine with a GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
kit=target/gpu-kit
rm -rf "$kit" && mkdir -p "$kit/content/plugins"
strip -o "$kit/content/corver-host" target/release/corver-host
strip -o "$kit/content/at_scale" target/release/examples/at_scale
cp .deps/onnxruntime/libonnxruntime.so "$kit/content/"
cp -r plugins/dist "$kit/content/plugins/dist"
tar -C "$kit/content" -c . | xz -T0 -6 >"$kit/kit.tar.xz"
rm -r "$kit/content"
cp host/gpu-kit/run.sh host/gpu-kit/README.md "$kit/"
du -sh "$kit" >&2
