//! Evaluation of nodes for tests of rules: all nodes of a class must agree, in f64, and exact rules in f32 too.

use super::language::{Contraction, Made, Node, NodeKind, Shape, Spread};
use super::plain::PlainOp;
use ir::types::DType;

/// A tensor of f64.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Tensor {
    pub(crate) sizes: Vec<usize>,
    pub(crate) data: Vec<f64>,
}

impl Tensor {
    /// A tensor whose elements are a function of their index.
    pub(crate) fn new(sizes: &[usize], element: impl FnMut(&[usize]) -> f64) -> Tensor {
        Tensor { sizes: sizes.to_vec(), data: indices(sizes).iter().map(Vec::as_slice).map(element).collect() }
    }

    fn at(&self, index: &[usize]) -> f64 {
        self.data[index.iter().zip(&self.sizes).fold(0, |place, (i, size)| place * size + i)]
    }

    fn last(&self) -> usize {
        self.sizes.last().copied().unwrap_or(1)
    }

    /// The same function of each row along the last dim.
    fn rows(&self, row: impl Fn(&[f64]) -> Vec<f64>) -> Tensor {
        Tensor { sizes: self.sizes.clone(), data: self.data.chunks(self.last()).flat_map(row).collect() }
    }
}

/// All indices of a tensor, the last dim fastest.
pub(crate) fn indices(sizes: &[usize]) -> Vec<Vec<usize>> {
    sizes.iter().fold(vec![Vec::new()], |all, &size| {
        all.iter().flat_map(|index| (0..size).map(move |i| [index.as_slice(), &[i]].concat())).collect()
    })
}

fn sizes(shape: &Shape) -> Vec<usize> {
    shape.sizes.iter().map(|&size| size as usize).collect()
}

/// How the elements of a type are rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Precision {
    /// Not at all: all types are f64.
    Double,
    /// To the element type, sums after each term.
    Own,
}

impl Precision {
    /// A number of an element type.
    pub(crate) fn round(self, dtype: DType, x: f64) -> f64 {
        match (self, dtype) {
            (Precision::Own, DType::F32) => f64::from(x as f32),
            (Precision::Own, DType::BF16) => {
                let bits = (x as f32).to_bits();
                f64::from(f32::from_bits(bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000))
            }
            _ => x,
        }
    }
}

/// The results of a node in f64; most have one.
pub(crate) fn evaluate(node: &Node, operands: &[&Tensor], shape: &Shape) -> Vec<Tensor> {
    rounded(node, operands, shape, Precision::Double)
}

/// The results of a node.
pub(crate) fn rounded(node: &Node, operands: &[&Tensor], shape: &Shape, precision: Precision) -> Vec<Tensor> {
    let round = |x: f64| precision.round(shape.dtype, x);
    let mut results = unrounded(node, operands, shape, &round);
    results.iter_mut().flat_map(|tensor| &mut tensor.data).for_each(|x| *x = round(*x));
    results
}

fn unrounded(node: &Node, operands: &[&Tensor], shape: &Shape, round: &dyn Fn(f64) -> f64) -> Vec<Tensor> {
    let to = sizes(shape);
    let one = match &node.kind {
        NodeKind::Full(number, _) => Tensor::new(&to, |_| number.get()),
        NodeKind::Plain(PlainOp::Softmax) => operands[0].rows(softmax),
        NodeKind::Plain(PlainOp::SumExp) => {
            Tensor::new(&to, |at| row(operands[0], at).iter().map(|x| (x - operands[1].at(at)).exp()).sum())
        }
        NodeKind::Plain(PlainOp::Pick) => Tensor::new(&to, |at| {
            let label = operands[1].at(at);
            if label < 0.0 { 0.0 } else { row(operands[0], at)[label as usize] }
        }),
        NodeKind::Plain(PlainOp::TokenLoss) => {
            let kept = (0..operands[2].data.len()).filter(|&place| operands[2].data[place] >= 0.0);
            let loss = kept.map(|place| operands[0].data[place] - operands[1].data[place]).sum();
            Tensor { sizes: Vec::new(), data: vec![loss] }
        }
        NodeKind::Plain(op) => {
            Tensor::new(&to, |at| elementwise(*op, operands[0].at(at), operands.get(1).map_or(0.0, |b| b.at(at))))
        }
        NodeKind::Cast(_) => operands[0].clone(),
        NodeKind::Spread(Spread { places, .. }) => {
            Tensor::new(&to, |at| operands[0].at(&places.iter().map(|&place| at[place]).collect::<Vec<_>>()))
        }
        NodeKind::Reshape(_) => Tensor { sizes: to, data: operands[0].data.clone() },
        NodeKind::Reduce { is_max, over } => reduce(operands[0], *is_max, over, &to, round),
        NodeKind::Einsum(contraction) => contract(contraction, operands, &to, round),
        NodeKind::Slice(dim, start, _) => Tensor::new(&to, |at| {
            let mut at = at.to_vec();
            at[*dim] += *start as usize;
            operands[0].at(&at)
        }),
        NodeKind::Concat(dim) => Tensor::new(&to, |at| {
            let (mut at, mut part) = (at.to_vec(), 0);
            while at[*dim] >= operands[part].sizes[*dim] {
                at[*dim] -= operands[part].sizes[*dim];
                part += 1;
            }
            operands[part].at(&at)
        }),
        NodeKind::Iota(_) => Tensor::new(&to, |at| at[0] as f64),
        NodeKind::Select(not) => Tensor::new(&to, |at| {
            let is_first = (operands[0].at(at) != 0.0) != *not;
            if is_first { operands[1].at(at) } else { operands.get(2).map_or(0.0, |b| b.at(at)) }
        }),
        NodeKind::Take(dim) => Tensor::new(&to, |at| {
            let picks = operands[1].sizes.len();
            let entry = operands[1].at(&at[*dim..dim + picks]) as usize;
            operands[0].at(&[&at[..*dim], &[entry], &at[dim + picks..]].concat())
        }),
        NodeKind::Dropout(p, _) => {
            let mut place = 0..;
            Tensor::new(&to, |at| operands[0].at(at) * place.next().map_or(0.0, |place| kept(place, p.get())))
        }
        NodeKind::Made(made) => return self::made(made, operands),
        NodeKind::Leaf(..) | NodeKind::Out(..) => panic!("{node:?} has no function"),
    };
    vec![one]
}

fn row(x: &Tensor, at: &[usize]) -> Vec<f64> {
    (0..x.last()).map(|last| x.at(&[at, &[last]].concat())).collect()
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
    row.iter().map(|x| (x - max).exp() / sum).collect()
}

fn elementwise(op: PlainOp, a: f64, b: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match op {
        PlainOp::Add => a + b,
        PlainOp::Sub => a - b,
        PlainOp::Mul => a * b,
        PlainOp::Div => a / b,
        PlainOp::Max => a.max(b),
        PlainOp::Less => f64::from(a < b),
        PlainOp::LessEqual => f64::from(a <= b),
        PlainOp::Equal => f64::from(a == b),
        PlainOp::Neg => -a,
        PlainOp::Exp => a.exp(),
        PlainOp::Log => a.ln(),
        PlainOp::Sqrt => a.sqrt(),
        PlainOp::Rsqrt => 1.0 / a.sqrt(),
        PlainOp::Recip => 1.0 / a,
        PlainOp::Square => a * a,
        PlainOp::Tanh => a.tanh(),
        PlainOp::Erf => erf(a),
        PlainOp::Sin => a.sin(),
        PlainOp::Cos => a.cos(),
        PlainOp::Sigmoid => sigmoid(a),
        PlainOp::Silu => a * sigmoid(a),
        PlainOp::Gelu => 0.5 * a * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (a + 0.044_715 * a.powi(3))).tanh()),
        PlainOp::GeluErf => 0.5 * a * (1.0 + erf(a / 2f64.sqrt())),
        PlainOp::ReluSquared => a.max(0.0).powi(2),
        PlainOp::Min | PlainOp::Pick | PlainOp::Softmax | PlainOp::SumExp | PlainOp::TokenLoss => {
            panic!("`{}` is no function of elements", op.name())
        }
    }
}

/// The error function by its series, for small numbers.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..60 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn reduce(x: &Tensor, is_max: bool, over: &[usize], to: &[usize], round: &dyn Fn(f64) -> f64) -> Tensor {
    let start = if is_max { f64::NEG_INFINITY } else { 0.0 };
    let mut result = Tensor::new(to, |_| start);
    for index in indices(&x.sizes) {
        let kept: Vec<usize> = (0..index.len()).filter(|dim| !over.contains(dim)).map(|dim| index[dim]).collect();
        let place = kept.iter().zip(to).fold(0, |place, (i, size)| place * size + i);
        let (own, x) = (&mut result.data[place], x.at(&index));
        *own = if is_max { own.max(x) } else { round(*own + x) };
    }
    result
}

fn contract(contraction: &Contraction, operands: &[&Tensor], to: &[usize], round: &dyn Fn(f64) -> f64) -> Tensor {
    let all = contraction.operands.iter().flatten().copied().max().unwrap_or(0) as usize + 1;
    let mut full = vec![1; all];
    for (labels, tensor) in contraction.operands.iter().zip(operands) {
        labels.iter().zip(&tensor.sizes).for_each(|(&label, &size)| full[label as usize] = size);
    }
    let mut result = Tensor::new(to, |_| 0.0);
    for index in indices(&full) {
        let pick = |labels: &[u8]| labels.iter().map(|&label| index[label as usize]).collect::<Vec<_>>();
        let product: f64 = (0..2).map(|side| operands[side].at(&pick(&contraction.operands[side]))).product();
        let place = pick(&contraction.result).iter().zip(to).fold(0, |place, (i, size)| place * size + i);
        result.data[place] = round(result.data[place] + round(product));
    }
    result
}

fn made(op: &Made, operands: &[&Tensor]) -> Vec<Tensor> {
    let x = operands[0];
    let outer = &x.sizes[..x.sizes.len().saturating_sub(1)];
    let mean = |row: &[f64]| row.iter().sum::<f64>() / row.len() as f64;
    let rstd = |row: &[f64], eps: f64| 1.0 / (row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64 + eps).sqrt();
    match op {
        Made::RmsNorm(eps) => {
            let gamma = &operands[1].data;
            let normed = |row: &[f64]| row.iter().zip(gamma).map(|(x, g)| x * rstd(row, eps.get()) * g).collect();
            vec![x.rows(normed), Tensor::new(outer, |at| rstd(&row(x, at), eps.get()))]
        }
        Made::LayerNorm(eps) => {
            let (gamma, beta) = (&operands[1].data, &operands[2].data);
            let centred = |row: &[f64]| row.iter().map(|x| x - mean(row)).collect::<Vec<_>>();
            let normed = |row: &[f64]| {
                let row = centred(row);
                let rstd = rstd(&row, eps.get());
                row.iter().zip(gamma).zip(beta).map(|((x, g), b)| x * rstd * g + b).collect()
            };
            let means = Tensor::new(outer, |at| mean(&row(x, at)));
            vec![x.rows(normed), means, Tensor::new(outer, |at| rstd(&centred(&row(x, at)), eps.get()))]
        }
        Made::CrossEntropy => {
            let lse = Tensor::new(outer, |at| row(x, at).iter().map(|x| x.exp()).sum::<f64>().ln());
            let rows = indices(outer).into_iter().filter(|at| operands[1].at(at) >= 0.0);
            let loss = rows.map(|at| lse.at(&at) - row(x, &at)[operands[1].at(&at) as usize]).sum();
            vec![Tensor { sizes: Vec::new(), data: vec![loss] }, lse]
        }
        Made::Embedding => {
            let table = operands[1];
            let sizes = [x.sizes.as_slice(), &table.sizes[1..]].concat();
            vec![Tensor::new(&sizes, |at| {
                let (h, ids) = at.split_last().unwrap();
                table.at(&[x.at(ids) as usize, *h])
            })]
        }
        Made::Rope { theta } => vec![rope(x, operands[1], theta.get())],
        Made::Attention { scale, causal, dropout } => {
            attention(operands, scale.get(), *causal, dropout.as_ref().map(|(p, _)| p.get()))
        }
    }
}

fn rope(x: &Tensor, positions: &Tensor, theta: f64) -> Tensor {
    let half = x.last() / 2;
    Tensor::new(&x.sizes, |at| {
        let (&i, rest) = at.split_last().unwrap();
        let angle = positions.at(&at[..2]) * theta.powf(-((i % half) as f64) / half as f64);
        let other = x.at(&[rest, &[(i + half) % (2 * half)]].concat());
        x.at(at) * angle.cos() + if i < half { -other } else { other } * angle.sin()
    })
}

/// The factor of the element at a place under a dropout, in place of random numbers.
fn kept(place: usize, p: f64) -> f64 {
    if place * 7 % 10 < (10.0 * p) as usize { 0.0 } else { 1.0 / (1.0 - p) }
}

fn attention(operands: &[&Tensor], scale: f64, causal: bool, dropout: Option<f64>) -> Vec<Tensor> {
    let &[q, k, v, qpos, kpos, qseg, kseg] = operands else { panic!("attention has seven operands") };
    let scores = |at: &[usize]| -> Vec<f64> {
        let &[b, s, g, r] = at else { panic!("scores are of a head") };
        let is_seen =
            |t: usize| qseg.at(&[b, s]) == kseg.at(&[b, t]) && (!causal || kpos.at(&[b, t]) <= qpos.at(&[b, s]));
        let product = |t: usize| (0..q.last()).map(|d| q.at(&[b, s, g, r, d]) * k.at(&[b, t, g, d])).sum::<f64>();
        (0..k.sizes[1]).map(|t| if is_seen(t) { scale * product(t) } else { f64::NEG_INFINITY }).collect()
    };
    let out = Tensor::new(&[&q.sizes[..4], &[v.last()]].concat(), |at| {
        let weights = softmax(&scores(&at[..4]));
        let row = at[..4].iter().zip(&q.sizes).fold(0, |place, (i, size)| place * size + i);
        let factor = |t: usize| dropout.map_or(1.0, |p| kept(row * weights.len() + t, p));
        (0..weights.len()).map(|t| factor(t) * weights[t] * v.at(&[at[0], t, at[2], at[4]])).sum()
    });
    let lse = Tensor::new(&q.sizes[..4], |at| scores(at).iter().map(|x| x.exp()).sum::<f64>().ln());
    vec![out, lse]
}
