# The commands that the README shows. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
OUT ?= out/demo
TRAIN_OUT ?= out/demo-train
DEMO_ADAPTER ?= phys_pipeline/assets/tiny_physics
DEMO_PROMPT ?= a purple triangle grows
DEMO_SEED ?= 0
DEMO_SETTINGS ?=
PYTEST_ARGS ?=
EXTRAS ?= dev
COMFY_CACHE ?= .comfy
BENCHMARKS ?= discrimination ablation resolution estimates theory gradient_test gradient_test_repaired latents loss_cost motion_memory training_overhead overlay_speed score_speed study_simulation
PY = $(VENV)/bin/python
STAMP = $(VENV)/.installed
LAUNCH = OMP_NUM_THREADS=1 $(PY) -m accelerate.commands.launch -q --cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no

.PHONY: help app demo demo-train test test-comfy test-web lint bench clean

help:
	@echo "make demo   one pair of videos without and with the adapter that comes with the package, in $(OUT)/comparison.mp4 (CPU, a minute)"
	@echo "make demo-train   train an adapter on the sample clips and make a pair with it in $(TRAIN_OUT) (CPU, about five minutes)"
	@echo "make app    the web app at http://127.0.0.1:7860"
	@echo "make test   run every test; make test-web those of the app alone (needs Chromium)"
	@echo "make test-comfy   the tests with real ComfyUI, which is built in $(COMFY_CACHE) first (2.3 GB, some minutes)"
	@echo "make lint   ruff and mypy"
	@echo "make bench  measurements that the documentation quotes (docs/results; most of an hour)"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

# Prompt and seed are those of phys_pipeline/assets/demo.json: training/choose_demo.py says by which rule.
demo: $(STAMP)
	$(PY) -m phys_pipeline generate "$(DEMO_PROMPT)" --adapter $(DEMO_ADAPTER) --baseline --seed $(DEMO_SEED) \
		--output $(OUT)/comparison.mp4 --scores $(OUT)/scores.json

# A second run continues from the finished checkpoint and the caches, so that only the videos are made again.
demo-train: $(STAMP)
	$(LAUNCH) training/train_lora.py --config training/configs/tiny.yaml \
		output_dir=$(TRAIN_OUT)/adapter cache_dir=$(TRAIN_OUT)/cache resume=true $(DEMO_SETTINGS)
	$(PY) -m phys_pipeline generate "a red square moves right" --adapter $(TRAIN_OUT)/adapter --baseline --seed 0 \
		--output $(TRAIN_OUT)/comparison.mp4 --scores $(TRAIN_OUT)/scores.json

test: $(STAMP)
	OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

test-web: $(STAMP)
	OMP_NUM_THREADS=1 $(PY) -m pytest -m web tests/web $(PYTEST_ARGS)

app: $(STAMP)
	$(PY) app.py

test-comfy: $(STAMP)
	$(PY) tests/comfy/build.py --cache $(COMFY_CACHE)
	COMFY_CACHE=$(abspath $(COMFY_CACHE)) OMP_NUM_THREADS=1 $(PY) -m pytest tests/comfy -n 2 --dist loadscope $(PYTEST_ARGS)

lint: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

bench: $(STAMP)
	for name in $(BENCHMARKS); do $(PY) benchmarks/$$name.py || exit 1; done

clean:
	rm -rf out build dist *.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache
