#!/usr/bin/env bash
python3 -m maxtext.trainers.pre_train.train llama3.1_405b.yml \
    run_name=DATA \
    base_config=base.yml \
    run_name=DATA \
    hardware=gpu \
    steps=10 \
    model_name=llama3.1-405b \
    enable_checkpointing: \
    False \
    attention=cudnn_flash_te \
    remat_policy=full \
    use_iota_embed=True \
    scan_layers=True \
    dataset_type=synthetic \
    async_checkpointing=False \
    logits_dot_in_fp32=False \
    per_device_batch_size=1.0 \
    max_target_length=8192 \
    dcn_fsdp_parallelism=128 \
    ici_fsdp_parallelism=8 \
    base_output_directory=DATA \
    max_segments_per_seq=32 \
    profiler=xplane
