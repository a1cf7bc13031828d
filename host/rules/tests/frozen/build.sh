#!/usr/bin/env bash
# Makes rule-VERSION.wasm and judge-VERSION.wasm, on the day that a version of the contract is frozen. To be run only for a
# version that is new: what older ones made is never replaced.
set -euo pipefail
cd "$(dirname "$0")"
root=../../../..
version=$(sed -n 's/^package corver:reward@\(.*\);$/\1/p' $root/wit/corver.wit)
for made in sentence/frozen:rule response/frozen_judge:judge; do
  from=${made%%:*} to=${made##*:}-$version.wasm
  [ -e "$to" ] && continue
  $root/plugins/cargo-wasm.sh build --release --manifest-path "${from%/*}/Cargo.toml" --target-dir $root/target/frozen
  cp "$root/target/frozen/wasm32-unknown-unknown/release/${from#*/}.wasm" "$to"
done
