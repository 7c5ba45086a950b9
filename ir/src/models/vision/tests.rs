//! Published files of models with encoders, and files that are refused.

use crate::models::{Batch, ConfigError, read_config};
use crate::types::DType;
use serde_json::{Value, json};

/// `config.json` of mistralai/Mistral-Small-3.1-24B-Instruct-2503, as far as it is read, for sequences of 64 patches.
fn mistral_small() -> Value {
    json!({
        "model_type": "mistral3", "image_token_index": 10, "projector_hidden_act": "gelu", "spatial_merge_size": 2,
        "vision_feature_layer": -1, "multimodal_projector_bias": false, "tie_word_embeddings": false, "patches_per_sequence": 64,
        "vision_config": {
            "model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
            "num_attention_heads": 16, "head_dim": 64, "num_channels": 3, "patch_size": 14, "image_size": 1540,
            "hidden_act": "silu", "rope_theta": 10000.0, "attention_dropout": 0.0
        },
        "text_config": {
            "model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131_072, "rope_theta": 1e9,
            "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072, "sliding_window": null
        }
    })
}

/// The same of mistral-community/pixtral-12b, whose class is LLaVA's.
fn pixtral() -> Value {
    let mut file = mistral_small();
    file["model_type"] = "llava".into();
    file.as_object_mut().unwrap().remove("spatial_merge_size");
    file["vision_feature_select_strategy"] = "full".into();
    file["multimodal_projector_bias"] = true.into();
    file["vision_config"]["patch_size"] = 16.into();
    file["text_config"]["intermediate_size"] = 14_336.into();
    file
}

/// The same of Ministral 3 8B: the default sizes of its text model.
fn ministral() -> Value {
    let mut file = mistral_small();
    file["text_config"] = json!({"model_type": "ministral3", "tie_word_embeddings": false});
    file
}

/// `config.json` of Qwen/Qwen3-VL-8B-Instruct, as far as it is read, for sequences of 64 patches.
fn qwen3_vl() -> Value {
    json!({
        "model_type": "qwen3_vl", "tie_word_embeddings": false, "patches_per_sequence": 64,
        "vision_config": {
            "model_type": "qwen3_vl", "depth": 27, "hidden_size": 1152, "hidden_act": "gelu_pytorch_tanh",
            "intermediate_size": 4304, "num_heads": 16, "in_channels": 3, "patch_size": 16, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "out_hidden_size": 4096, "num_position_embeddings": 2304,
            "deepstack_visual_indexes": [8, 16, 24]
        },
        "text_config": {
            "model_type": "qwen3_vl_text", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "rope_theta": 5e6,
            "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": true}
        }
    })
}

/// The same of Qwen/Qwen3-VL-4B-Instruct.
fn small_qwen3_vl() -> Value {
    let mut file = qwen3_vl();
    file["tie_word_embeddings"] = true.into();
    let (vision, text) = (
        json!({"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "out_hidden_size": 2560,
            "deepstack_visual_indexes": [5, 11, 17]}),
        json!({"hidden_size": 2560, "intermediate_size": 9728}),
    );
    for (part, changes) in [("vision_config", vision), ("text_config", text)] {
        let changes = changes.as_object().unwrap().clone();
        file[part].as_object_mut().unwrap().extend(changes);
    }
    file
}

/// The same of Qwen/Qwen3-VL-235B-A22B-Instruct.
fn qwen3_vl_of_experts() -> Value {
    let mut file = qwen3_vl();
    file["model_type"] = "qwen3_vl_moe".into();
    file["vision_config"]["model_type"] = "qwen3_vl_moe".into();
    let experts = json!({"model_type": "qwen3_vl_moe_text", "num_hidden_layers": 94, "num_attention_heads": 64,
        "num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536});
    file["text_config"].as_object_mut().unwrap().extend(experts.as_object().unwrap().clone());
    file
}

/// The parameters of a file's model on a sequence of 32 tokens.
fn parameters(file: &Value) -> Result<u64, ConfigError> {
    let batch = Batch { batch: 2, seq: 32, dtype: DType::BF16 };
    Ok(read_config(&file.to_string())?.0.build(&batch)?.parameter_count())
}

/// Counts of the classes of `transformers` 5.24 on PyTorch's `meta` device.
#[test]
fn published_models_have_the_parameters_of_their_classes() {
    assert_eq!(parameters(&mistral_small()), Ok(24_011_361_280));
    assert_eq!(parameters(&pixtral()), Ok(12_682_739_712));
    assert_eq!(parameters(&ministral()), Ok(8_918_026_240));
    assert_eq!(parameters(&qwen3_vl()), Ok(8_767_123_696));
    assert_eq!(parameters(&small_qwen3_vl()), Ok(4_437_815_808));
    assert_eq!(parameters(&qwen3_vl_of_experts()), Ok(235_670_022_896));
}

#[test]
fn a_file_without_patches_is_its_text_model() {
    let mut file = mistral_small();
    file.as_object_mut().unwrap().remove("patches_per_sequence");
    assert_eq!(parameters(&file), Ok(24_011_361_280 - 438_958_080));
    let (config, ignored) = read_config(&file.to_string()).unwrap();
    assert!(config.vision().is_none() && ignored.contains(&"vision_config (not of the text model)".to_string()));
}

#[test]
fn the_encoder_comes_before_the_embedding() {
    let (config, ignored) = read_config(&mistral_small().to_string()).unwrap();
    let model = config.build(&Batch { batch: 2, seq: 32, dtype: DType::BF16 }).unwrap();
    let blocks: Vec<(&str, u32)> =
        model.calls.iter().map(|call| (&*model.blocks[call.block].name, call.instances())).collect();
    assert_eq!(blocks, [("patches", 1), ("vision", 24), ("project", 1), ("embed", 1), ("layer", 40), ("head", 1)]);
    assert_eq!(ignored, Vec::<String>::new());
}

#[test]
fn rows_of_inner_layers_go_behind_the_first_layers_of_the_text() {
    let (config, ignored) = read_config(&qwen3_vl().to_string()).unwrap();
    let model = config.build(&Batch { batch: 2, seq: 32, dtype: DType::BF16 }).unwrap();
    let blocks: Vec<(&str, u32)> =
        model.calls.iter().map(|call| (&*model.blocks[call.block].name, call.instances())).collect();
    let vision = [("patches", 1), ("vision", 9), ("deep", 1), ("vision", 8), ("deep", 1), ("vision", 8), ("deep", 1)];
    let text = [("layer", 1), ("stack", 1)];
    let whole = [
        &vision[..],
        &[("vision", 2), ("project", 1), ("embed", 1)],
        &text,
        &text,
        &text,
        &[("layer", 33), ("head", 1)],
    ];
    assert_eq!(blocks, whole.concat());
    assert_eq!(ignored, Vec::<String>::new());
}

#[test]
fn an_encoder_that_does_not_suit_its_text_is_refused() {
    let why = |change: &dyn Fn(&mut Value)| {
        let mut file = qwen3_vl();
        change(&mut file);
        parameters(&file).unwrap_err().to_string()
    };
    let refused = why(&|file| file["vision_config"]["out_hidden_size"] = 3584.into());
    assert!(refused.contains("3584 is not the `hidden_size` 4096 of the text model"), "{refused}");
    let refused = why(&|file| file["vision_config"]["num_position_embeddings"] = 2300.into());
    assert!(refused.contains("2300 is no square number"), "{refused}");
    let refused = why(&|file| file["vision_config"]["deepstack_visual_indexes"] = json!([8, 27]));
    assert!(refused.contains("27 is no layer of 27"), "{refused}");
    let refused = why(&|file| file["vision_config"]["deepstack_visual_indexes"] = json!([8, 8]));
    assert!(refused.contains("must ascend"), "{refused}");
    let refused = why(&|file| file["text_config"]["num_hidden_layers"] = 2.into());
    assert!(refused.contains("3 layers give rows to a text model of 2 layers"), "{refused}");
    let refused = why(&|file| file["text_config"]["rope_scaling"]["mrope_section"] = json!([24, 20, 19]));
    assert!(refused.contains("63 pairs, but 64 of a head turn"), "{refused}");
}

#[test]
fn what_cannot_be_read_is_refused() {
    let why = |change: &dyn Fn(&mut Value)| {
        let mut file = mistral_small();
        change(&mut file);
        parameters(&file).unwrap_err().to_string()
    };
    let refused = why(&|file| file["vision_config"]["model_type"] = "clip_vision_model".into());
    assert!(
        refused.contains(
            "no builder for the encoder `clip_vision_model` in a model `mistral3`; there are `pixtral` in `mistral3`"
        ),
        "{refused}"
    );
    let refused = why(&|file| drop(file.as_object_mut().unwrap().remove("vision_config")));
    assert!(refused.contains("no encoder of images"), "{refused}");
    let refused = why(&|file| file["patches_per_sequence"] = 66.into());
    assert!(refused.contains("66 patches of images in a sequence are no whole rows of 4 patches"), "{refused}");
    let refused = why(&|file| file["vision_config"]["head_dim"] = 128.into());
    assert!(refused.contains("vision_config.head_dim"), "{refused}");
    let refused = why(&|file| file["vision_feature_layer"] = json!(-2));
    assert!(refused.contains("vision_feature_layer"), "{refused}");
    let refused = why(&|file| file["vision_config"]["num_attention_heads"] = 1000.into());
    assert!(refused.contains("1024"), "{refused}");
}
