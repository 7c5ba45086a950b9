//! The parts that families without a builder would need.

/// Names of families, and the part that is missing for all of them.
struct Missing {
    part: &'static str,
    families: &'static [&'static str],
}

const MISSING: &[Missing] = &[
    Missing { part: "states with exponential gates and sums that norm them", families: &["xlstm"] },
    Missing { part: "states weighted by exponentials of keys", families: &["rwkv"] },
    Missing { part: "one block that several layers call", families: &["zamba", "zamba2"] },
    Missing {
        part: "embeddings of several tokens and gated sums of layers before",
        families: &["qwen4_exp", "qwen4_exp_text"],
    },
    Missing { part: "latent attention of two sizes", families: &["dots3_note", "dots3_note_text"] },
    Missing { part: "sparse attention and hyper-connections", families: &["deepseek_v4", "hy_v4"] },
    Missing { part: "attention to another sequence, as decoders behind an encoder have it", families: &["mllama"] },
    Missing { part: "attention of several streams of one sequence", families: &["prophetnet", "xlnet"] },
    Missing { part: "embeddings of several codebooks", families: &["musicgen", "musicgen_melody"] },
    Missing { part: "embeddings of shapes and sounds", families: &["roc_bert"] },
    Missing { part: "adapters for each language", families: &["xmod"] },
    Missing { part: "biases of scores by buckets of distances", families: &["cpmant"] },
    Missing { part: "convolutions of queries and keys", families: &["zaya"] },
    Missing {
        part: "convolutions over tokens and scores of relative positions",
        families: &["inkling2_text", "inkling_text"],
    },
    Missing { part: "experts that give back what they read", families: &["longcat_flash"] },
    Missing {
        part: "bounds of gates by layer, and numbers of query heads by type of layer",
        families: &["step3p5", "step3p7", "step3p7_text"],
    },
    Missing { part: "masks that values decide on", families: &["doge"] },
    Missing { part: "patches of bytes", families: &["blt"] },
    Missing { part: "attention by hashes", families: &["reformer"] },
    Missing { part: "encoders of images or sounds in the same class", families: &["git", "phi4_multimodal"] },
    Missing { part: "states of another model", families: &["gemma4_assistant", "gemma4_unified_assistant"] },
    Missing { part: "experts in the place of query heads", families: &["jetmoe"] },
    Missing { part: "experts that SparseMixer chooses", families: &["phimoe"] },
    Missing { part: "layers that run several times", families: &["dory", "hrm_text", "inkling2_loop_text"] },
    Missing { part: "several streams that predict each other", families: &["gemma3n", "gemma3n_text"] },
];

/// The part that a family without a builder would need, if it is known.
pub(super) fn part(model_type: &str) -> Option<&'static str> {
    MISSING.iter().find(|missing| missing.families.contains(&model_type)).map(|missing| missing.part)
}
