#!/usr/bin/env bash
# Compiles every rule to WebAssembly: plugins/dist/NAME.wasm. Quick when nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
plugins/cargo-wasm.sh build --quiet --release --target-dir plugins/target/wasm --manifest-path plugins/Cargo.toml

mkdir -p plugins/dist
for rule in plugins/*/Cargo.toml; do
  name=$(basename "$(dirname "$rule")")
  built=plugins/target/wasm/wasm32-unknown-unknown/release/${name//-/_}.wasm
  # Untouched where equal, so that nothing downstream sees a new file; moved into place, so that nobody sees half of one.
  cmp -s "$built" "plugins/dist/$name.wasm" || { install -m 644 "$built" "plugins/dist/$name.wasm.tmp" && mv "plugins/dist/$name.wasm.tmp" "plugins/dist/$name.wasm"; }
done
