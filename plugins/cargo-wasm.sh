#!/usr/bin/env bash
# cargo-wasm.sh ARGUMENTS…: cargo, for wasm32-unknown-unknown. The first argument is the command: build, clippy, …
#
# With rustup this is no more than `cargo ARGUMENTS --target wasm32-unknown-unknown`; the rest is for machines where
# rustup's server cannot be reached (see host/setup/wasm.sh).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
"$root/host/setup/wasm.sh"

if [ "$(cat "$root/.deps/wasm-toolchain")" = rustup ]; then
  # The toolchain of the checkout, which has the target, wherever the rule is.
  RUSTUP_TOOLCHAIN=$(cd "$root" && rustup show active-toolchain | cut -d' ' -f1)
  export RUSTUP_TOOLCHAIN
  exec cargo "$@" --target wasm32-unknown-unknown
fi
linker=$(rustc --print sysroot 2>/dev/null || true)/lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld
if [ ! -x "$linker" ]; then
  linker=$(compgen -c wasm-ld | sort -V | tail -n 1 || true)
  if [ -z "$linker" ]; then
    (cd "$root" && . host/setup/apt.sh lld)
    linker=wasm-ld
  fi
fi
# Set for this command alone: RUSTC would otherwise leak into builds of the host.
RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$linker \
  exec /usr/bin/cargo "$@" --target wasm32-unknown-unknown -Zbuild-std=std,panic_abort
