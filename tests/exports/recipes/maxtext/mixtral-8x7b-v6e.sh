#!/usr/bin/env bash
python3 -m maxtext.trainers.pre_train.train base.yml \
    model_name=mixtral-8x7b \
    steps=15 \
    per_device_batch_size=32 \
    enable_checkpointing=false \
    remat_policy=full \
    ici_fsdp_parallelism=-1 \
    max_target_length=1024 \
    base_output_directory=DATA \
    reuse_example_batch=1 \
    dataset_type=synthetic \
    gcs_metrics=true \
    attention=flash \
    sa_block_q=1024 \
    sa_block_q_dkv=2048 \
    sa_block_q_dq=2048
