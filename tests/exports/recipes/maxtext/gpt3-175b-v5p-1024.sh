#!/usr/bin/env bash
python3 -m maxtext.trainers.pre_train.train base.yml \
    run_name=DATA \
    model_name=gpt3-175b \
    base_output_directory=DATA \
    enable_checkpointing=false \
    async_checkpointing=false \
    steps=20 \
    per_device_batch_size=4 \
    ici_data_parallelism=1 \
    ici_fsdp_parallelism=64 \
    ici_tensor_parallelism=8 \
    remat_policy=full \
    attention=flash \
    quantization=int8 \
    dataset_type=synthetic
