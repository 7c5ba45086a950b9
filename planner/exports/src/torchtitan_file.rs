//! Reading the configuration of torchtitan: a Python file of its registry, or a TOML file of versions up to 0.2.

use crate::flag_error::FlagError;
use crate::flag_table::{FlagTable, Setting, TORCHTITAN, TORCHTITAN_TOML};
use crate::present::{Keys, Present, stated_stack};
use crate::python_config::{COMPUTED, values};
use crate::stage_weights::StageWeights;
use crate::torchtitan::SCHEDULES;
use crate::torchtitan_model::preset;
use serde_json::Value;
use std::collections::BTreeMap;

/// Language of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form<'a> {
    /// Python, with the function that makes the configuration if there are several.
    Python(Option<&'a str>),
    /// TOML.
    Toml,
}

/// Reads a file. The number of devices says how many ranks of data parallelism there are, where the file leaves it open.
///
/// # Errors
/// The text cannot be read, a field has a value that torchtitan refuses or that is computed, or the number of devices is needed.
pub fn read(text: &str, form: Form<'_>, gpus: Option<u64>) -> Result<Present, FlagError> {
    let fields = match form {
        Form::Python(function) => values(text, function)?,
        Form::Toml => of_toml(text)?,
    };
    let mut fields = without_own(fields, form);
    let foreign = foreign(&mut fields, form);
    let settings = fields.iter().map(|(name, value)| Setting { name: name.clone(), value: text_of(value) });
    let settings: Vec<Setting> = settings.collect();
    settings.iter().try_for_each(|setting| check(setting, form))?;
    let mut reader = Reader::of(&fields);
    let mut present = reader.all(form, gpus)?;
    present.stack = stated_stack(text).map(str::to_string).or(present.stack);
    present.warnings.extend(foreign.iter().map(|name| format!("not known: torchtitan has no field {name}")));
    let others = settings.iter().filter(|setting| !reader.asked.contains(&setting.name));
    present.warnings.extend(others.filter_map(|other| table(form).warning(&other.name, other.value.as_slice())));
    Ok(present)
}

/// Fields that are read, whether they are given or not.
#[cfg(test)]
pub(crate) fn asked() -> Vec<String> {
    let mut asked = Vec::new();
    // A pipeline has fields of its own.
    for degree in [1, 2] {
        let fields = BTreeMap::from([("parallelism.pipeline_parallel_degree".to_string(), Value::from(degree))]);
        for form in [Form::Python(None), Form::Toml] {
            let mut reader = Reader::of(&fields);
            reader.all(form, Some(8)).expect("no field is no mistake");
            asked.append(&mut reader.asked);
        }
    }
    asked
}

/// Keys of the versions that have files of a form.
fn table(form: Form<'_>) -> &'static FlagTable {
    match form {
        Form::Python(_) => &TORCHTITAN,
        Form::Toml => &TORCHTITAN_TOML,
    }
}

/// The fields without those that a module of one's own adds, if there is such a module.
fn without_own(mut fields: BTreeMap<String, Value>, form: Form<'_>) -> BTreeMap<String, Value> {
    const MODULES: [&str; 2] = ["experimental.custom_args_module", "job.custom_config_module"];
    if MODULES.iter().any(|key| fields.get(*key).and_then(Value::as_str).is_some_and(|module| !module.is_empty())) {
        fields.retain(|name, _| table(form).has(name));
    }
    fields
}

/// True if no version has the section of a field, or a field of a name like it.
fn is_foreign(name: &str) -> bool {
    let section = name.split('.').next().unwrap_or(name);
    ![&TORCHTITAN, &TORCHTITAN_TOML].iter().any(|table| table.asks(section) || table.resembles(name))
}

/// Takes out fields of sections that a configuration of one's own adds: torchtitan has none like them.
fn foreign(fields: &mut BTreeMap<String, Value>, form: Form<'_>) -> Vec<String> {
    if form == Form::Toml {
        return Vec::new();
    }
    let foreign: Vec<String> = fields.keys().filter(|name| is_foreign(name)).cloned().collect();
    foreign.iter().for_each(|name| drop(fields.remove(name)));
    foreign
}

/// Checks that torchtitan has a field, and takes its value.
///
/// # Errors
/// torchtitan has no field of the name, or another version has it, or it refuses the value.
fn check(setting: &Setting, form: Form<'_>) -> Result<(), FlagError> {
    let name = &setting.name;
    table(form).check_setting(setting).map_err(|fault| match form {
        _ if table(form).has(name) => fault,
        Form::Python(_) if TORCHTITAN_TOML.has(name) => {
            format!("{name} is a key of torchtitan up to 0.2: {fault}").into()
        }
        Form::Toml if TORCHTITAN.has(name) => {
            format!("{name} is a key of torchtitan 0.3, which has no TOML files: {fault}").into()
        }
        _ => fault,
    })
}

/// A value as a table of keys has it; none of a list or of one that is computed.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.starts_with(COMPUTED)),
        Value::Array(items) if items.iter().any(|item| text_of(item).is_none()) => None,
        other => Some(other.to_string()),
    }
}

/// The values of a TOML file by section and name.
fn of_toml(text: &str) -> Result<BTreeMap<String, Value>, FlagError> {
    let file: BTreeMap<String, Value> =
        toml::from_str(text).map_err(|why| format!("it is no TOML: {}", why.message()))?;
    if !file.contains_key("parallelism") && !file.contains_key("training") {
        return Err("it has neither a section `parallelism` nor one `training`".into());
    }
    let mut fields = BTreeMap::new();
    file.into_iter().for_each(|(section, value)| flatten(section, value, &mut fields));
    Ok(fields.into_iter().map(|(name, value)| (TORCHTITAN_TOML.current(name), value)).collect())
}

/// Puts the values within a section, by their paths.
fn flatten(path: String, value: Value, fields: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(pairs) => {
            pairs.into_iter().for_each(|(name, value)| flatten(format!("{path}.{name}"), value, fields));
        }
        value => drop(fields.insert(path, value)),
    }
}

/// The block that a layer of a name is: the embedding is the first one.
fn first_block(layer: &Value) -> Option<String> {
    let layer: u32 = layer.as_str()?.strip_prefix("layers.")?.parse().ok()?;
    Some((u64::from(layer) + 1).to_string())
}

struct Reader<'a> {
    fields: &'a BTreeMap<String, Value>,
    /// The fields that are read, whether they are given or not.
    asked: Vec<String>,
    keys: Keys,
    unread: Vec<String>,
}

impl<'a> Reader<'a> {
    fn of(fields: &'a BTreeMap<String, Value>) -> Reader<'a> {
        Reader { fields, asked: Vec::new(), keys: Keys::default(), unread: Vec::new() }
    }

    /// All that the fields state.
    fn all(&mut self, form: Form<'_>, gpus: Option<u64>) -> Result<Present, FlagError> {
        let dp = self.degrees(gpus)?;
        let split = self.pipeline()?;
        self.memory(form)?;
        let seq = self.number("training.seq_len")?.or(Some(2048));
        let local = self.number("training.local_batch_size")?.unwrap_or(8);
        let whole = self.open("training.global_batch_size")?;
        let global_batch = whole.or_else(|| dp.and_then(|dp| dp.checked_mul(local)));
        let (precision, stack) = (self.precision(form)?, self.stack(form)?);
        let optimizer = self.optimizer()?;
        let unread = std::mem::take(&mut self.unread);
        Ok(Present {
            parallel: std::mem::take(&mut self.keys).text(),
            model: self.model()?,
            stack: Some(stack.to_string()),
            seq,
            global_batch,
            precision,
            optimizer,
            warnings: unread.iter().map(|key| format!("not modelled: {key}")).collect(),
            split,
            ..Present::default()
        })
    }

    fn value(&mut self, key: &str) -> Result<Option<&'a Value>, FlagError> {
        self.asked.push(key.to_string());
        let Some(value) = self.fields.get(key) else { return Ok(None) };
        match value {
            Value::Null => Ok(None),
            Value::String(text) if text.starts_with(COMPUTED) && key != "activation_checkpoint" => {
                Err(format!("{key} is computed: write its value out").into())
            }
            value => Ok(Some(value)),
        }
    }

    fn signed(&mut self, key: &str) -> Result<Option<i64>, FlagError> {
        let Some(value) = self.value(key)? else { return Ok(None) };
        let float = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 1e15);
        let whole = value.as_i64().or(float.map(|number| number as i64));
        whole.map(Some).ok_or_else(|| format!("{key} is {value}: it takes a whole number").into())
    }

    /// A whole number; none where torchtitan is to find it itself, by -1.
    fn open(&mut self, key: &str) -> Result<Option<u64>, FlagError> {
        match self.signed(key)? {
            None | Some(-1) => Ok(None),
            Some(_) => self.number(key),
        }
    }

    fn number(&mut self, key: &str) -> Result<Option<u64>, FlagError> {
        let Some(value) = self.signed(key)? else { return Ok(None) };
        let number = u64::try_from(value).ok().filter(|&value| value > 0);
        number.map(Some).ok_or_else(|| format!("{key} is {value}: it takes a whole number above 0").into())
    }

    fn flag(&mut self, key: &str) -> Result<Option<bool>, FlagError> {
        let Some(value) = self.value(key)? else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| format!("{key} is {value}: it is true or false").into())
    }

    fn word(&mut self, key: &str) -> Result<Option<&'a str>, FlagError> {
        let Some(value) = self.value(key)? else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| format!("{key} is {value}: it is a text").into())
    }

    /// A degree, 1 if the file leaves it open.
    fn degree(&mut self, name: &str) -> Result<u64, FlagError> {
        Ok(self.number(&format!("parallelism.{name}"))?.unwrap_or(1))
    }

    /// The parallel degrees. Returns dp, where the file or the number of devices gives it.
    fn degrees(&mut self, gpus: Option<u64>) -> Result<Option<u64>, FlagError> {
        let (tp, pp) = (self.degree("tensor_parallel_degree")?, self.degree("pipeline_parallel_degree")?);
        let (cp, ep) = (self.degree("context_parallel_degree")?, self.degree("expert_parallel_degree")?);
        let replicas = self.degree("data_parallel_replicate_degree")?;
        let stated = self.open("parallelism.data_parallel_shard_degree")?;
        let others = [tp, pp, cp, replicas]
            .iter()
            .try_fold(1u64, |all, degree| all.checked_mul(*degree))
            .ok_or("the degrees are too large")?;
        let shards = match (stated, gpus) {
            (Some(shards), _) => Some(shards),
            (_, Some(gpus)) if gpus.is_multiple_of(others) => Some(gpus / others),
            (_, Some(gpus)) => {
                return Err(format!("{gpus} devices are no multiple of the other degrees, {others}").into());
            }
            (_, None) if replicas > 1 => {
                return Err("data_parallel_shard_degree is left open: --gpus gives the number of devices".into());
            }
            (_, None) => None,
        };
        let dp = match shards {
            Some(shards) => Some(shards.checked_mul(replicas).ok_or("the degrees are too large")?),
            None => None,
        };
        if let Some(dp) = dp {
            self.keys.put("dp", dp);
        }
        for (key, degree) in [("tp", tp), ("pp", pp), ("cp", cp), ("ep", ep)] {
            self.keys.put(key, degree);
        }
        if let Some(etp) = self.number("parallelism.expert_tensor_parallel_degree")? {
            self.keys.put("etp", etp);
        }
        self.shards(shards, replicas, cp, pp)?;
        let split = self.flag("parallelism.enable_sequence_parallel")?.unwrap_or(true);
        self.keys.put("sp", split && tp > 1);
        let overlaps = [
            self.flag("parallelism.enable_async_tensor_parallel")?,
            self.flag("compile.enable_async_tensor_parallel")?,
        ];
        if overlaps.contains(&Some(true)) {
            self.keys.put("tp_overlap", true);
        }
        let turns = self.word("parallelism.context_parallel_rotate_method")? == Some("alltoall");
        if cp > 1 {
            self.keys.put("cp_kind", if turns { "ring" } else { "allgather" });
        }
        Ok(dp)
    }

    /// Puts what data-parallel ranks shard, and how long it stays gathered.
    fn shards(&mut self, shards: Option<u64>, replicas: u64, cp: u64, pp: u64) -> Result<(), FlagError> {
        let policy = self.word("parallelism.fsdp_reshard_after_forward")?.unwrap_or("default");
        // With context parallelism torchtitan shards over its ranks too.
        let is_sharded = shards.is_none_or(|shards| shards > 1) || cp > 1;
        self.keys.put("zero", if is_sharded { 3 } else { 0 });
        if !is_sharded {
            return Ok(());
        }
        if let Some(shards) = shards.filter(|_| replicas > 1) {
            self.keys.put("shard", shards * cp);
        }
        match policy {
            "always" => {}
            "never" => self.keys.put("gather", "step"),
            "default" if pp > 1 => self.keys.put("gather", "step"),
            "default" => {}
            other => {
                return Err(format!(
                    "parallelism.fsdp_reshard_after_forward is `{other}`: it is default, always or never"
                )
                .into());
            }
        }
        Ok(())
    }

    /// Puts the keys of a pipeline. Returns how its layers are divided, where that depends on the model.
    fn pipeline(&mut self) -> Result<Option<StageWeights>, FlagError> {
        let pp = self.number("parallelism.pipeline_parallel_degree")?.unwrap_or(1);
        let kind = self.word("parallelism.pipeline_parallel_schedule")?.unwrap_or("1F1B");
        let size = self.number("parallelism.pipeline_parallel_microbatch_size")?.unwrap_or(1);
        let file = self.word("parallelism.pipeline_parallel_schedule_csv")?.unwrap_or_default();
        let parts = self.value("parallelism.module_fqns_per_model_part")?;
        let points = self.value("parallelism.pipeline_parallel_split_points")?;
        let layers = self.number("parallelism.pipeline_parallel_layers_per_stage")?;
        if pp == 1 {
            let local = self.number("training.local_batch_size")?.unwrap_or(8);
            self.keys.put("mbs", local);
            return Ok(None);
        }
        self.keys.put("mbs", size);
        if !file.is_empty() {
            return Err(format!(
                "the schedule is in {file}: no configuration states it; `meshwright schedule --from` times it"
            )
            .into());
        }
        let ours = SCHEDULES.iter().find(|(_, theirs)| theirs.eq_ignore_ascii_case(kind));
        let Some((ours, _)) = ours else {
            return Err(format!(
                "parallelism.pipeline_parallel_schedule is `{kind}`: no schedule of this program has its order"
            )
            .into());
        };
        self.keys.put("schedule", ours);
        let [first, last] =
            ["first", "last"].map(|end| format!("parallelism.pipeline_parallel_{end}_stage_less_layers"));
        let (first, last) = (self.signed(&first)?.unwrap_or(1), self.signed(&last)?.unwrap_or(1));
        if let Some(parts) = parts {
            self.stages(parts, pp)?;
            return Ok(None);
        }
        if let Some(points) = points.and_then(Value::as_array).filter(|points| !points.is_empty()) {
            self.split_points(points, pp)?;
            return Ok(None);
        }
        let is_looped = !matches!(*ours, "gpipe" | "1f1b");
        Ok(Some(StageWeights { ranks: pp, is_looped, layers_per_stage: layers, first, last }))
    }

    /// Stages by the layers that they begin with, as versions of 0.1 have them.
    fn split_points(&mut self, points: &[Value], pp: u64) -> Result<(), FlagError> {
        let starts: Option<Vec<String>> = points.iter().map(first_block).collect();
        let starts = starts.ok_or("parallelism.pipeline_parallel_split_points is no list of names such as layers.4")?;
        let stages = starts.len() as u64 + 1;
        if !stages.is_multiple_of(pp) {
            return Err(
                format!("parallelism.pipeline_parallel_split_points makes {stages} stages for {pp} ranks").into()
            );
        }
        if stages > pp {
            self.keys.put("vp", stages / pp);
        }
        self.keys.put("stages", starts.join(","));
        Ok(())
    }

    /// Stages as lists of modules: the embedding, layers, the norm and the head.
    fn stages(&mut self, parts: &Value, pp: u64) -> Result<(), FlagError> {
        const NO_LISTS: &str = "parallelism.module_fqns_per_model_part is no list of lists of names";
        let parts = parts.as_array().ok_or(NO_LISTS)?;
        let (mut starts, mut blocks) = (Vec::new(), 0u64);
        for part in parts {
            starts.push(blocks);
            for name in part.as_array().ok_or(NO_LISTS)? {
                let name = name.as_str().ok_or(NO_LISTS)?;
                // The norm is in the block of the head.
                blocks += u64::from(name != "norm");
            }
        }
        let stages = parts.len() as u64;
        if !stages.is_multiple_of(pp) {
            return Err(format!("parallelism.module_fqns_per_model_part has {stages} parts for {pp} ranks").into());
        }
        if stages > pp {
            self.keys.put("vp", stages / pp);
        }
        let starts: Vec<String> = starts.iter().skip(1).map(u64::to_string).collect();
        self.keys.put("stages", starts.join(","));
        Ok(())
    }

    fn memory(&mut self, form: Form<'_>) -> Result<(), FlagError> {
        let class = self.value("activation_checkpoint")?.map(ToString::to_string);
        let mode = self.word("activation_checkpoint.mode")?;
        let option = self.value("activation_checkpoint.selective_ac_option")?.cloned();
        let mode = match (&class, mode) {
            (Some(class), _) if class.contains("FullAC") => "full",
            (Some(class), _) if class.contains("SelectiveAC") => "selective",
            (Some(class), _) => {
                self.unread
                    .push(format!("activation_checkpoint={}", class.trim_matches('"').trim_start_matches(COMPUTED)));
                "none"
            }
            (None, Some(mode)) => mode,
            // A field that is set to None is there, and has no class.
            (None, None) if self.fields.contains_key("activation_checkpoint") => "none",
            (None, None)
                if form == Form::Toml && !self.fields.keys().any(|key| key.starts_with("activation_checkpoint.")) =>
            {
                "selective"
            }
            (None, None) => "selective",
        };
        match mode {
            "none" => {}
            "full" => self.keys.put("recompute", "full"),
            "selective" => {
                match option.as_ref().map(|option| option.as_str().map_or(option.to_string(), str::to_string)) {
                    None => self.keys.put("recompute", "selective:op"),
                    Some(option) if option == "op" => self.keys.put("recompute", "selective:op"),
                    Some(every) => self
                        .unread
                        .push(format!("every {every}th layer is recomputed: give recompute=full:N in --parallel")),
                }
            }
            other => self.unread.push(format!("activation_checkpoint.mode={other}")),
        }
        if self.flag("training.enable_cpu_offload")? == Some(true) {
            self.keys.put("offload_optimizer", true);
        }
        Ok(())
    }

    /// The preset of the model that a TOML file names.
    fn model(&mut self) -> Result<Option<String>, FlagError> {
        let (name, flavor) = (self.word("model.name")?, self.word("model.flavor")?);
        Ok(name.zip(flavor).and_then(|(name, flavor)| preset(name, flavor)).map(str::to_string))
    }

    /// The recipe of products: 8 or 4 bits by a converter of the model, in the recipes of torchao.
    fn precision(&mut self, form: Form<'_>) -> Result<String, FlagError> {
        let plain = match self.word("training.mixed_precision_param")?.unwrap_or("bfloat16") {
            "bfloat16" => "bf16",
            "float32" => "f32",
            other => {
                return Err(format!("training.mixed_precision_param is `{other}`: it is bfloat16 or float32").into());
            }
        };
        let mut converters = String::new();
        for key in ["model.converters", "model_spec.converters"] {
            self.asked.push(key.to_string());
            let Some(value) = self.fields.get(key) else { continue };
            if value.as_str().is_some_and(|text| text.starts_with(COMPUTED)) {
                self.unread.push(format!("{key} touches all products: it is computed, give --precision"));
            }
            converters.push_str(&value.to_string().to_ascii_lowercase());
        }
        let float8 = self.first_word(&["quantize.linear.float8.recipe_name", "float8.recipe_name"])?;
        let mx = self.first_word(&["quantize.linear.mx.recipe_name", "mx.recipe_name"])?.unwrap_or_default();
        // Versions up to 0.2 scale whole tensors by default.
        let is_by_row = float8.map_or(matches!(form, Form::Python(_)), |recipe| recipe.starts_with("rowwise"));
        let recipe = match plain {
            "f32" => plain,
            _ if converters.contains("nvfp4") => "nvfp4",
            _ if converters.contains("float8") && is_by_row => "fp8-row",
            _ if converters.contains("float8") => "fp8-tensor",
            _ if converters.contains("mx") && mx.contains("mxfp4") => "mxfp4",
            _ if converters.contains("mx") => "mxfp8",
            _ => plain,
        };
        Ok(recipe.to_string())
    }

    /// The first text among several keys.
    fn first_word(&mut self, keys: &[&str]) -> Result<Option<&'a str>, FlagError> {
        let mut found = None;
        for key in keys {
            found = found.or(self.word(key)?);
        }
        Ok(found)
    }

    /// The stack of the version of torchtitan, compiled or not.
    fn stack(&mut self, form: Form<'_>) -> Result<&'static str, FlagError> {
        for field in ["training.disable_cuda_graphs", "training.mixed_precision_reduce"] {
            self.value(field)?;
        }
        let is_enabled = [self.flag("compile.enable")?, self.flag("training.compile")?].contains(&Some(true));
        let parts = self.value("compile.components")?.and_then(Value::as_array);
        let compiles = is_enabled && parts.is_none_or(|parts| parts.iter().any(|part| part == "model"));
        Ok(match (compiles, form) {
            (true, Form::Python(_)) => "fsdp-compile-2026",
            (true, Form::Toml) => "fsdp-compile-2025",
            (false, Form::Python(_)) => "fsdp-eager-2026",
            (false, Form::Toml) => "fsdp-eager",
        })
    }

    fn optimizer(&mut self) -> Result<String, FlagError> {
        match self.word("optimizer.name")?.unwrap_or("AdamW") {
            "Adam" | "AdamW" => Ok("adamw".into()),
            other => Err(format!("optimizer.name is `{other}`: predictions know Adam and AdamW").into()),
        }
    }
}
