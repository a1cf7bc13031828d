#!/usr/bin/env bash
# Finds a toolchain that compiles rules to WebAssembly and notes which in .deps/wasm-toolchain: `rustup`, or `debian`
# where rustup has no target to give. That answer is kept: delete the note to ask rustup again.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=wasm32-unknown-unknown
note=.deps/wasm-toolchain
mkdir -p .deps

# No pipe: `grep -q` ends at the first match; rustup then cannot write, and the pipe fails.
has_target() { command -v rustup >/dev/null 2>&1 && grep -qx "$target" <<<"$(rustup target list --installed 2>/dev/null)"; }

# An equal note is not written again, since a concurrent build may read it.
note_toolchain() { [ "$(cat "$note" 2>/dev/null || true)" = "$1" ] || echo "$1" >"$note"; }

if has_target; then
  note_toolchain rustup
  exit 0
fi
[ "$(cat "$note" 2>/dev/null || true)" = debian ] && exit 0
if command -v rustup >/dev/null 2>&1; then
  echo "setup: rustup target $target" >&2
  # One try of a minute at most: behind a firewall rustup waits and repeats for much longer.
  RUSTUP_MAX_RETRIES=0 timeout 60 rustup target add "$target" >/dev/null 2>&1 || true
  if has_target; then
    note_toolchain rustup
    exit 0
  fi
fi

# Debian's browser toolchain is current; the target's standard library is then compiled from its sources.
if [ ! -x /usr/bin/rustc ] || [ ! -x /usr/bin/cargo ] || [ ! -d /usr/src/rustc-"$(/usr/bin/rustc --version | cut -d' ' -f2)" ]; then
  echo "setup: the distribution's Rust, because rustup has no $target to give" >&2
  . host/setup/apt.sh rustc-web cargo-web rust-web-src
fi
note_toolchain debian
