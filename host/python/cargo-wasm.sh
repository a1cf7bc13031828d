#!/usr/bin/env bash
# cargo-wasm.sh ARGUMENTS…: cargo, for wasm32-unknown-unknown. `corver-host plugin build` calls it.
set -euo pipefail
command -v cargo >/dev/null 2>&1 || {
  echo "error: rules in Rust are compiled by cargo, which is not installed; https://rustup.rs has it" >&2
  exit 1
}
target=wasm32-unknown-unknown
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
  echo "error: Rust cannot compile for $target yet; \`rustup target add $target\` lets it" >&2
  exit 1
fi
exec cargo "$@" --target $target
