#!/usr/bin/env bash
# Compiles every rule to WebAssembly: plugins/dist/NAME.wasm. Quick when nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
plugins/cargo-wasm.sh build --quiet --release --target-dir plugins/target/wasm --manifest-path plugins/Cargo.toml

mkdir -p plugins/dist
for rule in plugins/*/Cargo.toml; do
  name=$(basename "$(dirname "$rule")")
  built=plugins/target/wasm/wasm32-unknown-unknown/release/${name//-/_}.wasm
  # Untouched where equal, so that nothing downstream sees a new file.
  cmp -s "$built" "plugins/dist/$name.wasm" && continue
  # Moved into place, so that no reader sees half of a file. The name is new, since two builds may run concurrently.
  new=$(mktemp "plugins/dist/.$name.XXXXXX")
  trap 'rm -f "$new"' EXIT
  install -m 644 "$built" "$new"
  mv "$new" "plugins/dist/$name.wasm"
done
# Rules that an earlier build installed, and that are no longer in the checkout. Other files are the user's: rules are searched for in
# this folder by name.
note=plugins/target/installed
touch "$note"
while read -r name; do
  [ -e "plugins/$name/Cargo.toml" ] || rm -f "plugins/dist/$name.wasm"
done <"$note"
for rule in plugins/*/Cargo.toml; do basename "$(dirname "$rule")"; done >"$note"
