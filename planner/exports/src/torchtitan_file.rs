//! Reading the configuration of torchtitan: a Python file of its registry, or a TOML file of versions up to 0.2.

use crate::present::{Keys, Present, stated_stack, unread};
use crate::python_config::{COMPUTED, values};
use crate::torchtitan::SCHEDULES;
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

/// Fields of parallelism that change no prediction.
const OTHERS: [&str; 10] = [
    "spmd_backend",
    "context_parallel_load_balancer",
    "context_parallel_ptrr_mask_key",
    "enable_fsdp_symm_mem",
    "disable_loss_parallel",
    "enable_compiled_autograd",
    "pipeline_parallel_first_stage_less_layers",
    "pipeline_parallel_last_stage_less_layers",
    "pipeline_parallel_expert_parallel_overlap",
    "fsdp_disable_prefetch",
];

/// Reads a file. The number of devices says how many ranks of data parallelism there are, where the file leaves it open.
///
/// # Errors
/// The text cannot be read, a field has a value that torchtitan refuses or that is computed, or the number of devices is needed.
pub fn read(text: &str, form: Form<'_>, gpus: Option<u64>) -> Result<Present, String> {
    let fields = match form {
        Form::Python(function) => values(text, function)?,
        Form::Toml => of_toml(text)?,
    };
    let mut reader = Reader { fields: &fields, asked: Vec::new(), keys: Keys::default(), unread: Vec::new() };
    let dp = reader.degrees(gpus)?;
    reader.pipeline()?;
    reader.memory(form)?;
    let seq = reader.number("training.seq_len")?.or(Some(2048));
    let local = reader.number("training.local_batch_size")?.unwrap_or(8);
    let whole = reader
        .signed("training.global_batch_size")?
        .and_then(|batch| u64::try_from(batch).ok())
        .filter(|&batch| batch > 0);
    let global_batch = whole.or_else(|| dp.and_then(|dp| dp.checked_mul(local)));
    let (precision, stack) = (reader.precision()?, reader.stack(form)?);
    let optimizer = reader.optimizer()?;
    let mut unread: Vec<String> = fields.keys().filter_map(|key| reader.unread(key)).collect();
    unread.extend(reader.unread);
    Ok(Present {
        parallel: reader.keys.text(),
        model: None,
        stack: Some(stated_stack(text).unwrap_or(stack).to_string()),
        seq,
        global_batch,
        precision,
        optimizer,
        warnings: unread.iter().map(|key| format!("not modelled: {key}")).collect(),
        ..Present::default()
    })
}

/// The values of a TOML file by section and name.
fn of_toml(text: &str) -> Result<BTreeMap<String, Value>, String> {
    let file: BTreeMap<String, Value> =
        toml::from_str(text).map_err(|why| format!("it is no TOML: {}", why.message()))?;
    if !file.contains_key("parallelism") && !file.contains_key("training") {
        return Err("it has neither a section `parallelism` nor one `training`".into());
    }
    let fields = file.into_iter().flat_map(|(section, value)| {
        let pairs = if let Value::Object(pairs) = value { pairs } else { serde_json::Map::new() };
        pairs.into_iter().map(move |(name, value)| (format!("{section}.{name}"), value))
    });
    Ok(fields.collect())
}

struct Reader<'a> {
    fields: &'a BTreeMap<String, Value>,
    /// The fields that are read, whether they are given or not.
    asked: Vec<String>,
    keys: Keys,
    unread: Vec<String>,
}

impl<'a> Reader<'a> {
    fn value(&mut self, key: &str) -> Result<Option<&'a Value>, String> {
        self.asked.push(key.to_string());
        let Some(value) = self.fields.get(key) else { return Ok(None) };
        match value {
            Value::Null => Ok(None),
            Value::String(text) if text.starts_with(COMPUTED) && key != "activation_checkpoint" => {
                Err(format!("{key} is computed: write its value out"))
            }
            value => Ok(Some(value)),
        }
    }

    /// A given field that is not read, if it concerns the layout or resembles a field that is read.
    fn unread(&self, key: &str) -> Option<String> {
        if self.asked.iter().any(|asked| asked == key) || OTHERS.iter().any(|other| key.ends_with(other)) {
            return None;
        }
        let concerns = key.starts_with("parallelism.") || key.starts_with("activation_checkpoint.");
        unread(key, self.asked.iter().map(String::as_str), concerns)
    }

    fn signed(&mut self, key: &str) -> Result<Option<i64>, String> {
        let Some(value) = self.value(key)? else { return Ok(None) };
        let float = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 1e15);
        let whole = value.as_i64().or(float.map(|number| number as i64));
        whole.map(Some).ok_or_else(|| format!("{key} is {value}: it takes a whole number"))
    }

    fn number(&mut self, key: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.signed(key)? else { return Ok(None) };
        let number = u64::try_from(value).ok().filter(|&value| value > 0);
        number.map(Some).ok_or_else(|| format!("{key} is {value}: it takes a whole number above 0"))
    }

    fn flag(&mut self, key: &str) -> Result<Option<bool>, String> {
        let Some(value) = self.value(key)? else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| format!("{key} is {value}: it is true or false"))
    }

    fn word(&mut self, key: &str) -> Result<Option<&'a str>, String> {
        let Some(value) = self.value(key)? else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| format!("{key} is {value}: it is a text"))
    }

    /// A degree, 1 if the file leaves it open.
    fn degree(&mut self, name: &str) -> Result<u64, String> {
        Ok(self.number(&format!("parallelism.{name}"))?.unwrap_or(1))
    }

    /// The parallel degrees. Returns dp, where the file or the number of devices gives it.
    fn degrees(&mut self, gpus: Option<u64>) -> Result<Option<u64>, String> {
        let (tp, pp) = (self.degree("tensor_parallel_degree")?, self.degree("pipeline_parallel_degree")?);
        let (cp, ep) = (self.degree("context_parallel_degree")?, self.degree("expert_parallel_degree")?);
        let replicas = self.degree("data_parallel_replicate_degree")?;
        let stated = self.signed("parallelism.data_parallel_shard_degree")?.unwrap_or(-1);
        let others = [tp, pp, cp, replicas]
            .iter()
            .try_fold(1u64, |all, degree| all.checked_mul(*degree))
            .ok_or("the degrees are too large")?;
        let shards = match (u64::try_from(stated), gpus) {
            (Ok(shards), _) if shards > 0 => Some(shards),
            (_, Some(gpus)) if gpus.is_multiple_of(others) => Some(gpus / others),
            (_, Some(gpus)) => return Err(format!("{gpus} devices are no multiple of the other degrees, {others}")),
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
        if cp > 1 {
            let kind = match self.word("parallelism.context_parallel_rotate_method")? {
                Some("alltoall") => "ring",
                _ => "allgather",
            };
            self.keys.put("cp_kind", kind);
        }
        Ok(dp)
    }

    /// Puts what data-parallel ranks shard, and how long it stays gathered.
    fn shards(&mut self, shards: Option<u64>, replicas: u64, cp: u64, pp: u64) -> Result<(), String> {
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
                ));
            }
        }
        Ok(())
    }

    fn pipeline(&mut self) -> Result<(), String> {
        let pp = self.number("parallelism.pipeline_parallel_degree")?.unwrap_or(1);
        let kind = self.word("parallelism.pipeline_parallel_schedule")?.unwrap_or("1F1B");
        let size = self.number("parallelism.pipeline_parallel_microbatch_size")?.unwrap_or(1);
        let file = self.word("parallelism.pipeline_parallel_schedule_csv")?.unwrap_or_default();
        let parts = self.value("parallelism.module_fqns_per_model_part")?;
        let layers = self.number("parallelism.pipeline_parallel_layers_per_stage")?;
        if pp == 1 {
            let local = self.number("training.local_batch_size")?.unwrap_or(8);
            self.keys.put("mbs", local);
            return Ok(());
        }
        self.keys.put("mbs", size);
        if !file.is_empty() {
            return Err(format!(
                "the schedule is in {file}: no configuration states it; `meshwright schedule --from` times it"
            ));
        }
        let ours = SCHEDULES.iter().find(|(_, theirs)| theirs.eq_ignore_ascii_case(kind));
        let Some((ours, _)) = ours else {
            return Err(format!(
                "parallelism.pipeline_parallel_schedule is `{kind}`: no schedule of this program has its order"
            ));
        };
        self.keys.put("schedule", ours);
        if let Some(parts) = parts {
            return self.stages(parts, pp);
        }
        match layers {
            Some(layers) => self
                .unread
                .push(format!("pipeline_parallel_layers_per_stage={layers}: give vp in --parallel if it is not 2")),
            // torchtitan takes two stages per rank for schedules with several.
            None if matches!(*ours, "interleaved-1f1b" | "looped-bfs" | "interleaved-zb") => self.keys.put("vp", 2),
            None => {}
        }
        Ok(())
    }

    /// Stages as lists of modules: the embedding, layers, the norm and the head.
    fn stages(&mut self, parts: &Value, pp: u64) -> Result<(), String> {
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
            return Err(format!("parallelism.module_fqns_per_model_part has {stages} parts for {pp} ranks"));
        }
        if stages > pp {
            self.keys.put("vp", stages / pp);
        }
        let starts: Vec<String> = starts.iter().skip(1).map(u64::to_string).collect();
        self.keys.put("stages", starts.join(","));
        Ok(())
    }

    fn memory(&mut self, form: Form<'_>) -> Result<(), String> {
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

    fn precision(&mut self) -> Result<String, String> {
        match self.word("training.mixed_precision_param")?.unwrap_or("bfloat16") {
            "bfloat16" => Ok("bf16".into()),
            "float32" => Ok("f32".into()),
            other => Err(format!("training.mixed_precision_param is `{other}`: it is bfloat16 or float32")),
        }
    }

    /// The stack of the version of torchtitan, compiled or not.
    fn stack(&mut self, form: Form<'_>) -> Result<&'static str, String> {
        for field in ["training.disable_cuda_graphs", "training.mixed_precision_reduce"] {
            self.value(field)?;
        }
        let compiles = [self.flag("compile.enable")?, self.flag("training.compile")?].contains(&Some(true));
        Ok(match (compiles, form) {
            (true, Form::Python(_)) => "fsdp-compile-2026",
            (true, Form::Toml) => "fsdp-compile-2025",
            (false, _) => "fsdp-eager",
        })
    }

    fn optimizer(&mut self) -> Result<String, String> {
        match self.word("optimizer.name")?.unwrap_or("AdamW") {
            "Adam" | "AdamW" => Ok("adamw".into()),
            other => Err(format!("optimizer.name is `{other}`: predictions know Adam and AdamW")),
        }
    }
}
