//! Reading flags of Megatron-LM: the configuration that a job has now.

use super::layout::MODULES;
use super::sizes::{self, ModelOfFlags};
use super::stage_split::{Split, starts};
use crate::flag_error::FlagError;
use crate::flag_table::MEGATRON;
use crate::present::{Keys, Present};
use crate::shell::words;
use ir::limits::DEVICES;
use std::collections::BTreeMap;

/// Flags of launchers, which stand in front of the program's.
const LAUNCHERS: [&str; 24] = [
    "nproc-per-node",
    "nnodes",
    "node-rank",
    "master-addr",
    "master-port",
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "rdzv-conf",
    "standalone",
    "max-restarts",
    "log-dir",
    "tee",
    "redirects",
    "local-addr",
    "start-method",
    "monitor-interval",
    "role",
    "module",
    "no-python",
    "kill-on-bad-exit",
    "container-image",
    "container-mounts",
    "ntasks-per-node",
];

/// Flags with which the embedding and the loss count as layers.
const ENDS: [&str; 2] = ["account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split"];

/// Reads flags, as a shell would pass them or as the text of a script, whose variables are expanded. `gpus` is the number of devices, if
/// it is known.
///
/// # Errors
/// There are no flags, Megatron-LM does not have one, flags exclude each other, or one lacks its value or has one that Megatron-LM
/// refuses.
pub fn read(text: &str, gpus: Option<u64>) -> Result<Present, FlagError> {
    let flags = flags(text)?;
    if flags.is_empty() {
        return Err(FlagError::Text("there are no flags in it, such as --tensor-model-parallel-size 4".into()));
    }
    // A script may run other programs too, whose flags resemble none.
    let is_script = !text.trim_start().starts_with("--");
    let (known, others): (Vec<_>, Vec<_>) = flags.iter().partition(|(flag, _)| !is_script || MEGATRON.resembles(flag));
    known.into_iter().try_for_each(|(flag, values)| MEGATRON.check(flag, values))?;
    let warnings = others.iter().map(|(flag, _)| format!("not known: Megatron-LM has no flag --{flag}")).collect();
    Reader { flags: &flags, keys: Keys::default(), gpus, asked: Vec::new(), warnings }.all(text)
}

/// Reads flags with their values, as [`read`] does those of a text.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_flags(flags: &BTreeMap<String, Vec<String>>, gpus: Option<u64>) -> Result<Present, FlagError> {
    flags.iter().try_for_each(|(flag, values)| MEGATRON.check(flag, values))?;
    Reader { flags, keys: Keys::default(), gpus, asked: Vec::new(), warnings: Vec::new() }.all("")
}

/// Flags that are read, whether they are given or not.
pub(crate) fn asked() -> Vec<&'static str> {
    let flags = BTreeMap::new();
    let mut reader =
        Reader { flags: &flags, keys: Keys::default(), gpus: None, asked: Vec::new(), warnings: Vec::new() };
    reader.all("").expect("no flag is no mistake");
    reader.asked
}

/// Values by the names of their flags; a flag that is given twice has its last ones, as in Python's argparse.
fn flags(text: &str) -> Result<BTreeMap<String, Vec<String>>, FlagError> {
    let mut flags: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut last: Option<String> = None;
    // Arrays may have a flag and its value as one word.
    for word in words(text)?.into_iter().flat_map(split_word) {
        match word.strip_prefix("--") {
            Some("") => last = None,
            Some(flag) => {
                let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
                let name = name.replace('_', "-");
                last = (!LAUNCHERS.contains(&name.as_str())).then(|| name.clone());
                if last.is_some() {
                    flags.insert(name, value.map(str::to_string).into_iter().collect());
                }
            }
            // Words before the first flag are the command.
            None => {
                if let Some(values) = last.as_ref().and_then(|name| flags.get_mut(name)) {
                    values.push(word);
                }
            }
        }
    }
    Ok(flags)
}

/// The words of a word that a shell splits where its array stands without quotes.
fn split_word(word: String) -> Vec<String> {
    if word.starts_with("--") && word.contains(' ') {
        return word.split_whitespace().map(|part| part.trim_matches('\'').to_string()).collect();
    }
    vec![word]
}

/// Given flags, and what was read of them so far.
pub(super) struct Reader<'a> {
    pub(super) flags: &'a BTreeMap<String, Vec<String>>,
    keys: Keys,
    /// The number of devices, if it is known.
    gpus: Option<u64>,
    /// The flags that are read, whether they are given or not.
    asked: Vec<&'static str>,
    /// Flags that a prediction does not know.
    pub(super) warnings: Vec<String>,
}

impl<'a> Reader<'a> {
    /// All that the flags of a text state.
    fn all(&mut self, text: &str) -> Result<Present, FlagError> {
        self.degrees()?;
        self.pipeline()?;
        self.replicas()?;
        self.memory()?;
        let seq = self.number("seq-length")?;
        let global_batch = self.number("global-batch-size")?;
        let mbs = self.number("micro-batch-size")?;
        if let Some(mbs) = mbs {
            self.put("mbs", mbs);
        }
        let precision = self.precision()?;
        let optimizer = self.optimizer()?;
        let grad_dtype = self.gradients(&precision)?;
        let master = (self.value("main-params-dtype")? == Some("fp16")).then(|| "fp16".to_string());
        let stack = self.stack(text)?;
        let ModelOfFlags { stated, config: model } = sizes::read(self)?;
        self.kernels(stack.as_deref());
        let warnings = self.told();
        let parallel = self.keys.text();
        Ok(Present {
            parallel,
            model,
            stack,
            seq,
            global_batch,
            precision,
            grad_dtype,
            master,
            optimizer,
            warnings,
            stated,
            split: None,
        })
    }

    /// The values of a flag, if it is there.
    pub(super) fn values(&mut self, flag: &'static str) -> Option<&'a [String]> {
        self.asked.push(flag);
        self.flags.get(flag).map(Vec::as_slice)
    }

    /// Warnings of the given flags that were not read.
    fn told(&mut self) -> Vec<String> {
        let others = self.flags.iter().filter(|(flag, _)| !self.asked.contains(&flag.as_str()));
        let warnings = others.filter_map(|(flag, values)| MEGATRON.warning(flag, values));
        std::mem::take(&mut self.warnings).into_iter().chain(warnings).collect()
    }

    pub(super) fn has(&mut self, flag: &'static str) -> bool {
        self.values(flag).is_some()
    }

    pub(super) fn value(&mut self, flag: &'static str) -> Result<Option<&'a str>, FlagError> {
        match self.values(flag) {
            None => Ok(None),
            Some(values) => values
                .first()
                .map(|value| Some(value.as_str()))
                .ok_or_else(|| FlagError::Value(format!("--{flag} has no value"))),
        }
    }

    pub(super) fn number(&mut self, flag: &'static str) -> Result<Option<u64>, FlagError> {
        let Some(text) = self.value(flag)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| FlagError::Value(format!("--{flag} {text}: it takes a whole number")))
    }

    /// A number of at least 1, and at most that of devices.
    fn positive(&mut self, flag: &'static str) -> Result<Option<u64>, FlagError> {
        match self.number(flag)? {
            Some(number) if !(1..=DEVICES).contains(&number) => {
                Err(FlagError::Value(format!("--{flag} {number}: it takes a number from 1 to {DEVICES}")))
            }
            number => Ok(number),
        }
    }

    fn put(&mut self, key: &str, value: impl std::fmt::Display) {
        self.keys.put(key, value);
    }

    fn degrees(&mut self) -> Result<(), FlagError> {
        let degrees = [
            ("tensor-model-parallel-size", "tp"),
            ("pipeline-model-parallel-size", "pp"),
            ("context-parallel-size", "cp"),
            ("expert-model-parallel-size", "ep"),
        ];
        for (flag, key) in degrees {
            if let Some(degree) = self.number(flag)? {
                self.put(key, degree);
            }
        }
        // Without the flag experts are sharded as all else is.
        let tp = self.number("tensor-model-parallel-size")?.unwrap_or(1);
        let is_moe = self.number("num-experts")?.is_some();
        match self.number("expert-tensor-parallel-size")? {
            Some(etp) => self.put("etp", etp),
            None if is_moe && tp > 1 => self.put("etp", tp),
            None => {}
        }
        if self.has("sequence-parallel") {
            self.put("sp", tp > 1);
        }
        if let Some(kind) = self.value("cp-comm-type")? {
            let kind = match kind {
                "a2a+p2p" => {
                    self.warnings.push("not modelled: --cp-comm-type a2a+p2p touches cp: heads are exchanged within groups, and it is read as a ring over all".into());
                    "ring"
                }
                "p2p" => "ring",
                "all_gather" | "allgather" => "allgather",
                "a2a" => "ulysses",
                other => {
                    return Err(FlagError::Value(format!(
                        "--cp-comm-type {other}: it is one of p2p, all_gather, a2a, a2a+p2p"
                    )));
                }
            };
            self.put("cp_kind", kind);
        } else if self.number("context-parallel-size")?.is_some_and(|cp| cp > 1) {
            self.put("cp_kind", "ring");
        }
        if self.has("use-tp-pp-dp-mapping") {
            self.put("rank_order", "dp,pp,cp,tp");
        }
        Ok(())
    }

    fn pipeline(&mut self) -> Result<(), FlagError> {
        let pp = self.positive("pipeline-model-parallel-size")?.unwrap_or(1);
        let mut stages = self.positive("num-virtual-stages-per-pipeline-rank")?;
        if let Some(layers) = self.positive("num-layers-per-virtual-pipeline-stage")? {
            let all = self.number("num-layers")?.ok_or_else(|| {
                FlagError::Combination("--num-layers-per-virtual-pipeline-stage needs --num-layers too".into())
            })?;
            let all = all + u64::from(self.has(ENDS[0])) + u64::from(self.has(ENDS[1]));
            if !all.is_multiple_of(layers * pp) {
                return Err(FlagError::Value(format!(
                    "--num-layers-per-virtual-pipeline-stage {layers}: {all} layers on {pp} ranks are no whole number of stages"
                )));
            }
            stages = Some(all / (layers * pp));
        }
        if let Some(layout) = self.value("pipeline-model-parallel-layout")? {
            let starts = starts(layout)?;
            stages = Some((starts.len() as u64 + 1) / pp.max(1));
            self.stages(&starts);
        } else if let Some(split) = self.split(pp, stages.unwrap_or(1))? {
            self.stages(&split.starts()?);
        }
        self.has("no-overlap-p2p-communication");
        if let Some(stages) = stages.filter(|&stages| stages > 1) {
            self.put("schedule", "interleaved-1f1b");
            self.put("vp", stages);
        }
        if let Some(group) = self.number("microbatch-group-size-per-virtual-pipeline-stage")? {
            self.put("group", group);
        }
        Ok(())
    }

    /// The layers of the stages, if they are not even: fewer on the first or the last rank, or ends that count as layers.
    fn split(&mut self, pp: u64, chunks: u64) -> Result<Option<Split>, FlagError> {
        let first = self.number("decoder-first-pipeline-num-layers")?;
        let last = self.number("decoder-last-pipeline-num-layers")?;
        let [embedding, loss] = ENDS.map(|flag| self.has(flag));
        if pp == 1 || (first.is_none() && last.is_none() && !embedding && !loss) {
            return Ok(None);
        }
        let layers = self
            .number("num-layers")?
            .ok_or_else(|| FlagError::Combination("layers of the first or last stage need --num-layers too".into()))?;
        Ok(Some(Split { layers, pp, chunks, first, last, embedding, loss }))
    }

    fn stages(&mut self, starts: &[u64]) {
        self.put("stages", starts.iter().map(u64::to_string).collect::<Vec<_>>().join(","));
    }

    fn replicas(&mut self) -> Result<(), FlagError> {
        let is_fsdp = self.has("use-megatron-fsdp") || self.has("use-torch-fsdp2");
        let strategy = self.value("data-parallel-sharding-strategy")?;
        let zero = match (is_fsdp, strategy.unwrap_or("optim_grads_params")) {
            (false, _) => u8::from(self.has("use-distributed-optimizer")),
            (true, "no_shard") => 0,
            (true, "optim") => 1,
            (true, "optim_grads") => 2,
            (true, "optim_grads_params") => 3,
            (true, other) => {
                return Err(FlagError::Value(format!(
                    "--data-parallel-sharding-strategy {other}: it is none of Megatron-LM's"
                )));
            }
        };
        self.has("use-distributed-optimizer");
        self.put("zero", zero);
        for flag in ["ckpt-format", "torch-fsdp2-no-reshard-after-forward"] {
            self.values(flag);
        }
        if let Some(instances) = self.number("num-distributed-optimizer-instances")?.filter(|&instances| instances > 1)
        {
            let gpus = self.gpus.ok_or_else(|| {
                FlagError::Combination(
                    "--num-distributed-optimizer-instances: the number of devices is needed too: --gpus N".into(),
                )
            })?;
            let mut ranks = gpus;
            for degree in ["tensor-model-parallel-size", "pipeline-model-parallel-size"] {
                ranks /= self.number(degree)?.unwrap_or(1).max(1);
            }
            self.put("shard", ranks / instances);
        }
        // Without these flags nothing overlaps.
        let overlaps = self.has("overlap-grad-reduce");
        self.put("dp_overlap", overlaps);
        self.has("overlap-param-gather");
        let overlaps = self.has("tp-comm-overlap");
        if self.has("sequence-parallel") {
            self.put("tp_overlap", overlaps);
        } else if overlaps {
            return Err(FlagError::Combination("--tp-comm-overlap takes --sequence-parallel".into()));
        }
        Ok(())
    }

    fn memory(&mut self) -> Result<(), FlagError> {
        let granularity = match self.has("recompute-activations") {
            true => Some("selective"),
            false => self.value("recompute-granularity")?,
        };
        let method = self.value("recompute-method")?;
        let layers = self.number("recompute-num-layers")?;
        let modules = self.values("recompute-modules").unwrap_or_default();
        let is_of_moe = self.has("moe-layer-recompute");
        match granularity {
            None if is_of_moe => self.put("recompute", "selective:moe"),
            None => {}
            Some("full") => match (method, layers) {
                (Some("block"), Some(layers)) => self.put("recompute", format!("full:{layers}")),
                _ => self.put("recompute", "full"),
            },
            Some("selective") if modules.is_empty() => self.put("recompute", "selective:core_attn"),
            Some("selective") => {
                if let Some(other) = modules.iter().find(|module| !MODULES.contains(&module.as_str())) {
                    return Err(FlagError::Value(format!(
                        "--recompute-modules {other}: it is none of {}",
                        MODULES.join(", ")
                    )));
                }
                self.put("recompute", format!("selective:{}", modules.join("+")));
            }
            Some(other) => {
                return Err(FlagError::Value(format!("--recompute-granularity {other}: it is full or selective")));
            }
        }
        if let Some(layers) = self.number("cpu-offloading-num-layers")?.filter(|&layers| layers > 0) {
            self.put("offload", format!("all:{layers}"));
        }
        if self.has("optimizer-cpu-offload") {
            self.put("offload_optimizer", true);
        }
        Ok(())
    }
}
