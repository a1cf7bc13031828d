# `make train` and `make test` do all set-up. Libraries go into .deps/; a missing C++ compiler or pip comes from apt, the
# WebAssembly target from rustup. A second run installs nothing and needs no network.
SHELL := bash
# A pipe fails if any of its commands fails.
.SHELLFLAGS := -o pipefail -c
CARGO ?= cargo
# The recipes run the programs in target/. In a target folder of the user's there would be another binary, or none.
export CARGO_TARGET_DIR := $(CURDIR)/target
# One profile for building, testing and linting, so that libtorch's C++ bindings are compiled once.
PROFILE := --release
HOST := target/release/corver-host
# Every crate, with training. `cargo build` alone leaves out what needs libtorch.
WORKSPACE := --workspace --features corver-host/torch
PEER_PYTHON := $(CURDIR)/.deps/infini-gram/bin/python
WORLD := $(CURDIR)/target/bench/world
FUZZ_SECONDS ?= 600
SHAPES ?= $(if $(filter cpu,$(DEVICE)),tiny,llama-8b qwen3-14b olmo2-13b)
# Tests run in their own folders, so the path must be absolute.
ifdef CORVER_SHARED
override CORVER_SHARED := $(abspath $(CORVER_SHARED))
export CORVER_SHARED
endif

.PHONY: help setup setup-light plugins build train test test-quick test-languages infini-gram test-peer test-peers conformance test-cuda-stub fuzz fuzz-all attack kills test-engine wheel test-wheel test-trl test-trainers test-harnesses test-prime-rl bench bench-build bench-corpus bench-curves bench-demo bench-extract bench-gpu bench-languages bench-nli bench-page bench-rules bench-scale bench-serve bench-train bench-wheel gpu-kit lint clean

help: ## list targets
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

setup: setup-light ## install libtorch, ONNX Runtime and the WebAssembly toolchain
	@host/setup/libtorch.sh

# All that is needed without training.
setup-light:
	@host/setup/system.sh
	@host/setup/onnxruntime.sh
	@host/setup/wasm.sh

plugins: setup-light ## build the reward rules (WebAssembly) into plugins/dist/
	@plugins/build.sh

# A test is named so that cargo selects the same features as `make test`, and the two share all compiled dependencies. This
# one needs no more crates.
build: setup plugins ## build the corver-host binary
	$(CARGO) build --locked $(PROFILE) $(WORKSPACE) --bin corver-host --test download

train: build ## train on the built-in demo, and print the results
	$(HOST) train

test: setup plugins ## run all tests but those against other programs; CORVER_SHARED=DIR adds golden vectors
	@host/setup/browser.sh
	@host/setup/proxy.sh
	@host/setup/registry.sh
	python3 tests/vectors/reference.py --check
	$(CARGO) test --locked --manifest-path plugins/Cargo.toml --target-dir plugins/target/native
	$(CARGO) test --locked $(PROFILE) $(WORKSPACE) --no-fail-fast
	@# The fuzz targets link the libraries that the tests have compiled.
	$(CARGO) build --locked $(PROFILE) $(WORKSPACE) --features "$(FUZZ_TARGETS:%=corver-fuzz/%)" --bins --test download
ifdef CORVER_SHARED
	$(MAKE) --no-print-directory conformance
endif
	$(MAKE) --no-print-directory test-wheel
	$(MAKE) --no-print-directory bench-gpu DEVICE=cpu

# Crates without heavy dependencies: the method, the settings, the files, and the SDK.
QUICK := $(foreach crate,core settings files runs data eval train analysis sdk,-p corver-$(crate))
test-quick: ## run the unit tests that need no libtorch, in under a minute once compiled
	$(CARGO) test --locked $(QUICK)

conformance: setup plugins ## check golden vectors and real text of CORVER_SHARED=DIR
	@test -n "$(CORVER_SHARED)" || { echo "usage: make conformance CORVER_SHARED=DIR" >&2; exit 2; }
	$(CARGO) test --locked $(PROFILE) $(WORKSPACE) --no-fail-fast --lib --test conformance --test triplet_conformance --test golden -- --ignored
	$(CARGO) test --locked $(PROFILE) $(WORKSPACE) --test cli -- --ignored real_text

infini-gram: # install the official engine into its own environment
	@host/setup/infini-gram.sh

test-peer: infini-gram ## compare index files and counts with the official Infini-gram engine
	CORVER_PEER_PYTHON=$(PEER_PYTHON) $(CARGO) test --locked $(PROFILE) $(WORKSPACE) --test peer -- --ignored

test-peers: setup ## compare with transformers, peft and trl; MODEL=DIR and CORVER_SHARED=DIR: on real data
	@host/setup/peers.sh
	CORVER_PEERS=$(CURDIR)/.deps/peers/bin/python CORVER_MODEL=$(abspath $(MODEL)) \
	  $(CARGO) test --locked $(PROFILE) $(WORKSPACE) --test peers -- --ignored --nocapture
ifneq ($(and $(MODEL),$(CORVER_SHARED)),)
	CORVER_MODEL=$(abspath $(MODEL)) $(CARGO) test --locked $(PROFILE) $(WORKSPACE) --test cli -- --ignored --nocapture real_text
endif

test-engine: setup plugins ## sample and train with a real vLLM server on the CPU (installed into .deps/)
	@host/setup/vllm.sh
	CORVER_VLLM=$(CURDIR)/.deps/vllm/bin/python $(CARGO) test --locked $(PROFILE) $(WORKSPACE) --test engine -- --ignored --nocapture --test-threads 1

test-trainers: wheel ## test the Python package in verl, OpenRLHF and SkyRL on the CPU (installed into .deps/)
	@host/setup/trainers.sh
	@for trainer in verl openrlhf skyrl; do \
	  .deps/$$trainer/bin/python -m pip install --quiet --force-reinstall --no-deps target/wheels/corver-*.whl && \
	  CORVER_TRAINERS=1 .deps/$$trainer/bin/pytest host/python/tests/with_trainers/test_$$trainer.py || exit; \
	done

test-harnesses: wheel ## test the package in Inspect AI, verifiers and an MCP client, without a model (installed into .deps/)
	@host/setup/harnesses.sh
	@for harness in inspect verifiers rubric mcp; do \
	  .deps/$$harness/bin/python -m pip install --quiet --no-index --no-deps --force-reinstall target/wheels/corver-*.whl && \
	  .deps/$$harness/bin/python -m unittest discover --start-directory host/python/tests/with_harnesses --pattern test_$$harness.py || exit; \
	done

test-prime-rl: wheel ## test advantages per token in prime-rl's orchestrator classes (its source is cloned into .deps/)
	@host/setup/prime_rl.sh
	.deps/prime-rl/bin/python -m pip install --quiet --no-index --no-deps --force-reinstall target/wheels/corver-*.whl
	.deps/prime-rl/bin/python -m unittest discover --start-directory host/python/tests/with_harnesses --pattern test_prime_rl.py

bench-demo: ## time the parts of `make train` in a fresh clone; target/bench/demo.json
	@mkdir -p target/bench
	python3 host/cli/benches/fresh.py target/bench/demo.json

# Those on a GPU are left out. The last one needs 45 GB of disk.
bench-page: ## run the benchmarks of docs/benchmarks.md, and write it again; needs root; MODEL=DIR CORVER_SHARED=DIR
	@test -n "$(MODEL)" -a -n "$(CORVER_SHARED)" || { echo "usage: make bench-page MODEL=DIR CORVER_SHARED=DIR" >&2; exit 2; }
	@for bench in demo rules languages nli wheel serve curves "corpus CORVER_SHARED=$(CORVER_SHARED)" "build CORVER_SHARED=$(CORVER_SHARED)" \
	  "extract MODEL=$(MODEL)" "train PRECISION=f32 MODEL=$(MODEL)" "train PRECISION=bf16 MODEL=$(MODEL)" scale; do \
	  env -u DEVICE python3 docs/benchmarks/record.py $$bench || exit; \
	done
	CORVER_WRITE=1 $(CARGO) test --locked $(PROFILE) $(WORKSPACE) --test cli benchmarks

bench-corpus: test-peer ## benchmark counts against the official engine; CORVER_SHARED=DIR: on real text
ifndef CORVER_SHARED
	$(CARGO) build --locked $(PROFILE) $(WORKSPACE) --example world
	target/release/examples/world $(WORLD) 30000
endif
	CORVER_PEER_PYTHON=$(PEER_PYTHON) CORVER_BENCH_TEXT=$(WORLD) \
	  $(CARGO) bench --locked --profile release $(WORKSPACE) --bench peer

bench-build: infini-gram build ## benchmark index builds against the official indexer, on CORVER_SHARED=DIR
	@test -n "$(CORVER_SHARED)" || { echo "usage: make bench-build CORVER_SHARED=DIR" >&2; exit 2; }
	$(PEER_PYTHON) host/corpus/benches/peer/build.py --text "$(CORVER_SHARED)/corpora" --tokenizer "$(CORVER_SHARED)/tokenizers/llama2"

# CORVER_SCALE_DIR=DIR is the folder for the text and the index: 15 bytes per token while building. STAGE=text stops after
# the text. The text is generated, so its counts are known; fio and the official engine run next to it, within 4 GB.
bench-scale: TOKENS ?= 3000000000
bench-scale: MEMORY ?= 8G
bench-scale: infini-gram ## benchmark an index of TOKENS=3000000000 within MEMORY=8G; needs root; target/bench/scale.json
	@host/setup/system.sh
	@host/setup/fio.sh
	CORVER_PEER_PYTHON=$(PEER_PYTHON) CORVER_SCALE_TOKENS=$(TOKENS) CORVER_SCALE_MEMORY=$(MEMORY) $(if $(CORVER_SCALE_DIR),CORVER_SCALE_DIR=$(abspath $(CORVER_SCALE_DIR))) \
	  $(CARGO) bench --locked --profile release -p corver-corpus --bench scale -- $(STAGE)

# rustc's sanitiser flags need a nightly compiler; RUSTC_BOOTSTRAP enables them in the stable one.
FUZZ_TARGETS := damaged_index triplets alignment requests admission answers configuration chat weights tokenizer questions run_logs recordings packs
TARGET ?= damaged_index
# libtorch is not compiled with a sanitiser.
FUZZ_SANITIZER = $(if $(filter weights,$(TARGET)),none,address)
# The names of mapped files are never freed (host/corpus/src/files/truncation.rs).
FUZZ_LEAKS = $(if $(filter damaged_index,$(TARGET)),0,1)
fuzz: ## fuzz TARGET=damaged_index (see host/fuzz/fuzz_targets) for FUZZ_SECONDS=600
	@command -v cargo-fuzz >/dev/null || env -u CARGO_TARGET_DIR $(CARGO) install --locked cargo-fuzz
	@mkdir -p target/fuzz/inputs/$(TARGET) target/fuzz/tmp
	RUSTC_BOOTSTRAP=1 ASAN_OPTIONS=detect_leaks=$(FUZZ_LEAKS) \
	  CARGO_TARGET_DIR=$(CURDIR)/target/fuzz TMPDIR=$(CURDIR)/target/fuzz/tmp \
	  $(CARGO) fuzz run --fuzz-dir host/fuzz --sanitizer $(FUZZ_SANITIZER) --features $(TARGET) $(TARGET) \
	  $(CURDIR)/target/fuzz/inputs/$(TARGET) $(CURDIR)/host/fuzz/seeds/$(TARGET) -- \
	  -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=20 -print_final_stats=1
	@rm -rf target/fuzz/tmp

fuzz-all: FUZZ_SECONDS = 60
fuzz-all: ## run every fuzz target for FUZZ_SECONDS=60
	@for target in $(FUZZ_TARGETS); do $(MAKE) --no-print-directory fuzz TARGET=$$target FUZZ_SECONDS=$(FUZZ_SECONDS) || exit; done

# The attacks print table rows of six columns, or of two.
attack: setup plugins ## run the attacks on every surface, in 2 minutes; target/bench/attack.md
	@mkdir -p target/bench
	$(CARGO) test --locked $(PROFILE) $(WORKSPACE) --test hostile --test footprint --test attack --test damage -- --nocapture 2>&1 \
	  | tee target/bench/attack.log
	$(CARGO) test --locked $(PROFILE) $(WORKSPACE) --test cli -- --nocapture attack kill damaged full_disk 2>&1 | tee -a target/bench/attack.log
	@{ echo '| kind | attack | bound | time | memory | result |'; echo '| --- | --- | --- | --- | --- | --- |'; \
	  grep -E '^(\| [^|]*){6}\|$$' target/bench/attack.log | sort; \
	  echo; echo '| attack | what happens |'; echo '| --- | --- |'; \
	  grep -oE '\| (plugin|server|chat template|disk)[^|]*\|[^|]*\|$$' target/bench/attack.log; } | tee target/bench/attack.md

# A disk that fills and a power cut need file systems of their own.
kills: setup plugins ## kill a run 50 times, cut its power 50 times, and fill its disk at every level; needs root
	CORVER_KILLS=50 $(CARGO) test --locked $(PROFILE) $(WORKSPACE) --test cli -- --nocapture --include-ignored --test-threads 1 killed_at_random disks::

test-languages: build ## test rules in Python, JavaScript, C and Go (compilers are installed into .deps/)
	@host/setup/languages.sh
	node --test sdk/js
	python3 -m unittest discover --quiet --start-directory sdk/python
	@for rule in sdk/{python,js}/example{,/entailed,/judge}; do $(HOST) plugin build $$rule || exit; done
	PATH="$(CURDIR)/.deps/wit-bindgen/bin:$$PATH" $(MAKE) -C sdk/c/example
	@ln -sfn ../../../.deps/componentize-js/node_modules sdk/go/example/node_modules
	PATH="$(CURDIR)/.deps/wit-bindgen/bin:$(CURDIR)/.deps/go/bin:$$PATH" $(MAKE) -C sdk/go/example
	$(CARGO) test --locked $(PROFILE) $(WORKSPACE) --no-fail-fast --test languages
	$(CARGO) test --locked $(PROFILE) $(WORKSPACE) --no-fail-fast --test cli -- --ignored in_python in_javascript

wheel: setup-light plugins ## build the Python package, with corver-host without training: target/wheels/corver-*.whl
	@host/setup/wheel.sh
	host/python/build.sh

test-wheel: wheel ## test the Python package in a clean environment, target/wheel-env
	host/python/test.sh

test-trl: wheel ## run three GRPO steps with TRL and per-token advantages on the CPU; MODEL=DIR: of that model
	@host/setup/peers.sh
	.deps/peers/bin/python -m pip install --quiet --no-index --no-deps --force-reinstall target/wheels/corver-*.whl
	CORVER_MODEL=$(abspath $(MODEL)) .deps/peers/bin/python -m unittest discover --start-directory host/python/tests/with_trl

bench: setup plugins ## run every criterion benchmark
	$(CARGO) bench --profile release $(WORKSPACE) --benches

bench-gpu: setup ## benchmark a step by phase at SHAPES="llama-8b qwen3-14b olmo2-13b"; DEVICE=cpu: one small step
	@mkdir -p target/bench
	$(CARGO) build --locked $(PROFILE) $(WORKSPACE) --example at_scale
	target/release/examples/at_scale $(or $(DEVICE),cuda) $(SHAPES) | tee target/bench/gpu.txt
	@grep '^{' target/bench/gpu.txt > target/bench/gpu.jsonl

test-cuda-stub: setup ## compare the launches, products and memory of a step on CUDA with the record; needs no GPU (installed into .deps/)
	@host/setup/cuda_stub.sh
	$(CARGO) build --locked $(PROFILE) $(WORKSPACE) --example at_scale
	python3 host/cuda-stub/check.py target/release/examples/at_scale host/cuda-stub/record.json $(if $(WRITE),--write)

gpu-kit: build ## pack target/gpu-kit: a folder that checks and benchmarks a GPU with PyTorch 2.11, without network or Rust
	$(CARGO) build --locked $(PROFILE) $(WORKSPACE) --example at_scale
	@host/gpu-kit/build.sh

bench-train: PRECISION ?= $(if $(DEVICE),bf16,f32)
bench-train: build ## benchmark training against trl and decoding against transformers, with MODEL=DIR; PRECISION=bf16; DEVICE=cuda: on a GPU
	@test -n "$(MODEL)" || { echo "usage: make bench-train MODEL=DIR (a Hugging Face folder)" >&2; exit 2; }
	@host/setup/peers.sh
	@mkdir -p target/bench
	$(CARGO) build --locked $(PROFILE) $(WORKSPACE) --example decode
	.deps/peers/bin/python host/learn/benches/train.py $(HOST) target/release/examples/decode $(abspath $(MODEL)) \
	  target/bench/train-$(if $(filter cuda%,$(DEVICE)),cuda-)$(PRECISION).json $(or $(DEVICE),cpu) $(PRECISION)

bench-extract: build ## benchmark the extractor against transformers and onnxruntime-genai, with MODEL=DIR
	@test -n "$(MODEL)" || { echo "usage: make bench-extract MODEL=DIR (a Hugging Face folder)" >&2; exit 2; }
	@host/setup/peers.sh
	@mkdir -p target/bench
	@.deps/peers/bin/python -m pip install --quiet --only-binary=:all: onnxruntime-genai==0.18.0 onnx==1.23.2 onnx-ir==1.1.0 \
	  || echo "onnxruntime-genai cannot be installed here, and is left out" >&2
	.deps/peers/bin/python host/inference/benches/extract.py $(HOST) $(abspath $(MODEL)) target/bench/extract.json

bench-nli: setup ## benchmark NLI models against transformers; target/bench/nli.json
	@host/setup/peers.sh
	@mkdir -p target/bench
	$(CARGO) build --locked $(PROFILE) $(WORKSPACE) --example entail
	.deps/peers/bin/python host/inference/benches/nli.py target/release/examples/entail target/bench/nli.json

bench-wheel: build test-wheel ## benchmark the Python package against the binary; target/bench/wheel.json
	@mkdir -p target/bench
	$(CARGO) build --locked $(PROFILE) $(WORKSPACE) --example batch
	target/wheel-env/bin/python host/python/benches/batch.py $(HOST) target/release/examples/batch target/bench/wheel.json

bench-rules: setup plugins ## benchmark the rules, and check their limits; target/bench/rules.json
	$(CARGO) bench --locked --profile release $(WORKSPACE) --bench judge -- --noplot

bench-languages: build ## benchmark a rule in Rust, Python and JavaScript; target/bench/languages.json
	@host/setup/languages.sh
	@mkdir -p target/bench
	@for rule in sdk/{python,js}/example; do $(HOST) plugin build $$rule || exit; done
	python3 host/rules/benches/languages.py $(HOST) target/bench/languages.json

bench-serve: build ## benchmark the reward server with 1, 8, 64 and too many clients; target/bench/serve.json
	@host/setup/wrk.sh
	@mkdir -p target/bench
	python3 host/serve/benches/load.py $(HOST) target/bench/serve.json

bench-curves: build ## measure how time and memory grow with the input, up to LARGEST=1e8; target/bench/curves.json, curves.svg
	@host/setup/plots.sh
	$(CARGO) build --locked $(PROFILE) $(WORKSPACE) --example decode
	.deps/plots/bin/python host/cli/benches/curves.py $(HOST) target/release/examples/decode target/bench $(LARGEST)

lint: setup ## check formatting, clippy and documentation links; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(PROFILE) $(WORKSPACE) --all-targets -- -D warnings
	$(CARGO) fmt --all --check --manifest-path plugins/Cargo.toml
	$(CARGO) clippy --locked --manifest-path plugins/Cargo.toml --target-dir plugins/target/native --all-targets -- -D warnings
	@# A name means one thing in a function. Tests may shadow.
	$(CARGO) clippy $(PROFILE) $(WORKSPACE) --lib --bins -- -D warnings -W clippy::shadow_unrelated
	$(CARGO) clippy $(PROFILE) --bin corver-host --test layers -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(PROFILE) $(WORKSPACE) --no-deps

clean: ## delete everything that was built or installed here
	rm -rf target plugins/target plugins/dist .deps sdk/*/example/*.wasm sdk/*/example/*/*.wasm sdk/*/example/bindings sdk/go/example/node_modules
