#!/usr/bin/env bash
# Compiles every rule to WebAssembly: plugins/dist/NAME.wasm. Quick when nothing changed.
#
# With rustup this is no more than `cargo build --release --target wasm32-unknown-unknown`; the rest is for machines
# where rustup's server cannot be reached (see host/setup/wasm.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
host/setup/wasm.sh

build=(build --quiet --release --target wasm32-unknown-unknown --target-dir plugins/target/wasm --manifest-path plugins/Cargo.toml)
if [ "$(cat .deps/wasm-toolchain)" = rustup ]; then
  cargo "${build[@]}"
else
  linker=$(rustc --print sysroot 2>/dev/null || true)/lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld
  if [ ! -x "$linker" ]; then
    linker=$(compgen -c wasm-ld | sort -V | tail -n 1 || true)
    [ -n "$linker" ] || { . host/setup/apt.sh lld && linker=wasm-ld; }
  fi
  # Set for this command alone: RUSTC would otherwise leak into builds of the host.
  RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$linker \
    /usr/bin/cargo "${build[@]}" -Zbuild-std=std,panic_abort
fi

mkdir -p plugins/dist
for rule in plugins/*/Cargo.toml; do
  name=$(basename "$(dirname "$rule")")
  built=plugins/target/wasm/wasm32-unknown-unknown/release/${name//-/_}.wasm
  # Untouched where equal, so that nothing downstream sees a new file; moved into place, so that nobody sees half of one.
  cmp -s "$built" "plugins/dist/$name.wasm" || { install -m 644 "$built" "plugins/dist/$name.wasm.tmp" && mv "plugins/dist/$name.wasm.tmp" "plugins/dist/$name.wasm"; }
done
