//! ERNIE: BERT with kinds of tasks.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "ernie",
    class: "ErnieForCausalLM",
    keys: Keys { class: "ErnieConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "ernie.",
        embedding: "ernie.embeddings.word_embeddings.weight",
        outer: bert_outer!("ernie.", HubTensor::table("ernie.embeddings.task_type_embeddings.weight", &["wke"])),
        ..BERT
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["task_type_vocab_size"], "3", "kinds of tasks; all tokens are of the first one"),
    Key::read(&["use_task_id"], "false", "the row of a task is added"),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = bert(fields)?;
    let has_tasks: bool = fields.get("use_task_id")?;
    let tasks = if has_tasks { fields.get("task_type_vocab_size")? } else { 0 };
    Ok(LlamaConfig { kinds: [base.kinds[0], tasks], ..base }.into())
}
