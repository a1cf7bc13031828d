#!/usr/bin/env bash
# Makes rule-VERSION.wasm, on the day that a version of the contract is frozen. To be run only for a version that is new:
# what older ones made is never replaced.
set -euo pipefail
cd "$(dirname "$0")/source"
version=$(sed -n 's/^package corver:reward@\(.*\);$/\1/p' ../../../../../wit/corver.wit)
cargo build --release --target wasm32-unknown-unknown --target-dir ../../../../../target/frozen
cp ../../../../../target/frozen/wasm32-unknown-unknown/release/frozen.wasm "../rule-$version.wasm"
