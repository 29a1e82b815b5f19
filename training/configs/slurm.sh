#!/bin/bash
# Four GPUs of one node under SLURM: `sbatch training/configs/slurm.sh`. Adapt the three lines marked (*). NOT run: no cluster was at hand.
# The job asks for its signal ten minutes early and goes on from the newest checkpoint when it is started again.
#SBATCH --job-name=phys-pipeline
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --mem=256G
#SBATCH --time=24:00:00
#SBATCH --signal=INT@600
#SBATCH --requeue
#SBATCH --output=out/slurm-%j.log
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
source .venv/bin/activate                  # (*) the environment with `pip install -e ".[train]"`
export HF_HOME="${HF_HOME:-$PWD/.hf}"      # (*) where the weights were downloaded; compute nodes often have no network
export HF_HUB_OFFLINE=1
config=training/configs/hunyuan_video_4xa100.yaml

python training/train_lora.py --dry-run --config "$config" data="$PWD/data/clips" resume=true   # (*) fails in seconds, not hours
exec srun accelerate launch -q --multi_gpu --num_processes 4 --num_machines 1 --mixed_precision no --dynamo_backend no \
    training/train_lora.py --config "$config" data="$PWD/data/clips" resume=true
