//! Reading flags of Megatron-LM: the configuration that a job has now.

use crate::megatron::MODULES;
use crate::present::{Keys, Present, unread};
use crate::shell::words;
use std::collections::BTreeMap;

/// Flags that change no layout although their names have a word of one.
const OTHERS: [&str; 6] = [
    "tokenizer-model",
    "tensorboard-dir",
    "eval-micro-batch-size",
    "no-gradient-accumulation-fusion",
    "moe-router-load-balancing-type",
    "tp-comm-bootstrap-backend",
];

/// Words in the names of flags that concern a layout.
const WORDS: [&str; 8] =
    ["parallel", "recompute", "offload", "pipeline", "fsdp", "sharding", "virtual", "comm-overlap"];

/// Reads flags, as a shell would pass them or as the text of a script, whose variables are expanded. Flags that concern no layout are skipped.
///
/// # Errors
/// There are no flags, flags exclude each other, or one lacks its value or has one that Megatron-LM refuses.
pub fn read(text: &str) -> Result<Present, String> {
    let flags = flags(text)?;
    if flags.is_empty() {
        return Err("there are no flags in it, such as --tensor-model-parallel-size 4".into());
    }
    let mut reader = Reader { flags: &flags, keys: Keys::default(), asked: Vec::new() };
    reader.degrees()?;
    reader.pipeline()?;
    reader.replicas()?;
    reader.memory()?;
    let seq = reader.number("seq-length")?;
    let global_batch = reader.number("global-batch-size")?;
    let mbs = reader.number("micro-batch-size")?;
    if let Some(mbs) = mbs {
        reader.put("mbs", mbs);
    }
    let (precision, optimizer) = (reader.precision()?, reader.optimizer()?);
    let unread = flags.keys().filter_map(|flag| reader.unread(flag)).collect();
    let parallel = reader.keys.text();
    Ok(Present { parallel, seq, global_batch, precision, optimizer, unread, ..Present::default() })
}

/// Values by the names of their flags; a flag that is given twice has its last ones, as in Python's argparse.
fn flags(text: &str) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut flags: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut last: Option<String> = None;
    for word in words(text)? {
        match word.strip_prefix("--") {
            Some("") => last = None,
            Some(flag) => {
                let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
                let values = value.map(str::to_string).into_iter().collect();
                flags.insert(name.replace('_', "-"), values);
                last = Some(name.replace('_', "-"));
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

struct Reader<'a> {
    flags: &'a BTreeMap<String, Vec<String>>,
    keys: Keys,
    /// The flags that are read, whether they are given or not.
    asked: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    /// The values of a flag, if it is there.
    fn values(&mut self, flag: &'static str) -> Option<&'a [String]> {
        self.asked.push(flag);
        self.flags.get(flag).map(Vec::as_slice)
    }

    /// A given flag that is not read, if it concerns a layout or resembles a flag that is read.
    fn unread(&self, flag: &str) -> Option<String> {
        if self.asked.contains(&flag) || OTHERS.contains(&flag) {
            return None;
        }
        let concerns = WORDS.iter().any(|word| flag.contains(word));
        unread(flag, self.asked.iter().copied(), concerns).map(|flag| format!("--{flag}"))
    }

    fn has(&mut self, flag: &'static str) -> bool {
        self.values(flag).is_some()
    }

    fn value(&mut self, flag: &'static str) -> Result<Option<&'a str>, String> {
        match self.values(flag) {
            None => Ok(None),
            Some(values) => values.first().map(|value| Some(value.as_str())).ok_or(format!("--{flag} has no value")),
        }
    }

    fn number(&mut self, flag: &'static str) -> Result<Option<u64>, String> {
        let Some(text) = self.value(flag)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("--{flag} {text}: it takes a whole number"))
    }

    fn put(&mut self, key: &str, value: impl std::fmt::Display) {
        self.keys.put(key, value);
    }

    fn degrees(&mut self) -> Result<(), String> {
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
                "p2p" => "ring",
                "all_gather" | "allgather" => "allgather",
                "a2a" => "ulysses",
                other => {
                    return Err(format!("--cp-comm-type {other}: a configuration has one of p2p, all_gather, a2a"));
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

    fn pipeline(&mut self) -> Result<(), String> {
        let pp = self.number("pipeline-model-parallel-size")?.unwrap_or(1);
        let mut stages = self.number("num-virtual-stages-per-pipeline-rank")?;
        if let Some(layers) = self.number("num-layers-per-virtual-pipeline-stage")? {
            let all =
                self.number("num-layers")?.ok_or("--num-layers-per-virtual-pipeline-stage needs --num-layers too")?;
            if layers == 0 || all % (layers * pp) != 0 {
                return Err(format!(
                    "--num-layers-per-virtual-pipeline-stage {layers}: {all} layers on {pp} ranks are no whole number of stages"
                ));
            }
            stages = Some(all / (layers * pp));
        }
        if let Some(layout) = self.value("pipeline-model-parallel-layout")? {
            let starts = starts(layout)?;
            stages = Some((starts.len() as u64 + 1) / pp.max(1));
            self.put("stages", starts.iter().map(u64::to_string).collect::<Vec<_>>().join(","));
        }
        if let Some(stages) = stages.filter(|&stages| stages > 1) {
            self.put("schedule", "interleaved-1f1b");
            self.put("vp", stages);
        }
        if let Some(group) = self.number("microbatch-group-size-per-virtual-pipeline-stage")? {
            self.put("group", group);
        }
        Ok(())
    }

    fn replicas(&mut self) -> Result<(), String> {
        let is_fsdp = self.has("use-megatron-fsdp") || self.has("use-torch-fsdp2");
        let strategy = self.value("data-parallel-sharding-strategy")?;
        let zero = match (is_fsdp, strategy.unwrap_or("optim_grads_params")) {
            (false, _) => u8::from(self.has("use-distributed-optimizer")),
            (true, "no_shard") => 0,
            (true, "optim") => 1,
            (true, "optim_grads") => 2,
            (true, "optim_grads_params") => 3,
            (true, other) => {
                return Err(format!("--data-parallel-sharding-strategy {other}: it is none of Megatron-LM's"));
            }
        };
        self.has("use-distributed-optimizer");
        self.put("zero", zero);
        if let Some(overlaps) = self.has("overlap-grad-reduce").then_some(true) {
            self.put("dp_overlap", overlaps);
        }
        self.has("overlap-param-gather");
        if self.has("tp-comm-overlap") {
            self.put("tp_overlap", true);
        }
        Ok(())
    }

    fn memory(&mut self) -> Result<(), String> {
        let granularity = match self.has("recompute-activations") {
            true => Some("selective"),
            false => self.value("recompute-granularity")?,
        };
        let method = self.value("recompute-method")?;
        let layers = self.number("recompute-num-layers")?;
        let modules = self.values("recompute-modules").unwrap_or_default();
        match granularity {
            None => {}
            Some("full") => match (method, layers) {
                (Some("block"), Some(layers)) => self.put("recompute", format!("full:{layers}")),
                _ => self.put("recompute", "full"),
            },
            Some("selective") if modules.is_empty() => self.put("recompute", "selective:core_attn"),
            Some("selective") => {
                if let Some(other) = modules.iter().find(|module| !MODULES.contains(&module.as_str())) {
                    return Err(format!("--recompute-modules {other}: it is none of {}", MODULES.join(", ")));
                }
                self.put("recompute", format!("selective:{}", modules.join("+")));
            }
            Some(other) => return Err(format!("--recompute-granularity {other}: it is full or selective")),
        }
        if let Some(layers) = self.number("cpu-offloading-num-layers")?.filter(|&layers| layers > 0) {
            self.put("offload", format!("all:{layers}"));
        }
        if self.has("optimizer-cpu-offload") {
            self.put("offload_optimizer", true);
        }
        Ok(())
    }

    fn precision(&mut self) -> Result<String, String> {
        let wide = match (self.has("bf16"), self.has("fp16")) {
            (true, true) => return Err("--bf16 and --fp16: Megatron-LM takes one of them".into()),
            (true, false) => "bf16",
            (false, true) => "fp16",
            (false, false) => "f32",
        };
        let is_narrow = self.has("fp8-format");
        let recipe = match self.value("fp8-recipe")?.unwrap_or("delayed") {
            _ if !is_narrow => wide,
            "tensorwise" => "fp8-tensor",
            "delayed" => "fp8-delayed",
            "blockwise" => "fp8-block",
            "mxfp8" => "mxfp8",
            other => {
                return Err(format!("--fp8-recipe {other}: a recipe has one of tensorwise, delayed, blockwise, mxfp8"));
            }
        };
        Ok(recipe.to_string())
    }

    fn optimizer(&mut self) -> Result<String, String> {
        let is_narrow = self.value("exp-avg-dtype")? == Some("bf16") && self.value("exp-avg-sq-dtype")? == Some("bf16");
        let momentum = self.value("sgd-momentum")?.is_none_or(|momentum| momentum.parse() != Ok(0.0));
        let optimizer = match self.value("optimizer")?.unwrap_or("adam") {
            "adam" if is_narrow => "adamw-bf16",
            "adam" => "adamw",
            "sgd" if momentum => "momentum",
            "sgd" => "sgd",
            other => return Err(format!("--optimizer {other}: predictions know adam and sgd")),
        };
        Ok(optimizer.to_string())
    }
}

/// The first block of each stage but the first, of a layout such as `Et*3|(tt|)*2t,L`.
fn starts(layout: &str) -> Result<Vec<u64>, String> {
    let (mut starts, mut blocks) = (Vec::new(), 0);
    for character in unrolled(layout)?.chars() {
        match character {
            '|' => starts.push(blocks),
            'E' | 't' | 'L' => blocks += 1,
            ',' => {}
            'm' => return Err("--pipeline-model-parallel-layout has layers of multi-token prediction, `m`, which a configuration cannot place".into()),
            other => return Err(format!("--pipeline-model-parallel-layout has `{other}`, which is none of E, t, m, L, |")),
        }
    }
    Ok(starts)
}

/// A layout with its repetitions written out.
fn unrolled(layout: &str) -> Result<String, String> {
    let layout: Vec<char> = layout.chars().filter(|character| *character != ',').collect();
    let (mut out, mut open, mut at) = (String::new(), None, 0);
    // Where the last character or group begins: what `*n` repeats.
    let mut last = 0;
    while let Some(&character) = layout.get(at) {
        at += 1;
        match character {
            '(' => open = Some(out.len()),
            ')' => last = open.take().ok_or_else(|| bad_layout("a parenthesis has no beginning"))?,
            '*' => {
                let digits: String = layout[at..].iter().take_while(|digit| digit.is_ascii_digit()).collect();
                at += digits.len();
                let times: usize = digits.parse().map_err(|_| bad_layout("`*` has no number"))?;
                if times > 4096 {
                    return Err(bad_layout("a repetition is of more than 4096 times"));
                }
                let repeated = out.split_off(last);
                out.push_str(&repeated.repeat(times));
            }
            _ => {
                last = out.len();
                out.push(character);
            }
        }
    }
    if open.is_some() { Err(bad_layout("a parenthesis has no end")) } else { Ok(out) }
}

fn bad_layout(what: &str) -> String {
    format!("--pipeline-model-parallel-layout: {what}")
}
