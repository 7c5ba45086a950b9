//! Stages of uneven layers, as Megatron-LM's flags state them.

use crate::flag_error::FlagError;

/// The most layers, and the most stages.
const MOST_STAGES: u64 = 1 << 16;

/// Layers that are divided among ranks, some of which are stated.
pub(super) struct Split {
    pub(super) layers: u64,
    pub(super) pp: u64,
    /// Stages of a rank.
    pub(super) chunks: u64,
    /// Layers of the first rank, if they are stated.
    pub(super) first: Option<u64>,
    /// Layers of the last rank, if they are stated.
    pub(super) last: Option<u64>,
    /// True if the embedding counts as a layer.
    pub(super) embedding: bool,
    /// True if the loss counts as a layer.
    pub(super) loss: bool,
}

impl Split {
    /// The first block of each stage but the first; block 0 is the embedding.
    ///
    /// # Errors
    /// Layers do not divide as Megatron-LM demands (`transformer_config.py`, num_layers_in_first_pipeline_stage and
    /// account_for_embedding_in_pipeline_split).
    pub(super) fn starts(&self) -> Result<Vec<u64>, FlagError> {
        let layers = self.layers_of_stages()?;
        let ends = layers.iter().scan(1, |end, layers| {
            *end += layers;
            Some(*end)
        });
        Ok(ends.take(layers.len() - 1).collect())
    }

    /// Layers of each stage, in the order of the model.
    fn layers_of_stages(&self) -> Result<Vec<u64>, FlagError> {
        let Split { layers, pp, chunks, first, last, embedding, loss } = *self;
        if (first.is_some() || last.is_some()) && (embedding || loss) {
            return Err(FlagError::Combination(
                "layers of the first or last stage are stated, or ends count as layers, not both".into(),
            ));
        }
        let stages = pp.saturating_mul(chunks);
        if !(1..=MOST_STAGES).contains(&stages) || layers > MOST_STAGES {
            return Err(FlagError::Value(format!(
                "{layers} layers on {pp} ranks of {chunks} stages: none or too many"
            )));
        }
        if embedding || loss {
            let places = layers + u64::from(embedding) + u64::from(loss);
            let each = divided(places, stages, "layers and ends")?;
            return Ok((0..stages).map(|nth| each.saturating_sub(self.ends_of(nth, stages))).collect());
        }
        let stated = first.unwrap_or(0).saturating_add(last.unwrap_or(0));
        let others = pp.saturating_sub(u64::from(first.is_some()) + u64::from(last.is_some()));
        let middle = layers.checked_sub(stated).ok_or_else(|| {
            FlagError::Value(format!("{stated} layers of the first and last stage are more than {layers}"))
        })?;
        let middle =
            if others == 0 && middle == 0 { 0 } else { divided(middle, others, "layers of the stages between")? };
        (0..stages).map(|stage| divided(self.of_rank(stage % pp, middle), chunks, "layers of a rank")).collect()
    }

    /// Layers of a rank, of which those between have `middle`.
    fn of_rank(&self, rank: u64, middle: u64) -> u64 {
        let stated = match rank {
            0 => self.first,
            rank if rank + 1 == self.pp => self.last,
            _ => None,
        };
        stated.unwrap_or(middle)
    }

    /// Ends in a stage that count as layers.
    fn ends_of(&self, stage: u64, stages: u64) -> u64 {
        u64::from(self.embedding && stage == 0) + u64::from(self.loss && stage + 1 == stages)
    }
}

fn divided(whole: u64, parts: u64, what: &str) -> Result<u64, FlagError> {
    match whole.checked_rem(parts) {
        Some(0) => Ok(whole / parts),
        _ => Err(FlagError::Value(format!("{whole} {what} do not divide by {parts}"))),
    }
}

/// The first block of each stage but the first, of a layout such as `Et*3|(tt|)*2t,L`.
pub(super) fn starts(layout: &str) -> Result<Vec<u64>, FlagError> {
    let (mut starts, mut blocks, mut has_further) = (Vec::new(), 0, false);
    for character in unrolled(layout)?.chars() {
        match character {
            '|' => starts.push(blocks),
            'E' | 't' | 'L' => blocks += 1,
            // A block of its own joins the layers to those that predict further tokens.
            'm' if !has_further => {
                blocks += 2;
                has_further = true;
            }
            'm' => blocks += 1,
            ',' => {}
            other => {
                let text = format!("--pipeline-model-parallel-layout has `{other}`, which is none of E, t, m, L, |");
                return Err(FlagError::Value(text));
            }
        }
    }
    Ok(starts)
}

/// A layout with its repetitions written out.
fn unrolled(layout: &str) -> Result<String, FlagError> {
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

fn bad_layout(what: &str) -> FlagError {
    FlagError::Value(format!("--pipeline-model-parallel-layout: {what}"))
}
