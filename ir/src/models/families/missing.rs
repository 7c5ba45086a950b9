//! The parts that families without a builder would need.

/// Names of families, and the part that is missing for all of them.
struct Missing {
    part: &'static str,
    families: &'static [&'static str],
}

const MISSING: &[Missing] = &[
    Missing {
        part: "layers with carried state",
        families: &[
            "bailing_hybrid",
            "bamba",
            "falcon_h1",
            "falcon_mamba",
            "granitemoehybrid",
            "jamba",
            "kimi_linear",
            "lara_mini",
            "lfm2",
            "lfm2_moe",
            "lfm3",
            "mamba",
            "mamba2",
            "minimax",
            "nemotron_h",
            "olmo_hybrid",
            "qwen3_5",
            "qwen3_5_moe",
            "qwen3_5_moe_text",
            "qwen3_5_text",
            "qwen3_next",
            "recurrent_gemma",
            "rwkv",
            "xlstm",
            "zamba",
            "zamba2",
        ],
    },
    Missing { part: "sparse attention", families: &["axk2", "deepseek_v32", "glm_moe_dsa"] },
    Missing { part: "sparse attention and hyper-connections", families: &["deepseek_v4"] },
    Missing { part: "biases of scores by distance", families: &["bloom", "mpt"] },
    Missing {
        part: "attention that sees later tokens, as encoders have it",
        families: &[
            "bert",
            "bert-generation",
            "big_bird",
            "camembert",
            "data2vec-text",
            "electra",
            "ernie",
            "megatron-bert",
            "rembert",
            "roberta",
            "roberta-prelayernorm",
            "roc_bert",
            "roformer",
            "xlm-roberta",
            "xlm-roberta-xl",
            "xmod",
        ],
    },
    Missing {
        part: "attention to another sequence, as decoders behind an encoder have it",
        families: &[
            "bart",
            "bigbird_pegasus",
            "blenderbot",
            "blenderbot-small",
            "marian",
            "mbart",
            "mllama",
            "musicgen",
            "musicgen_melody",
            "mvp",
            "pegasus",
            "plbart",
            "prophetnet",
            "trocr",
            "whisper",
        ],
    },
    Missing { part: "experts in the place of query heads", families: &["jetmoe"] },
    Missing { part: "experts that SparseMixer chooses", families: &["phimoe"] },
    Missing { part: "layers that run several times", families: &["dory", "hrm_text", "inkling2_loop_text"] },
    Missing { part: "differences of two attentions", families: &["diffllama"] },
    Missing { part: "embeddings of each layer", families: &["gemma3n", "gemma3n_text", "gemma4", "gemma4_text"] },
];

/// The part that a family without a builder would need, if it is known.
pub(super) fn part(model_type: &str) -> Option<&'static str> {
    MISSING.iter().find(|missing| missing.families.contains(&model_type)).map(|missing| missing.part)
}
