#!/usr/bin/env bash
# Builds the Python package: target/wheels/corver-*.whl, with corver-host, the rules, ONNX Runtime, SDK and contract inside.
set -euo pipefail
cd "$(dirname "$0")/../.."
package=host/python/corver

# A separate target folder: this corver-host has no libtorch, and must not replace the other one.
export CARGO_TARGET_DIR=$PWD/target/wheel
cargo build --locked --release -p corver-host

rm -rf $package/bin $package/lib $package/plugins $package/sdk $package/wit
mkdir -p $package/bin $package/lib $package/plugins/dist
strip -o $package/bin/corver-host "$CARGO_TARGET_DIR/release/corver-host"
cp "${ORT_DYLIB_PATH:-.deps/onnxruntime/libonnxruntime.so}" $package/lib/libonnxruntime.so
cp plugins/dist/*.wasm $package/plugins/dist/
cp host/python/cargo-wasm.sh $package/plugins/
# Without the build outputs of the examples.
tar --create --dereference --exclude='*.wasm' --exclude=node_modules --exclude=bindings --exclude=__pycache__ --exclude=sdk/tests sdk wit \
  | tar --extract --directory $package
# The SDK inherits its versions from a workspace.
sed '/^members = \[/,/^\]/c members = ["sdk"]
/^default-members = \[/,/^\]/d; /^# A plain/d; /^exclude = /d; /^\[profile/,$d' Cargo.toml >$package/Cargo.toml

rm -f target/wheels/corver-*.whl
.deps/maturin/bin/maturin build --locked --release --manifest-path host/python/Cargo.toml --out target/wheels
