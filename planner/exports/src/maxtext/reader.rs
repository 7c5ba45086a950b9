//! Reading the keys of MaxText: the configuration that a job has now.

use super::assumptions::SHARED;
use super::keys::FileKeys;
use super::layout::QUANTIZATIONS;
use super::read_keys::READ;
use super::{model, presets, remat};
use crate::flag_error::FlagError;
use crate::flag_table::MAXTEXT;
use crate::present::{Keys, Present};
use crate::yaml::NOTHING;

/// Devices of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Devices {
    /// All of them.
    pub count: u64,
    /// Those of a node.
    pub per_node: u64,
}

/// Axes of the mesh, but for those of other programs.
const AXES: [&str; 8] =
    ["data", "fsdp", "fsdp_transpose", "context", "tensor", "tensor_sequence", "expert", "pipeline"];

/// Keys that are read, with those of the axes.
#[cfg(test)]
pub(crate) fn asked() -> Vec<String> {
    let degrees = AXES.iter().flat_map(|axis| ["ici", "dcn"].map(|place| degree_key(place, axis)));
    READ.iter().map(|key| key.name.to_string()).chain(degrees).collect()
}

/// The key of an axis' degree within a node (`ici`) or across nodes (`dcn`).
fn degree_key(place: &str, axis: &str) -> String {
    format!("{place}_{axis}_parallelism")
}

/// Reads a YAML file, or a script with the command of a job.
///
/// # Errors
/// The text has no keys, a key has a value that MaxText refuses, or the number of devices is needed.
pub fn read(text: &str, devices: Option<Devices>) -> Result<Present, FlagError> {
    let file = FileKeys::of(text)?;
    let mut settings = file.settings();
    let mut warnings = Vec::new();
    // A script may have names of its own.
    if file.is_script {
        let others = settings.extract_if(.., |setting| !MAXTEXT.has(&setting.name));
        warnings.extend(
            others.map(|other| {
                format!("not known: MaxText has no key {}{}", other.name, MAXTEXT.suggestion(&other.name))
            }),
        );
    }
    READ.iter().try_for_each(|key| key.check(&file))?;
    settings.iter().try_for_each(|setting| MAXTEXT.check_setting(setting))?;
    contradictions(&file)?;
    let mesh = Mesh::read(&file, devices)?;
    let mut keys = Keys::default();
    let batch = mesh.put(&file, &mut keys)?;
    let others = settings.iter().filter(|setting| !is_read(&setting.name));
    warnings.extend(others.filter_map(|other| MAXTEXT.warning(&other.name, other.value.as_slice())));
    warnings.extend(unread(&file, &mesh));
    Ok(Present {
        parallel: keys.text(),
        model: named_model(&file),
        stack: Some("jax-2024".to_string()),
        seq: file.size("max_target_length").or(Some(2048)),
        global_batch: Some(batch),
        precision: precision(&file)?,
        optimizer: optimizer(&file)?,
        master: file.text("weight_dtype").filter(|dtype| dtype == "bfloat16").map(|_| "bf16".to_string()),
        grad_dtype: file.text("grad_dtype").filter(|dtype| dtype == "bfloat16").map(|_| "bf16".to_string()),
        warnings,
        ..Present::default()
    })
}

fn is_read(name: &str) -> bool {
    READ.iter().any(|key| key.name == name) || AXES.iter().any(|axis| name.ends_with(&format!("_{axis}_parallelism")))
}

/// Checks keys that exclude each other, or need another one.
///
/// # Errors
/// Sizes stand beside a model's name, or steps have no passes.
fn contradictions(file: &FileKeys) -> Result<(), FlagError> {
    if file.is_set("override_model_config") && model_name(file).is_some() {
        let text = "override_model_config changes a model by name: state all sizes without model_name, or give MODEL";
        return Err(FlagError::Combination(text.into()));
    }
    for key in ["gradient_accumulation_steps", "max_target_length"] {
        if file.whole(key)?.is_some_and(|number| number < 1) {
            return Err(format!("{key} begins at 1").into());
        }
    }
    // Where MaxText is to find them itself, they are -1.
    for key in ["num_layers_per_pipeline_stage", "num_pipeline_microbatches", "num_pipeline_repeats"] {
        if let Some(number) = file.whole(key)?.filter(|&number| number < 1 && number != -1) {
            return Err(format!("{key} is {number}: it begins at 1, and -1 leaves it to MaxText").into());
        }
    }
    // First layers without experts are in no stage.
    let dense = file.size("first_num_dense_layers").unwrap_or(0);
    let layers = file.size("base_num_decoder_layers").map(|layers| layers.saturating_sub(dense));
    match layers.zip(file.size("num_layers_per_pipeline_stage")) {
        Some((layers, of_stage)) if of_stage == 0 || !layers.is_multiple_of(of_stage) => {
            Err(format!("num_layers_per_pipeline_stage {of_stage} does not divide {layers} layers").into())
        }
        _ => Ok(()),
    }
}

/// A key that is read, whose other values predictions do not know.
struct Partly {
    key: &'static str,
    known: &'static [&'static str],
    /// The part of the prediction that other values touch.
    touched: &'static str,
}

const PARTLY: [Partly; 5] = [
    Partly {
        key: "attention",
        known: &["autoselected", "flash", "cudnn_flash_te", "cudnn_flash_jax"],
        touched: "attention: the kernel of the stack is predicted",
    },
    Partly { key: "weight_dtype", known: &["float32", "bfloat16"], touched: "parameters: they are predicted in f32" },
    Partly { key: "grad_dtype", known: &["float32", "bfloat16"], touched: "gradients: they are predicted in f32" },
    Partly { key: "mu_dtype", known: &["", "float32", "bfloat16"], touched: "moments: they are predicted in f32" },
    Partly {
        key: "context_parallel_strategy",
        known: &["ring", "all_gather"],
        touched: "cp: keys and values are predicted to be gathered",
    },
];

/// Parts of keys that are read which predictions do not know, as warnings.
fn unread(file: &FileKeys, mesh: &Mesh) -> Vec<String> {
    let mut warnings: Vec<String> = Quantization::read(file).and_then(|own| own.warning()).into_iter().collect();
    for Partly { key, known, touched } in PARTLY {
        if let Some(value) = file.text(key).filter(|value| !known.contains(&value.as_str()) && value != NOTHING) {
            warnings.push(format!("not modelled: {key}={value} touches {touched}"));
        }
    }
    if let Some(factor) = file.number("capacity_factor").filter(|&factor| factor > 0.0) {
        warnings.push(format!("not modelled: capacity_factor={factor} touches experts: give MODEL with its capacity"));
    }
    warnings.extend(remat::unknown(file.text("remat_policy").as_deref()));
    let rules = file.rules("logical_axis_rules").unwrap_or_default();
    if rules.iter().any(|name| !SHARED.contains(name)) {
        warnings
            .push("not modelled: logical_axis_rules touches the layout: rules of one's own place tensors".to_string());
    }
    // The file of a model wins over that of a job (configs/pyconfig.py).
    if model_name(file).is_some() {
        let own = ["base_emb_dim", "base_mlp_dim", "base_num_decoder_layers", "num_experts"];
        let stated = own.into_iter().filter(|key| file.text(key).is_some());
        warnings.extend(stated.map(|key| format!("not read: {key} is that of model_name in MaxText")));
    }
    if mesh.fsdp_transpose > 1 {
        warnings.push("not modelled: fsdp_transpose shards another dimension: it is read as fsdp".to_string());
    }
    if mesh.pipeline > 1 && file.size("gradient_accumulation_steps").is_some_and(|steps| steps > 1) {
        warnings.push("not modelled: gradient_accumulation_steps under a pipeline: each pass drains it".to_string());
    }
    warnings
}

/// True if the model has experts.
fn has_experts(file: &FileKeys) -> bool {
    let named = model_name(file).and_then(|name| presets::preset(&name));
    file.size("num_experts").is_some_and(|experts| experts > 1)
        || named.is_some_and(|name| {
            ir::models::presets().any(|preset| preset.name == name && preset.config.experts().is_some())
        })
}

/// Degrees of the axes over all nodes.
struct Mesh {
    data: u64,
    fsdp: u64,
    fsdp_transpose: u64,
    context: u64,
    tensor: u64,
    tensor_sequence: u64,
    expert: u64,
    pipeline: u64,
}

impl Mesh {
    /// Reads the degrees. One within a node and one across nodes may be -1: what the others leave.
    fn read(file: &FileKeys, devices: Option<Devices>) -> Result<Mesh, FlagError> {
        let (within, across) = (Degrees::read(file, "ici", "fsdp")?, Degrees::read(file, "dcn", "data")?);
        let slice = devices.map(|devices| slice_of(devices, &within, &across));
        let slices = devices.zip(slice).map(|(devices, slice)| devices.count / slice.max(1));
        let (within, across) = (within.filled(slice)?, across.filled(slices)?);
        let [data, fsdp, fsdp_transpose, context, tensor, tensor_sequence, expert, pipeline] =
            std::array::from_fn(|nth| within[nth] * across[nth]);
        Ok(Mesh { data, fsdp, fsdp_transpose, context, tensor, tensor_sequence, expert, pipeline })
    }

    fn replicas(&self) -> u64 {
        self.data * self.fsdp * self.fsdp_transpose * self.expert
    }

    fn devices(&self) -> u64 {
        self.replicas() * self.context * self.tensor * self.tensor_sequence * self.pipeline
    }

    /// Puts the keys of a configuration, and returns the sequences of a step.
    fn put(&self, file: &FileKeys, keys: &mut Keys) -> Result<u64, FlagError> {
        let (dp, tp) = (self.replicas(), self.tensor * self.tensor_sequence);
        keys.put("dp", dp);
        keys.put("tp", tp);
        keys.put("pp", self.pipeline);
        keys.put("cp", self.context);
        keys.put("sp", self.tensor_sequence > 1);
        if self.expert > 1 {
            keys.put("ep", self.expert);
        }
        // Experts are cut as all else is.
        if self.expert > 1 || tp > 1 && has_experts(file) {
            keys.put("etp", tp);
        }
        if self.context > 1 {
            let strategy = file.text("context_parallel_strategy");
            keys.put("cp_kind", if strategy.as_deref() == Some("ring") { "ring" } else { "allgather" });
        }
        self.zero(file, keys);
        let microbatches = self.pipeline_keys(file, keys)?;
        let batch = self.batch(file, microbatches, keys)?;
        if let Some(policy) = remat::recompute(&file.text("remat_policy").unwrap_or("full".to_string())) {
            keys.put("recompute", policy);
        }
        if file.is_set("optimizer_memory_host_offload") {
            keys.put("offload_optimizer", true);
        }
        Ok(batch)
    }

    /// Parameters are shared by the ranks of fsdp, of experts and of context, unless rules of the file say otherwise.
    fn zero(&self, file: &FileKeys, keys: &mut Keys) {
        let is_whole = file.rules("logical_axis_rules").is_some_and(|rules| rules.contains(&"embed"));
        let others = if is_whole { 1 } else { self.expert * self.context };
        let shard = self.fsdp * self.fsdp_transpose * others;
        if shard > 1 {
            keys.put("zero", 3);
            if shard < self.replicas() * self.context {
                keys.put("shard", shard);
            }
        } else {
            keys.put("zero", u64::from(file.is_set("shard_optimizer_over_data")));
        }
    }

    /// Puts the schedule, and returns the micro-batches of a pass.
    fn pipeline_keys(&self, file: &FileKeys, keys: &mut Keys) -> Result<u64, FlagError> {
        if self.pipeline == 1 {
            return Ok(1);
        }
        let repeats = match file.whole("num_pipeline_repeats")? {
            Some(repeats) if repeats > 0 => repeats.unsigned_abs(),
            _ => {
                let layers = file.size("base_num_decoder_layers");
                let layers = layers.ok_or("num_pipeline_repeats follows from the layers of model_name: state it")?;
                layers / (self.pipeline * file.size("num_layers_per_pipeline_stage").unwrap_or(1)).max(1)
            }
        };
        keys.put("schedule", if repeats > 1 { "looped-bfs" } else { "gpipe" });
        if repeats > 1 {
            keys.put("vp", repeats);
        }
        let microbatches = file.whole("num_pipeline_microbatches")?;
        Ok(microbatches.filter(|&count| count > 0).map_or(self.pipeline, i64::unsigned_abs))
    }

    /// Puts the size of a micro-batch, and returns the sequences of a step.
    fn batch(&self, file: &FileKeys, microbatches: u64, keys: &mut Keys) -> Result<u64, FlagError> {
        // Default of base.yml.
        let share = file.number("per_device_batch_size").unwrap_or(12.0);
        let pass = (share * self.devices() as f64) as u64;
        let passes = file.whole("gradient_accumulation_steps")?.unwrap_or(1).max(1).unsigned_abs();
        let places = self.replicas() * microbatches;
        if pass == 0 || !pass.is_multiple_of(places) {
            let text = format!(
                "per_device_batch_size {share} on {} devices is {pass} sequences a pass: they do not divide into {places} micro-batches",
                self.devices()
            );
            return Err(text.into());
        }
        keys.put("mbs", pass / places);
        pass.checked_mul(passes).ok_or_else(|| "gradient_accumulation_steps: the step has too many sequences".into())
    }
}

/// Degrees of the axes in a place, as a file states them.
struct Degrees {
    place: &'static str,
    stated: [u64; 8],
    /// The axis that takes what the others leave.
    open: Option<usize>,
}

impl Degrees {
    /// Reads them. `open` is the axis that takes the rest by default (base.yml).
    ///
    /// # Errors
    /// A degree is no number of devices.
    fn read(file: &FileKeys, place: &'static str, open: &str) -> Result<Degrees, FlagError> {
        let mut degrees = Degrees { place, stated: [1; 8], open: None };
        let leaves_open = !AXES.iter().any(|axis| file.text(&degree_key(place, axis)).as_deref() == Some("-1"));
        for (nth, axis) in AXES.into_iter().enumerate() {
            let key = degree_key(place, axis);
            if file.has(&key) && file.text(&key).is_none_or(|text| text == NOTHING) {
                return Err(format!("{key} takes a number from 1 to 65535, or -1").into());
            }
            match file.whole(&key)?.unwrap_or(if axis == open && leaves_open { -1 } else { 1 }) {
                -1 if degrees.open.is_some() => return Err(format!("{key} is -1, and so is another axis").into()),
                -1 => degrees.open = Some(nth),
                degree @ 1..=0xffff => degrees.stated[nth] = degree.unsigned_abs(),
                other => return Err(format!("{key} is {other}: it takes a number from 1 to 65535, or -1").into()),
            }
        }
        Ok(degrees)
    }

    /// Their product, but for the open one.
    fn product(&self) -> u64 {
        self.stated.iter().fold(1, |all, degree| all.saturating_mul(*degree))
    }

    /// The degrees on a number of devices or slices.
    ///
    /// # Errors
    /// They are not as many, or the number is needed.
    fn filled(self, room: Option<u64>) -> Result<[u64; 8], FlagError> {
        let product = self.product();
        let Degrees { place, mut stated, open } = self;
        match (open, room) {
            (Some(nth), Some(room)) if room.is_multiple_of(product) => stated[nth] = room / product,
            (None, Some(room)) if room == product => {}
            (None, None) => {}
            (_, Some(room)) => {
                return Err(format!("the degrees {place}_*_parallelism are {product} in all, of {room}").into());
            }
            (Some(nth), None) => {
                let text = format!("{} depends on the number of devices: give --gpus", degree_key(place, AXES[nth]));
                return Err(text.into());
            }
        }
        Ok(stated)
    }
}

/// Devices of a slice: those of a node, but all of them where the file states more, as on TPUs.
fn slice_of(devices: Devices, within: &Degrees, across: &Degrees) -> u64 {
    let of_node = devices.per_node.min(devices.count).max(1);
    let fills = within.open.is_some() || within.product() == of_node;
    match of_node.is_multiple_of(within.product()) && fills {
        true => of_node,
        false => devices.count / across.product().max(1),
    }
}

/// The name of a model of MaxText's own.
fn model_name(file: &FileKeys) -> Option<String> {
    file.text("model_name").filter(|name| name != "default")
}

/// The model that the keys state, or the preset that they name.
fn named_model(file: &FileKeys) -> Option<String> {
    match model_name(file) {
        Some(name) => presets::preset(&name).map(str::to_string),
        None => model::of_keys(file).map(|config| config.to_string()),
    }
}

/// A recipe of MaxText's own, and the precision that predictions take for it.
struct Quantization {
    name: String,
    precision: &'static str,
    is_known: bool,
}

impl Quantization {
    fn read(file: &FileKeys) -> Option<Quantization> {
        let name = file.text("quantization").filter(|name| !name.is_empty())?;
        let known = QUANTIZATIONS.iter().find(|(_, own)| *own == name);
        let precision = match known {
            Some((recipe, _)) => recipe,
            None if name.contains("fp8") => "fp8-tensor",
            None => "bf16",
        };
        Some(Quantization { is_known: known.is_some(), name, precision })
    }

    fn warning(&self) -> Option<String> {
        let Quantization { name, precision, is_known } = self;
        let text = format!("not modelled: quantization={name} touches products: they are predicted in {precision}");
        (!is_known).then_some(text)
    }
}

fn precision(file: &FileKeys) -> Result<String, FlagError> {
    if let Some(quantization) = Quantization::read(file) {
        return Ok(quantization.precision.to_string());
    }
    match file.text("dtype").as_deref() {
        None | Some("bfloat16") => Ok("bf16".into()),
        Some("float32") => Ok("f32".into()),
        Some("float16") => Ok("fp16".into()),
        Some(other) => Err(format!("dtype is `{other}`: predictions know bfloat16, float16 and float32").into()),
    }
}

fn optimizer(file: &FileKeys) -> Result<String, FlagError> {
    let has_narrow = file.text("mu_dtype").as_deref() == Some("bfloat16");
    match file.text("opt_type").as_deref() {
        None | Some("adamw" | "adam_pax") if has_narrow => Ok("adamw-bf16".into()),
        None | Some("adamw" | "adam_pax") => Ok("adamw".into()),
        Some("sgd") => Ok("sgd".into()),
        Some(other) => Err(format!("opt_type is `{other}`: predictions know adamw and sgd").into()),
    }
}
