#!/usr/bin/env bash
# Checks and measures CorVer on this machine's GPU. Needs Linux x86-64, python3 with PyTorch 2.11, and xz; no network.
# usage: ./run.sh [DEVICE]   cuda:0 by default; cpu tries the kit itself
set -euo pipefail
cd "$(dirname "$0")"
device=${1:-cuda:0}
shapes="llama-8b qwen3-14b olmo2-13b"
[ "$device" = cpu ] && shapes=tiny

torch=$(python3 -c 'import torch; print(torch.__path__[0], torch.__version__)') || {
  echo "error: python3 cannot import torch; activate an environment with PyTorch 2.11" >&2
  exit 1
}
case ${torch#* } in
2.11.*) ;;
*)
  echo "error: this is PyTorch ${torch#* }; the kit needs 2.11" >&2
  exit 1
  ;;
esac

# Always, since the folder may be of an older kit or incomplete.
rm -rf work
mkdir work
tar -xf kit.tar.xz -C work
export LD_LIBRARY_PATH=${torch% *}/lib ORT_DYLIB_PATH=$PWD/work/libonnxruntime.so
rm -rf results && mkdir results
cd work
./corver-host doctor | tee ../results/doctor.txt || true
./at_scale "$device" $shapes | tee ../results/at_scale.txt
./corver-host train --device "$device" --set extract.device=cpu --out ../results/demo
cd ..
{ nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo none; } >results/gpu.txt

python3 - "${torch#* }" "$device" <<'PY'
import json, pathlib, sys
results = pathlib.Path("results")
shapes = [json.loads(line) for line in (results / "at_scale.txt").read_text().splitlines() if line.startswith("{")]
found = {
    "torch": sys.argv[1],
    "device": sys.argv[2],
    "gpu": (results / "gpu.txt").read_text().strip(),
    "shapes": shapes,
    "demo": json.loads((results / "demo/summary.json").read_text()),
}
(results / "results.json").write_text(json.dumps(found, indent=1))
PY
echo "results/results.json has the figures; send the folder results/ without its checkpoints"
