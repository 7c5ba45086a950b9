//! Mixture of experts: a token's choice of experts, dispatch and combine.

use crate::real::Real;
use crate::tensor::Tensor;
use ir::ops::{GroupLimit, TopK};

/// Places in the order of falling numbers, equal ones in order.
fn sorted(numbers: &[f64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..numbers.len()).collect();
    places.sort_by(|&a, &b| numbers[b].total_cmp(&numbers[a]));
    places
}

/// True if the group of each expert is open.
fn open(scores: &[f64], limit: GroupLimit) -> Vec<bool> {
    let size = scores.len() / limit.groups as usize;
    let groups = scores.chunks_exact(size);
    let groups: Vec<f64> =
        groups.map(|group| sorted(group).iter().take(limit.by as usize).map(|&place| group[place]).sum()).collect();
    let chosen = &sorted(&groups)[..limit.from as usize];
    (0..scores.len()).map(|expert| chosen.contains(&(expert / size))).collect()
}

/// The k highest of `scores + bias` of each row, and their indices.
pub(super) fn top_k<R: Real>(
    op: &TopK,
    scores: &Tensor<R>,
    bias: Option<&Tensor<R>>,
    dims: &[usize],
) -> (Tensor<R>, Tensor<i32>) {
    let mut chosen = Vec::new();
    for row in scores.rows() {
        let biased = row.iter().enumerate().map(|(expert, &score)| {
            let bias = bias.map_or(R::zero(), |bias| bias.data[expert]);
            (score + bias).to_f64()
        });
        let biased: Vec<f64> = biased.collect();
        let open = op.limit.map_or_else(|| vec![true; row.len()], |limit| open(&biased, limit));
        chosen.extend(sorted(&biased).into_iter().filter(|&expert| open[expert]).take(op.k as usize));
    }
    let (k, experts) = (op.k as usize, scores.columns());
    let values = Tensor::from_fn(dims, |choice| scores.data[choice / k * experts + chosen[choice]]);
    (values, Tensor::from_fn(dims, |choice| chosen[choice] as i32))
}

/// Each cotangent at the expert that was chosen.
pub(super) fn top_k_grad<R: Real>(index: &Tensor<i32>, dvalues: &Tensor<R>, dims: &[usize]) -> Tensor<R> {
    let (k, experts) = (index.columns(), dims[dims.len() - 1]);
    Tensor::from_fn(dims, |i| {
        let row = i / experts * k..(i / experts + 1) * k;
        row.filter(|&choice| index.data[choice] as usize == i % experts).map(|choice| dvalues.data[choice]).sum()
    })
}

/// How often each expert was chosen.
pub(super) fn choice_count<R: Real>(index: &Tensor<i32>, dims: &[usize]) -> Tensor<R> {
    Tensor::from_fn(dims, |expert| R::of(index.data.iter().filter(|&&choice| choice as usize == expert).count() as f64))
}

/// The choices `[*g, t, k]` that each row of `[*g, e, c]` takes, and how many chose each expert of `[*g, e]`.
struct RoutedTokens {
    rows: Vec<Option<usize>>,
    count: Vec<i32>,
    choices: usize,
}

impl RoutedTokens {
    /// `dims` are those of the tensor of experts, `[*g, e, c, h]`.
    fn new(index: &Tensor<i32>, dims: &[usize]) -> RoutedTokens {
        let &[.., t, k] = index.dims.as_slice() else { unreachable!("the types were inferred") };
        let &[.., e, c, _] = dims else { unreachable!("the types were inferred") };
        let (mut rows, mut count) = (Vec::new(), Vec::new());
        for group in (0..index.data.len()).step_by((t * k).max(1)) {
            for expert in 0..e {
                let all: Vec<usize> =
                    (group..group + t * k).filter(|&choice| index.data[choice] == expert as i32).collect();
                rows.extend((0..c).map(|place| all.get(place).copied()));
                count.push(all.len() as i32);
            }
        }
        RoutedTokens { rows, count, choices: k }
    }

    /// Each row with its choice and that one's token.
    fn taken(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(row, choice)| choice.map(|choice| (row, choice, choice / self.choices)))
    }
}

fn weight<R: Real>(weights: Option<&Tensor<R>>, choice: usize) -> R {
    weights.map_or(R::one(), |weights| weights.data[choice])
}

/// The rows of x that each expert takes, times their weights, and how many chose it.
pub(super) fn dispatch<R: Real>(
    x: &Tensor<R>,
    index: &Tensor<i32>,
    weights: Option<&Tensor<R>>,
    dims: &[Vec<usize>],
) -> (Tensor<R>, Tensor<i32>) {
    let (routed, h) = (RoutedTokens::new(index, &dims[0]), x.columns());
    let mut out = Tensor::zeros(&dims[0]);
    for (row, choice, token) in routed.taken() {
        for i in 0..h {
            out.data[row * h + i] = weight(weights, choice) * x.data[token * h + i];
        }
    }
    (out, Tensor { dims: dims[1].clone(), data: routed.count })
}

/// Chunks of rows, along a dim, of which the counted ones are filled. The others are zeros.
pub(super) fn filled<R: Real>(x: &Tensor<R>, counts: &Tensor<i32>, rows: usize) -> Tensor<R> {
    let width: usize = x.dims[rows + 1..].iter().product();
    Tensor::from_fn(&x.dims, |i| {
        let (row, chunk) = (i / width % x.dims[rows], i / width / x.dims[rows]);
        if row < counts.data[chunk].max(0) as usize { x.data[i] } else { R::zero() }
    })
}

/// The sum of the rows of y that each token's choices have taken, times their weights.
pub(super) fn combine<R: Real>(
    y: &Tensor<R>,
    index: &Tensor<i32>,
    weights: Option<&Tensor<R>>,
    dims: &[usize],
) -> Tensor<R> {
    let (routed, h) = (RoutedTokens::new(index, &y.dims), y.columns());
    let mut out = Tensor::zeros(dims);
    for (row, choice, token) in routed.taken() {
        for i in 0..h {
            out.data[token * h + i] += weight(weights, choice) * y.data[row * h + i];
        }
    }
    out
}

/// The product of each choice's token and its row of y.
pub(super) fn combine_dw<R: Real>(x: &Tensor<R>, y: &Tensor<R>, index: &Tensor<i32>) -> Tensor<R> {
    let (routed, h) = (RoutedTokens::new(index, &y.dims), y.columns());
    let mut out = Tensor::zeros(&index.dims);
    for (row, choice, token) in routed.taken() {
        out.data[choice] = (0..h).map(|i| x.data[token * h + i] * y.data[row * h + i]).sum();
    }
    out
}
