#!/usr/bin/env bash
# Builds the Python package: target/wheels/corver-*.whl, with corver-host, the rules, ONNX Runtime, SDK and contract inside.
set -euo pipefail
cd "$(dirname "$0")/../.."
package=host/python/corver

# Cargo writes this corver-host, which has no libtorch, to the place of the other one.
program=target/release/corver-host
if [ -e $program ]; then
  mv $program $program.torch
  trap 'mv $program.torch $program' EXIT
fi
# `download` is named so that cargo selects the features of the tests, and compiles what these need once.
cargo build --locked --release --target-dir target --lib --bin corver-host --test download

rm -rf $package/{bin,lib,plugins,sdk,wit,_native.abi3.so}
mkdir -p $package/bin $package/lib $package/plugins/dist
strip -o $package/bin/corver-host $program
strip -o $package/_native.abi3.so target/release/lib_native.so
cp "${ORT_DYLIB_PATH:-.deps/onnxruntime/libonnxruntime.so}" $package/lib/libonnxruntime.so
cp plugins/dist/*.wasm $package/plugins/dist/
cp host/python/cargo-wasm.sh $package/plugins/
# Without the build outputs of the examples.
tar --create --dereference --exclude='*.wasm' --exclude=node_modules --exclude=bindings --exclude=__pycache__ --exclude=sdk/tests sdk wit \
  | tar --extract --directory $package
# The SDK inherits its versions from a workspace.
sed '/^members = \[/,/^\]/c members = ["sdk"]
/^default-members = \[/,/^\]/d; /^# A plain/d; /^exclude = /d; /^\[profile/,$d' Cargo.toml >$package/Cargo.toml

cp README.md host/python/README.md
rm -f target/wheels/corver-*.whl
.deps/wheel/bin/python -m build --wheel --no-isolation --outdir target/wheels host/python
