//! `attention(%q, %k, %v, %qpos, %kpos, %qseg, %kseg, scale=0.125, causal=true)` with grouped queries, and its gradient.
//!
//! `q [b, s, g, r, d]`, `k [b, t, g, d]`, `v [b, t, g, c]`, positions and segments `i32[b, s]` and `i32[b, t]`. With
//! an eighth operand `%sink [g, r]` each softmax has one more term, that of a score without a value. With
//! `window=4096` a query sees the last 4096 positions, its own included; with `chunk=8192` those of its own chunk of 8192
//! positions. With `softcap=50.0` scores stay within 50 of 0. With
//! `p=0.1, path="layer.o"` weights are dropped as [`Dropout`] drops elements: weight `[b, s, g, r, t]` by its coordinates,
//! b being the global sample.
//!
//! With `block=64` the sequence is cut into blocks of 64 positions, and a query sees the keys of its own block only: a round of ring
//! attention. With `origin=64, whole=128` the queries are a slice of a sequence of 128 positions, and the keys end where the slice ends.

use super::{
    Attr, Attrs, Binary, BinaryKind, Builder, Cotangents, Dropout, Extras, InRounds, Op, OpClass, OpDef, OpFacts,
    Piece, Positioned, Random, Reduce, RoundResult, Rounds, Shapes, Unary, UnaryKind, Work, operands,
};
use crate::ids::Value;
use crate::types::{DType, Dim, PartialKind, Type};

/// No score is below this. It stands for the largest score of a query that sees no key.
const LEAST: f64 = -1e30;

/// The settings of an attention and of its gradient.
#[derive(Clone, PartialEq, Debug)]
pub struct AttentionSettings {
    /// The factor that multiplies the products of queries and keys.
    pub scale: f64,
    /// True if a query sees no later keys.
    pub causal: bool,
    /// The positions that a query sees, its own and those before it; `None`: all. Only with `causal` (Beltagy et al. 2020,
    /// Longformer, section 3.1; Jiang et al. 2023, Mistral 7B).
    pub window: Option<u64>,
    /// The positions of a chunk: a query sees those of its own, up to itself; `None`: all. Only with `causal`, and without a
    /// window (Llama 4).
    pub chunk: Option<u64>,
    /// The bound `c` of scores: they become `c tanh(score / c)` (Gemma Team 2024, Gemma 2, section 2); `None`: no bound.
    pub softcap: Option<f64>,
    /// Dropout of the softmax, if any; its place is that of the queries.
    pub dropout: Option<Dropout>,
    /// The slice of the sequence that the queries are; `None`: the entire sequence.
    pub piece: Option<Piece>,
    /// The positions of a block of queries, which sees the keys of the block at its place alone; `None`: all keys. Neither with dropout nor
    /// with a slice.
    pub block: Option<u64>,
}

/// `-> out [b, s, g, r, c], lse f32[b, s, g, r]`: softmax over the visible keys of the scores, times v; lse is the natural
/// log of the sum of exponentials. Scores are `scale q k`, or with a softcap `c tanh(scale q k / c)`. A key is visible iff the
/// segments are equal, and (not causal or `kpos <= qpos`), and (no window or `qpos - kpos < window`), and (no chunk or
/// `floor(qpos / chunk) = floor(kpos / chunk)`). A query that sees no key gives 0 and `-inf`. Dropout applies to the softmax; lse ignores it. A sink `[g, r]` is a further score of each query of a head,
/// of nothing: lse has its exponential, out has not (Xiao et al. 2023, section 3.3; OpenAI 2025, gpt-oss).
#[derive(Clone, PartialEq, Debug)]
pub struct Attention(pub AttentionSettings);

/// The rule of the operands that both ops have.
struct Heads {
    dtype: DType,
    queries: Vec<Dim>,
    out: Vec<Dim>,
}

/// Checks q, k and v and the four index operands.
fn heads(qkv: [&Type; 3], indices: [&Type; 4]) -> Result<Heads, String> {
    let [q, k, v] = qkv.map(Type::logical);
    let dtype = operands::float("q", &q)?;
    let [b, s, g, r, d] = operands::dims("q", &q, "b, s, g, r, d")?;
    let [_, t, _, _] = operands::dims("k", &k, "b, t, g, d")?;
    let [_, _, _, c] = operands::dims("v", &v, "b, t, g, c")?;
    operands::expect("k", &k, dtype, &[b.clone(), t.clone(), g.clone(), d.clone()])?;
    operands::expect("v", &v, dtype, &[b.clone(), t.clone(), g.clone(), c.clone()])?;
    let (rows, keys) = ([b.clone(), s.clone()], [b.clone(), t.clone()]);
    for (name, ty, dims) in [
        ("qpos", indices[0], &rows),
        ("kpos", indices[1], &keys),
        ("qseg", indices[2], &rows),
        ("kseg", indices[3], &keys),
    ] {
        operands::expect(name, ty, DType::I32, dims)?;
    }
    let queries = vec![b.clone(), s.clone(), g.clone(), r.clone()];
    let out = [queries.clone(), vec![c.clone()]].concat();
    Ok(Heads { dtype, queries, out })
}

impl AttentionSettings {
    /// Settings without window, chunks, softcap, dropout, slice and blocks.
    pub const fn new(scale: f64, causal: bool) -> AttentionSettings {
        AttentionSettings {
            scale,
            causal,
            window: None,
            chunk: None,
            softcap: None,
            dropout: None,
            piece: None,
            block: None,
        }
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let mut attrs = vec![("scale", Attr::Float(self.scale)), ("causal", Attr::flag(self.causal))];
        attrs.extend(self.window.map(|window| ("window", Attr::int(window))));
        attrs.extend(self.chunk.map(|chunk| ("chunk", Attr::int(chunk))));
        attrs.extend(self.softcap.map(|softcap| ("softcap", Attr::Float(softcap))));
        attrs.extend(self.dropout.iter().flat_map(Dropout::attrs));
        attrs.extend(Piece::attrs(self.piece));
        attrs.extend(self.block.map(|block| ("block", Attr::int(block))));
        attrs
    }

    /// Reads [`AttentionSettings::attrs`]; a probability of 0 is no dropout.
    fn parse(attrs: &mut Attrs) -> Result<AttentionSettings, String> {
        let (scale, causal) = (attrs.float("scale")?, attrs.flag("causal")?);
        let (window, chunk) = (attrs.optional_int("window")?, attrs.optional_int("chunk")?);
        let softcap = attrs.optional_float("softcap")?;
        let (piece, block) = (Piece::parse(attrs)?, attrs.optional_int("block")?);
        let dropout = match attrs.optional_float("p")? {
            Some(p) => Some(Dropout { p, path: attrs.string("path")?, piece: None }).filter(|_| p != 0.0),
            None => None,
        };
        Ok(AttentionSettings { scale, causal, window, chunk, softcap, dropout, piece, block })
    }

    /// Checks window, chunk, softcap and dropout, and the places of queries and keys in their sequence.
    fn check(&self, [q, k]: [&Type; 2]) -> Result<(), String> {
        for (name, positions) in [("window", self.window), ("chunk", self.chunk)] {
            match positions {
                Some(0) => return Err(format!("`{name}` must be at least 1, since a query sees its own position")),
                Some(_) if !self.causal => return Err(format!("`{name}` needs causal=true")),
                _ => {}
            }
        }
        if self.window.is_some() && self.chunk.is_some() {
            return Err("`window` and `chunk` exclude each other".to_string());
        }
        if let Some(softcap) = self.softcap.filter(|softcap| !softcap.is_finite() || *softcap <= 0.0) {
            return Err(format!("`softcap` {softcap} must be above 0"));
        }
        self.dropout.as_ref().and_then(Dropout::fault).map_or(Ok(()), Err)?;
        self.check_block([q, k].map(|ty| ty.dims[1].size))?;
        let of_keys = self.piece.map(|piece| Piece { origin: 0, ..piece });
        let fault = Piece::fault(self.piece, q.dims[1].size).or_else(|| Piece::fault(of_keys, k.dims[1].size));
        fault.map_or(Ok(()), Err)
    }

    /// Checks that blocks cut queries and keys alike.
    fn check_block(&self, [s, t]: [u64; 2]) -> Result<(), String> {
        let Some(block) = self.block else { return Ok(()) };
        if self.dropout.is_some() || self.piece.is_some() {
            return Err("`block` excludes dropout and slices".to_string());
        }
        match block > 0 && s == t && s.is_multiple_of(block) {
            true => Ok(()),
            false => Err(format!("blocks of {block} do not cut {s} queries and {t} keys alike")),
        }
    }

    /// The dims of queries and of keys in rules: `marks` of the positions of queries. A block is on one rank.
    fn sequences(&self, marks: &str) -> [String; 2] {
        match self.block {
            None => [format!("s{marks}"), "t!".to_string()],
            Some(block) => [format!("(n s{marks}={block})"), format!("(n t!={block})")],
        }
    }

    /// The settings of a round of ring attention (Liu, Zaharia and Abbeel 2023). Numbers of dropout go by the place of a key.
    fn of_round(&self, length: u64) -> Option<AttentionSettings> {
        let is_whole = self.dropout.is_none() && self.piece.is_none() && self.block.is_none();
        is_whole.then(|| AttentionSettings { block: Some(length), ..self.clone() })
    }

    /// The pairs of a query and a key, and the two head sizes. A query has all t keys; if causal, on average half of the keys of
    /// its slice and all before it, `(origin + t) / 2`, and of these at most the window, or those of its chunk.
    fn pairs_and_heads(&self, q: &Type, k: &Type, v: &Type) -> (u64, u64, u64) {
        let size = |ty: &Type, dim: usize| ty.dims.get(dim).map_or(1, |dim| dim.size);
        let (before, keys) = (self.piece.map_or(0, |piece| piece.origin), self.block.unwrap_or(size(k, 1)));
        let pairs = |keys: u64| q.dims.iter().take(4).map(|dim| dim.size).fold(keys, u64::saturating_mul);
        // Twice the keys that queries up to one see.
        let in_window = |n: u64, window: u64| {
            let within = n.min(window);
            within.saturating_mul(within).saturating_add((n - within).saturating_mul(window.saturating_mul(2)))
        };
        let in_chunks = |n: u64, chunk: u64| {
            let rest = n % chunk;
            (n - rest).saturating_mul(chunk).saturating_add(rest.saturating_mul(rest))
        };
        let of_slice = |up_to: &dyn Fn(u64) -> u64| {
            pairs(up_to(keys) - up_to(before.min(keys))) / (2 * keys.saturating_sub(before)).max(1)
        };
        let pairs = match (self.window, self.chunk) {
            (Some(window), _) => of_slice(&|n| in_window(n, window)),
            (None, Some(chunk)) => of_slice(&|n| in_chunks(n, chunk.max(1))),
            (None, None) if self.causal => pairs(before + keys) / 2,
            (None, None) => pairs(keys),
        };
        (pairs, size(q, 4), size(v, 3))
    }
}

impl Attention {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["attention"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Attention, String> {
        AttentionSettings::parse(attrs).map(Attention)
    }
}

impl OpDef for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.0.attrs()
    }

    /// Keys, values and their indices are causal, unless the attention is in blocks, whose keys may be of any place.
    fn facts(&self) -> OpFacts {
        let is_prefix = self.0.causal && self.0.block.is_none();
        OpFacts {
            class: OpClass::Attention,
            causal_operands: if is_prefix { &[1, 2, 4, 6] } else { &[] },
            ..OpFacts::default()
        }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let (operands, sink) = operands.split_at(operands.len().min(7));
        let [q, k, v, qpos, kpos, qseg, kseg] = operands::take(operands, "q, k, v, qpos, kpos, qseg, kseg")?;
        let heads = heads([q, k, v], [qpos, kpos, qseg, kseg])?;
        if !sink.is_empty() {
            let [sink] = operands::take(sink, "q, k, v, qpos, kpos, qseg, kseg, sink")?;
            operands::expect("sink", sink, heads.dtype, &heads.queries[2..])?;
        }
        self.0.check([q, k])?;
        Ok(vec![Type::new(heads.dtype, heads.out), Type::new(DType::F32, heads.queries)])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let sink = if operands.len() > 7 { ", g r+" } else { "" };
        let [s, t] = self.0.sequences("+");
        let operands = format!("b {s} g r+ d!, b {t} g d!, b {t} g c!, b {s}, b {t}, b {s}, b {t}{sink}");
        let [s, _] = self.0.sequences("");
        format!("{operands} -> b {s} g r c!, b {s} g r")
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        operands::no_cotangent("lse", call.given[1])?;
        let mut cotangents = vec![None; call.operands.len()];
        let (Some(dout), true) = (call.given[0], call.needed.contains(&true)) else { return Ok(cotangents) };
        let (qkv, indices) = call.operands[..7].split_at(3);
        if let Some(&sink) = call.operands.get(7).filter(|_| call.needed[7]) {
            cotangents[7] = Some(sink_cotangent(b, sink, call.results, dout)?);
        }
        if !call.needed[..3].contains(&true) {
            return Ok(cotangents);
        }
        let operands = [qkv, &call.results[..2], &[dout], indices].concat();
        for (operand, value) in b.op(AttentionGrad(self.0.clone()), &operands)?.into_iter().enumerate() {
            cotangents[operand] = call.needed[operand].then_some(value);
        }
        Ok(cotangents)
    }

    /// `2 b s t g r (d + c)` for the scores and the weighted sum of values; half of it if causal, and less within a window or chunks.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        let (pairs, d, c) = self.0.pairs_and_heads(operands[0], operands[1], operands[2]);
        Work::of(pairs.saturating_mul(2 * (d + c)), operands, results)
    }

    fn extras(&self) -> Extras<'_> {
        Extras {
            in_rounds: Some(self),
            positioned: Some(self),
            random: if self.0.dropout.is_some() { Some(self) } else { None },
            ..Extras::default()
        }
    }
}

impl InRounds for Attention {
    /// Keys, values and their indices travel. A sink counts once.
    fn rounds(&self, length: u64) -> Option<Rounds> {
        let op = Attention(self.0.of_round(length)?).into();
        Some(Rounds { op, travelling: &[1, 2, 4, 6], once_from: 7, results: &[RoundResult::Joined; 2] })
    }

    /// As tiles are joined (Dao et al. 2022, FlashAttention, section 3.1): each result by its share of the exponentials of both. A query that
    /// sees no key in either round has the result 0 and `-inf`.
    fn join(&self, b: &mut Builder<'_>, before: &[Value], next: &[Value]) -> Result<Vec<Value>, String> {
        let (&[out, lse], &[next, next_lse]) = (before, next) else { return Err("two results each".to_string()) };
        let most = b.one(Binary::of(BinaryKind::Max), &[lse, next_lse])?;
        let most = b.one(Unary(UnaryKind::AtLeast(LEAST)), &[most])?;
        let [x, y] = [lse, next_lse].map(|lse| {
            let below = b.one(Binary::of(BinaryKind::Sub), &[lse, most])?;
            b.one(Unary(UnaryKind::Exp), &[below])
        });
        let (x, y) = (x?, y?);
        let sum = b.one(Binary::of(BinaryKind::Add), &[x, y])?;
        // One of the two is 1 if there is a key.
        let whole = b.one(Unary(UnaryKind::AtLeast(1.0)), &[sum])?;
        let [x, y] = [(out, x), (next, y)].map(|(out, weight)| {
            let share = b.one(Binary::of(BinaryKind::Div), &[weight, whole])?;
            b.one(Binary::spread(BinaryKind::Mul, "b s g r c, b s g r -> b s g r c")?, &[out, share])
        });
        let out = b.one(Binary::of(BinaryKind::Add), &[x?, y?])?;
        let log = b.one(Unary(UnaryKind::Log), &[sum])?;
        Ok(vec![out, b.one(Binary::of(BinaryKind::Add), &[most, log])?])
    }
}

impl Positioned for Attention {
    fn on_piece(&self, piece: Piece) -> Op {
        Attention(AttentionSettings { piece: Some(piece), ..self.0.clone() }).into()
    }
}

impl Random for Attention {
    /// Without dropout.
    fn in_evaluation(&self) -> Op {
        Attention(AttentionSettings { dropout: None, ..self.0.clone() }).into()
    }
}

/// The cotangent of a sink: minus the sum over its queries of its weight `e^(sink - lse)` times `dout out`. With that lse, those
/// of queries, keys and values are the same as without a sink.
fn sink_cotangent(b: &mut Builder<'_>, sink: Value, results: &[Value], dout: Value) -> Result<Value, String> {
    let dtype = b.ty(sink).dtype;
    let wide = |b: &mut Builder<'_>, x: Value| {
        if b.ty(x).dtype == DType::F32 { Ok(x) } else { b.one(Unary(UnaryKind::Cast(DType::F32)), &[x]) }
    };
    let [out, dout, sink] = [results[0], dout, sink].map(|x| wide(b, x));
    let product = b.one(Binary::of(BinaryKind::Mul), &[out?, dout?])?;
    let delta = b.one(Reduce::new(PartialKind::Sum, "b s g r c -> b s g r")?, &[product])?;
    let below = b.one(Binary::spread(BinaryKind::Sub, "b s g r, g r -> b s g r")?, &[results[1], sink?])?;
    let score = b.one(Unary(UnaryKind::Neg), &[below])?;
    let weight = b.one(Unary(UnaryKind::Exp), &[score])?;
    let share = b.one(Binary::of(BinaryKind::Mul), &[weight, delta])?;
    let sum = b.one(Reduce::new(PartialKind::Sum, "b s g r -> g r")?, &[share])?;
    let cotangent = b.one(Unary(UnaryKind::Neg), &[sum])?;
    if dtype == DType::F32 { Ok(cotangent) } else { b.one(Unary(UnaryKind::Cast(dtype)), &[cotangent]) }
}

/// `attention_grad(%q, %k, %v, %out, %lse, %dout, %qpos, %kpos, %qseg, %kseg) -> dq, dk, dv`.
#[derive(Clone, PartialEq, Debug)]
pub struct AttentionGrad(pub AttentionSettings);

impl AttentionGrad {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["attention_grad"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<AttentionGrad, String> {
        AttentionSettings::parse(attrs).map(AttentionGrad)
    }
}

impl OpDef for AttentionGrad {
    fn name(&self) -> &'static str {
        "attention_grad"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.0.attrs()
    }

    fn facts(&self) -> OpFacts {
        OpFacts { class: OpClass::Attention, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [q, k, v, out, lse, dout, qpos, kpos, qseg, kseg] =
            operands::take(operands, "q, k, v, out, lse, dout, qpos, kpos, qseg, kseg")?;
        let heads = heads([q, k, v], [qpos, kpos, qseg, kseg])?;
        self.0.check([q, k])?;
        operands::expect("out", out, heads.dtype, &heads.out)?;
        operands::expect("lse", lse, DType::F32, &heads.queries)?;
        operands::expect("dout", dout, heads.dtype, &heads.out)?;
        Ok(vec![q.logical(), k.logical(), v.logical()])
    }

    /// The factors of the forward: dk and dv are partial sums over s and r.
    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        let [s, t] = self.0.sequences("+");
        let queries = format!("b {s} g r+ c!, b {s} g r+, b {s} g r+ c!, b {s}, b {t}, b {s}, b {t}");
        let operands = format!("b {s} g r+ d!, b {t} g d!, b {t} g c!, {queries}");
        let [s, _] = self.0.sequences("");
        format!("{operands} -> b {s} g r d!, b {t} g d!, b {t} g c!")
    }

    /// Five products: recomputed scores, dq and dk by d, dv and the scores' cotangents by c: 2.5 times the forward where d
    /// = c.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        let (pairs, d, c) = self.0.pairs_and_heads(operands[0], operands[1], operands[2]);
        Work::of(pairs.saturating_mul(2 * (3 * d + 2 * c)), operands, results)
    }

    fn extras(&self) -> Extras<'_> {
        Extras { in_rounds: Some(self), ..Extras::default() }
    }
}

impl InRounds for AttentionGrad {
    /// Gradients of keys and values travel with them. Each round needs the result of the whole attention alone.
    fn rounds(&self, length: u64) -> Option<Rounds> {
        let op = AttentionGrad(self.0.of_round(length)?).into();
        let results = &[RoundResult::Summed, RoundResult::Travelling, RoundResult::Travelling];
        Some(Rounds { op, travelling: &[1, 2, 7, 9], once_from: 10, results })
    }
}
