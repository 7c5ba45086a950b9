//! Reading the YAML file of Megatron-Bridge's configuration, which its checkpoints have as `run_config.yaml`: its fields become the flags of
//! Megatron-LM that mean the same.

use super::fields::Fields;
use super::rows::{Given, ROWS, Row};
use crate::flag_error::FlagError;
use crate::flag_table::{MEGATRON, MEGATRON_BRIDGE};
use crate::megatron;
use crate::present::Present;
use crate::yaml::{self, NOTHING};
use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

/// Sections whose fields are those of flags.
const SECTIONS: [&str; 7] = ["checkpoint", "ddp", "dist", "mixed_precision", "model", "optimizer", "train"];

/// Fields whose flag has another name, besides those that exports write.
const RENAMED: [(&str, &str); 5] = [
    ("model.num_layers_in_first_pipeline_stage", "decoder-first-pipeline-num-layers"),
    ("model.num_layers_in_last_pipeline_stage", "decoder-last-pipeline-num-layers"),
    ("model.yarn_rotary_scaling_factor", "rotary-scaling-factor"),
    ("mixed_precision.fp4", "fp4-format"),
    ("model.moe_router_topk_limited_devices", "moe-router-group-topk"),
];

/// Fields that take the place of another one, if they are stated.
const INSTEAD: [(&str, &str); 5] = [
    ("comm_overlap.delay_wgrad_compute", "model.delay_wgrad_compute"),
    ("comm_overlap.tp_comm_overlap", "model.tp_comm_overlap"),
    ("comm_overlap.overlap_moe_expert_parallel_comm", "model.overlap_moe_expert_parallel_comm"),
    ("comm_overlap.overlap_grad_reduce", "ddp.overlap_grad_reduce"),
    ("comm_overlap.overlap_param_gather", "ddp.overlap_param_gather"),
];

/// Named recipes of `mixed_precision` by a part of their name, with the recipe of 8 bits.
const RECIPES: [(&str, &str); 4] = [
    ("fp8_current_scaling", "tensorwise"),
    ("fp8_delayed_scaling", "delayed"),
    ("fp8_subchannel_scaling", "blockwise"),
    ("mxfp8", "mxfp8"),
];

/// Flags whose value is a list of Python in one word: one item for each layer, or the two sides of a window.
const LISTS: [&str; 3] = ["moe-layer-freq", "window-attn-skip-freq", "window-size"];

/// Classes of models that are not GPTs, by a part of their name.
const OTHER_MODELS: [&str; 4] = ["Hybrid", "Mamba", "T5", "Mimo"];

/// Flags with their values, as Megatron-LM takes them.
type Flags = BTreeMap<String, Vec<String>>;

/// Flags that the reader of Megatron-LM asks for.
static ASKED: LazyLock<HashSet<&'static str>> = LazyLock::new(|| megatron::asked().into_iter().collect());

/// Reads the text of a file. The number of devices says how many replicas share optimizer states, where the file leaves it open.
///
/// # Errors
/// The text is no YAML of a configuration, or a field has a value that Megatron-Bridge refuses.
pub fn read(text: &str, gpus: Option<u64>) -> Result<Present, FlagError> {
    let mut fields = Fields::of(text)?;
    let class = fields.text("model._target_").unwrap_or_default();
    if OTHER_MODELS.iter().any(|other| class.contains(other)) {
        return Err(format!("model is a {class}: predictions know GPTs, with or without latent attention").into());
    }
    for (from, to) in INSTEAD {
        fields.replace(from, to);
    }
    if fields.text("model.seq_length").is_none_or(|length| length == NOTHING) {
        fields.replace("dataset.seq_length", "model.seq_length");
    }
    let settings = fields.settings();
    settings.iter().try_for_each(|setting| MEGATRON_BRIDGE.check_setting(setting))?;
    settings.iter().try_for_each(|setting| single(&setting.name, &fields))?;
    let mut present = megatron::read_flags(&flags(&fields)?, gpus)?;
    let others = settings.iter().filter(|setting| flag_of(&setting.name).is_none());
    let others = others.filter(|setting| !MEGATRON_BRIDGE.is_default(&setting.name, setting.value.as_deref()));
    present.warnings.extend(others.filter_map(|other| MEGATRON_BRIDGE.warning(&other.name, other.value.as_slice())));
    Ok(present)
}

/// True if a field is read, and its flag takes one value.
fn is_single(field: &str) -> bool {
    flag_of(field).is_some_and(|flag| ASKED.contains(flag) && MEGATRON.takes_one(flag) && !LISTS.contains(&flag))
}

/// Checks that a field that is read as one value is one.
///
/// # Errors
/// It is a section, or a list whose flag takes one value.
fn single(name: &str, fields: &Fields) -> Result<(), FlagError> {
    let parent = name.rsplit_once('.').map_or("", |(parent, _)| parent);
    if parent.contains('.') && is_single(parent) {
        return Err(format!("{parent} is a section: it takes one value").into());
    }
    match is_single(name) && fields.is_list(name) {
        true => Err(format!("{name} is a list: it takes one value").into()),
        false => Ok(()),
    }
}

/// The flag of a field: that of its row, or the one of the same name.
pub(crate) fn flag_of(field: &str) -> Option<&str> {
    let of_rows = ROWS.iter().find(|row| row.fields.iter().any(|(own, _)| *own == field)).map(|row| row.flag);
    let renamed = RENAMED.iter().find(|(own, _)| *own == field).map(|(_, flag)| *flag);
    let (section, name) = field.split_once('.')?;
    let same = MEGATRON.named(&name.replace('_', "-")).filter(|_| SECTIONS.contains(&section));
    of_rows.or(renamed).or(same)
}

/// The flags that mean what the fields say.
///
/// # Errors
/// A truth value is none, or a recipe of precision is not known.
fn flags(fields: &Fields) -> Result<Flags, FlagError> {
    let mut flags = Flags::new();
    for row in &ROWS {
        if let Some(values) = values_of(row, fields) {
            flags.insert(row.flag.to_string(), values);
        }
    }
    for (field, flag) in RENAMED {
        if let Some(value) = fields.text(field).filter(|value| *value != NOTHING) {
            flags.insert(flag.to_string(), vec![value.to_string()]);
        }
    }
    for field in fields.names().filter(|field| !ROWS.iter().any(|row| row.fields.iter().any(|(own, _)| own == field))) {
        same_name(field, fields, &mut flags)?;
    }
    if flags.contains_key("num-query-groups") {
        flags.insert("group-query-attention".to_string(), Vec::new());
    }
    named_recipe(fields, &mut flags)?;
    Ok(flags)
}

/// The values of a row's flag, if the fields have it.
fn values_of(row: &Row, fields: &Fields) -> Option<Vec<String>> {
    let mut values = None;
    for (field, given) in row.fields {
        let stated = fields.text(field);
        match (given, stated) {
            // Further fields of a value repeat it; of truth values one may be left out.
            (Given::Value | Given::Words | Given::Dtype, Some(NOTHING) | None) => return values,
            (Given::Value, Some(stated)) => return Some(vec![stated.to_string()]),
            (Given::Words, Some(stated)) => return Some(stated.split_whitespace().map(str::to_string).collect()),
            (Given::Dtype, Some(stated)) => return Some(vec![dtype(stated).to_string()]),
            (Given::Text("True" | "False"), None) => {}
            (Given::Text("True"), Some(stated)) if yaml::truth(stated) == Some(true) => values = Some(Vec::new()),
            (Given::Text("False"), Some(stated)) if yaml::truth(stated) == Some(false) => values = Some(Vec::new()),
            // Functions of Python are known by their names.
            (Given::Text(wanted), Some(stated)) if last_part(wanted).eq_ignore_ascii_case(last_part(stated)) => {
                values = Some(Vec::new());
            }
            (Given::Text(_), _) => return None,
        }
    }
    values
}

fn last_part(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Megatron-LM's name of an element type of PyTorch.
fn dtype(name: &str) -> &str {
    match last_part(name) {
        "bfloat16" => "bf16",
        "float16" => "fp16",
        "float32" => "fp32",
        other => other,
    }
}

/// Puts the flag of the same name, if the field has another value than its default, or Megatron-LM's reader asks for it.
///
/// # Errors
/// A truth value is none.
fn same_name(field: &str, fields: &Fields, flags: &mut Flags) -> Result<(), FlagError> {
    let (Some(flag), Some(value)) = (flag_of(field), fields.text(field)) else { return Ok(()) };
    let is_default = MEGATRON_BRIDGE.is_default(field, Some(value));
    if value == NOTHING || is_default && !ASKED.contains(flag) || flags.contains_key(flag) {
        return Ok(());
    }
    if fields.is_list(field) && LISTS.contains(&flag) {
        flags.insert(flag.to_string(), vec![format!("[{}]", value.replace(' ', ","))]);
        return Ok(());
    }
    if MEGATRON.takes_values(flag) {
        let words = value.split_whitespace().map(|word| dtype(word).to_string());
        flags.insert(flag.to_string(), words.collect());
        return Ok(());
    }
    let is_negated = flag.starts_with("no-") && !field.contains("no_");
    match yaml::truth(value) {
        Some(is_true) if is_true != is_negated => drop(flags.insert(flag.to_string(), Vec::new())),
        None if ASKED.contains(flag) => return Err(format!("{field} is `{value}`: it is true or false").into()),
        _ => {}
    }
    Ok(())
}

/// Puts the flags of a recipe that `mixed_precision` names.
///
/// # Errors
/// There is no such recipe.
fn named_recipe(fields: &Fields, flags: &mut Flags) -> Result<(), FlagError> {
    let Some(name) = fields.text("mixed_precision").filter(|name| *name != NOTHING) else { return Ok(()) };
    let narrow = RECIPES.iter().find(|(part, _)| name.contains(part)).map(|(_, recipe)| *recipe);
    let is_fp4 = name.contains("nvfp4");
    let is_plain = matches!(name, "bf16" | "fp16" | "bf16_mixed" | "fp16_mixed" | "bf16-mixed" | "16-mixed");
    if !is_plain && !(name.starts_with("bf16_with_") && (narrow.is_some() || is_fp4)) {
        return Err(
            format!("mixed_precision is `{name}`: it is no recipe of Megatron-Bridge that predictions know").into()
        );
    }
    flags.insert(if name.starts_with("bf16") { "bf16" } else { "fp16" }.to_string(), Vec::new());
    if let Some(recipe) = narrow {
        flags.insert("fp8-format".to_string(), vec!["hybrid".to_string()]);
        flags.insert("fp8-recipe".to_string(), vec![recipe.to_string()]);
    } else if is_fp4 {
        flags.insert("fp4-format".to_string(), vec!["e2m1".to_string()]);
    }
    Ok(())
}

/// True if a field is judged: by a flag of Megatron-LM that is read, harmless or not modelled.
#[cfg(test)]
pub(crate) fn is_judged_by_flag(field: &str) -> bool {
    use crate::flag_table::Judgement;
    if INSTEAD.iter().any(|(own, _)| *own == field) || field == "mixed_precision" {
        return true;
    }
    flag_of(field).is_some_and(|flag| {
        ASKED.contains(flag) || MEGATRON.writes(flag) || !matches!(MEGATRON.judgement(flag), Judgement::Unsaid)
    })
}
