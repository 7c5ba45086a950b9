//! Sums, products of matrices, norms and attention.

use super::call::Call;
use super::tensor::{ElementKind, Item, Tensor, elements};
use crate::refusal::{Refusal, contradiction};

type Results = Result<Vec<Item>, Refusal>;

/// The results of such an op; none for another op.
pub(super) fn evaluate(call: &Call<'_>) -> Option<Results> {
    let one = |tensor: Result<Tensor, Refusal>| Some(tensor.map(|tensor| vec![tensor.into()]));
    match call.node.family() {
        "aten.mean" => one(reduce(call, |row| row.iter().sum::<f64>() / row.len() as f64)),
        "aten.sum" => one(reduce(call, |row| row.iter().sum())),
        "aten.any" => one(reduce(call, |row| f64::from(row.iter().any(|x| *x != 0.0)))),
        "aten.amax" | "aten.max" if call.node.arg("other").is_none() => {
            one(reduce(call, |row| row.iter().copied().fold(f64::NEG_INFINITY, f64::max)))
        }
        "aten.var" => one(variance(call)),
        "aten.cumsum" => one(cumsum(call)),
        "aten.diff" => one(diff(call)),
        "aten.softmax" | "aten._softmax" => one(softmax_of(call)),
        "aten.linear" => one(linear(call)),
        "aten.addmm" => one(addmm(call)),
        "aten.baddbmm" => one(biased_matmul(call)),
        "aten.matmul" | "aten.mm" | "aten.bmm" => one(call_matmul(call)),
        "aten.conv1d" | "aten.conv2d" | "aten.convolution" => one(super::convolution::convolution(call)),
        "aten.constant_pad_nd" | "aten.pad" => one(super::convolution::pad(call)),
        "aten.embedding" => one(embedding(call)),
        "aten.layer_norm" | "aten.native_layer_norm" | "aten.rms_norm" => one(norm(call)),
        "aten.scaled_dot_product_attention" => one(attention(call)),
        _ => None,
    }
}

/// A function of the elements along some dims, all of them if none are named.
fn reduce(call: &Call<'_>, f: impl Fn(&[f64]) -> f64) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    let rank = x.sizes.len();
    let dims = if call.node.arg("dim").is_some() { call.ints("dim")? } else { (0..rank as i64).collect() };
    let dims = dims.into_iter().map(|dim| super::wrap(dim, rank)).collect::<Result<Vec<_>, _>>()?;
    let outer: Vec<usize> = (0..rank).map(|dim| if dims.contains(&dim) { 1 } else { x.sizes[dim] }).collect();
    let inner: Vec<usize> = dims.iter().map(|&dim| x.sizes[dim]).collect();
    let kind = if x.kind == ElementKind::Bool { ElementKind::Int } else { x.kind };
    let mut failed = None;
    let mut reduced = Tensor::from_fn(kind, &outer, |index| {
        let mut source = index.to_vec();
        let row = Tensor::from_fn(ElementKind::Float, &inner, |at| {
            dims.iter().zip(at).for_each(|(&dim, &i)| source[dim] = i);
            x.at(&source)
        });
        match row {
            Ok(row) => f(&row.data),
            Err(why) => {
                failed = Some(why);
                0.0
            }
        }
    })?;
    if !call.flag("keepdim") {
        reduced.sizes = (0..rank).filter(|dim| !dims.contains(dim)).map(|dim| x.sizes[dim]).collect();
    }
    failed.map_or(Ok(reduced), Err)
}

fn cumsum(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    let dim = call.dim("dim", 0, x.sizes.len())?;
    let stride: usize = x.sizes.get(dim + 1..).unwrap_or_default().iter().product();
    let size = *x.sizes.get(dim).ok_or(contradiction("a sum along a scalar"))?;
    let own = if x.kind == ElementKind::Float { ElementKind::Float } else { ElementKind::Int };
    let kind = call.kind("dtype")?.unwrap_or(own);
    let mut data = x.data.clone();
    for at in stride..data.len() {
        if !(at / stride.max(1)).is_multiple_of(size) {
            data[at] = kind.round(data[at] + data[at - stride]);
        }
    }
    Ok(Tensor::new(kind, x.sizes.clone(), data))
}

/// Differences of neighbours along the last dim, with what is put before it.
fn diff(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    if call.dim("dim", -1, x.sizes.len())? + 1 != x.sizes.len()
        || call.int_or("n", 1)? != 1
        || call.node.arg("append").is_some()
    {
        return Err("only differences of neighbours along the last dim are supported".into());
    }
    let (width, rows) = x.rows();
    let before = call.optional_tensor("prepend")?;
    let (more, _) = before.as_ref().map_or((0, 0), |before| before.rows());
    let mut data = Vec::new();
    for row in 0..rows {
        let before = before.iter().flat_map(|before| before.data.chunks(more.max(1)).nth(row).unwrap_or_default());
        let all: Vec<f64> = before.chain(&x.data[row * width..(row + 1) * width]).copied().collect();
        data.extend(all.windows(2).map(|pair| pair[1] - pair[0]));
    }
    let mut sizes = x.sizes.clone();
    if let Some(last) = sizes.last_mut() {
        *last = (width + more).saturating_sub(1);
    }
    if data.len() != elements(&sizes)? {
        return Err(contradiction("what is put before differences has other sizes"));
    }
    Ok(Tensor::new(x.kind, sizes, data))
}

/// Replaces a row by its softmax; one without a finite element becomes 0.
fn softmax(row: &mut [f64]) {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        return row.fill(0.0);
    }
    row.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|x| *x = ElementKind::Float.round(*x / sum));
}

fn softmax_of(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    if call.dim("dim", -1, x.sizes.len())? + 1 != x.sizes.len() {
        return Err("only a softmax of the last dim is supported".into());
    }
    let mut y = x.map(ElementKind::Float, |x| x);
    let (width, _) = y.rows();
    y.data.chunks_mut(width.max(1)).for_each(softmax);
    Ok(y)
}

/// The products of the rows of `x` and a matrix, whose element at (output, input) `w` gives.
fn rows_times(x: &Tensor, outputs: usize, w: impl Fn(usize, usize) -> f64) -> Result<Tensor, Refusal> {
    let (width, rows) = x.rows();
    let mut sizes = x.sizes.clone();
    *sizes.last_mut().ok_or(contradiction("a product of a scalar"))? = outputs;
    let mut data = Vec::with_capacity(elements(&sizes)?);
    for row in (0..rows).map(|row| &x.data[row * width..(row + 1) * width]) {
        data.extend(
            (0..outputs).map(|o| ElementKind::Float.round(row.iter().enumerate().map(|(i, x)| x * w(o, i)).sum())),
        );
    }
    Ok(Tensor::new(ElementKind::Float, sizes, data))
}

fn plus_bias(mut y: Tensor, bias: Option<&Tensor>) -> Result<Tensor, Refusal> {
    let Some(bias) = bias else { return Ok(y) };
    let (width, _) = y.rows();
    if bias.sizes != [width] {
        return Err(contradiction("a bias has another size than its product"));
    }
    y.data.iter_mut().enumerate().for_each(|(at, y)| *y = ElementKind::Float.round(*y + bias.data[at % width]));
    Ok(y)
}

fn linear(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (x, w, bias) = (call.tensor("input")?, call.tensor("weight")?, call.optional_tensor("bias")?);
    let (width, _) = x.rows();
    match *w.sizes.as_slice() {
        [outputs, inputs] if inputs == width => {
            plus_bias(rows_times(&x, outputs, |o, i| w.data[o * inputs + i])?, bias.as_deref())
        }
        _ => Err(contradiction(format!("a matrix of sizes {:?} does not go with rows of {width}", w.sizes))),
    }
}

fn addmm(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (bias, x, w) = (call.tensor("self")?, call.tensor("mat1")?, call.tensor("mat2")?);
    if call.number_or("alpha", 1.0)? != 1.0 || call.number_or("beta", 1.0)? != 1.0 {
        return Err("a product with factors is not supported".into());
    }
    let (width, _) = x.rows();
    match *w.sizes.as_slice() {
        [inputs, outputs] if inputs == width => {
            plus_bias(rows_times(&x, outputs, |o, i| w.data[i * outputs + o])?, Some(&bias))
        }
        _ => Err(contradiction(format!("a matrix of sizes {:?} does not go with rows of {width}", w.sizes))),
    }
}

/// `beta bias + alpha a b`
fn biased_matmul(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (bias, a, b) = (call.tensor("self")?, call.tensor("batch1")?, call.tensor("batch2")?);
    let (alpha, beta) = (call.number_or("alpha", 1.0)?, call.number_or("beta", 1.0)?);
    let product = matmul(&a, &b)?;
    let rank = product.sizes.len();
    if bias.sizes.len() > rank
        || !(0..rank).all(|d: usize| {
            d.checked_sub(rank - bias.sizes.len()).is_none_or(|own| [1, product.sizes[d]].contains(&bias.sizes[own]))
        })
    {
        return Err(contradiction("a bias has other sizes than its product"));
    }
    Tensor::from_fn(ElementKind::Float, &product.sizes, |at| beta * bias.spread(at) + alpha * product.at(at))
}

/// The mean square distance from the mean, over the elements or one less.
fn variance(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let default = if call.flag("unbiased") || call.node.arg("unbiased").is_none() { 1.0 } else { 0.0 };
    let less = call.number_or("correction", default)?;
    reduce(call, |row| {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (row.len() as f64 - less)
    })
}

fn call_matmul(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let other = if call.node.arg("mat2").is_some() { "mat2" } else { "other" };
    let (a, b) = (call.tensor("self")?, call.tensor(other)?);
    matmul(&a, &b)
}

/// `[.., m, k] [.., k, n] -> [.., m, n]`, the outer dims broadcast.
fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor, Refusal> {
    let (rank, other) = (a.sizes.len(), b.sizes.len());
    if rank < 2 || other < 2 || a.sizes[rank - 1] != b.sizes[other - 2] {
        return Err(contradiction(format!("matrices of sizes {:?} and {:?} have no product", a.sizes, b.sizes)));
    }
    let both = rank.max(other);
    let size = |sizes: &[usize], d: usize| if d + sizes.len() < both { 1 } else { sizes[d + sizes.len() - both] };
    let mut sizes: Vec<usize> = (0..both - 2).map(|d| size(&a.sizes, d).max(size(&b.sizes, d))).collect();
    let outer = sizes.clone();
    if (0..both - 2).any(|d| [&a.sizes, &b.sizes].iter().any(|own| ![1, outer[d]].contains(&size(own, d)))) {
        return Err(contradiction(format!("matrices of sizes {:?} and {:?} have no product", a.sizes, b.sizes)));
    }
    let inner = a.sizes[rank - 1];
    sizes.extend([a.sizes[rank - 2], b.sizes[other - 1]]);
    let (mut left, mut right) = (vec![0; both], vec![0; both]);
    Tensor::from_fn(ElementKind::Float, &sizes, |index| {
        left.copy_from_slice(index);
        right.copy_from_slice(index);
        (0..inner)
            .map(|k| {
                (left[both - 1], right[both - 2]) = (k, k);
                a.spread(&left) * b.spread(&right)
            })
            .sum()
    })
}

fn embedding(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (table, ids) = (call.tensor("weight")?, call.tensor("indices")?);
    let &[rows, width] = table.sizes.as_slice() else { return Err("a table of embeddings is no matrix".into()) };
    if ids.data.iter().any(|&id| id < 0.0 || id >= rows as f64) {
        return Err(contradiction(format!("an id is none of {rows}")));
    }
    let sizes = [ids.sizes.as_slice(), &[width]].concat();
    let data = ids.data.iter().flat_map(|&id| &table.data[id as usize * width..(id as usize + 1) * width]);
    Ok(Tensor::new(ElementKind::Float, sizes, data.copied().collect()))
}

/// The norm of rows: by mean and variance, or by the mean square.
fn norm(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (x, weight, bias) = (call.tensor("input")?, call.optional_tensor("weight")?, call.optional_tensor("bias")?);
    let (width, _) = x.rows();
    if call.sizes("normalized_shape")? != [width] {
        return Err("a norm of several dims is not supported".into());
    }
    let is_centred = call.node.family() != "aten.rms_norm";
    let eps = call.number_or("eps", if is_centred { 1e-5 } else { f64::from(f32::EPSILON) })?;
    let mut y = x.map(ElementKind::Float, |x| x);
    for row in y.data.chunks_mut(width.max(1)) {
        let mean = if is_centred { row.iter().sum::<f64>() / width as f64 } else { 0.0 };
        let square = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        let rstd = 1.0 / (square + eps).sqrt();
        for (at, x) in row.iter_mut().enumerate() {
            let gain = weight.as_ref().map_or(1.0, |weight| weight.data[at % weight.data.len().max(1)]);
            let shift = bias.as_ref().map_or(0.0, |bias| bias.data[at % bias.data.len().max(1)]);
            *x = ElementKind::Float.round((*x - mean) * rstd * gain + shift);
        }
    }
    Ok(y)
}

/// `softmax(scale q k + mask) v`, of which keys may serve several query heads.
fn attention(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (q, k, v, mask) =
        (call.tensor("query")?, call.tensor("key")?, call.tensor("value")?, call.optional_tensor("attn_mask")?);
    let (&[batch, heads, queries, width], &[_, groups, keys, _], &[.., values]) =
        (q.sizes.as_slice(), k.sizes.as_slice(), v.sizes.as_slice())
    else {
        return Err("attention must have operands of four dims".into());
    };
    let is_fit = k.sizes == [batch, groups, keys, width] && v.sizes == [batch, groups, keys, values];
    let shares = call.flag("enable_gqa") || groups == 1;
    if !is_fit || groups == 0 || !heads.is_multiple_of(groups) || (groups != heads && !shares) {
        return Err(contradiction("the operands of attention do not go together"));
    }
    if call.number_or("dropout_p", 0.0)? != 0.0 {
        return Err(Refusal::Dropout);
    }
    let scale = call.number_or("scale", 1.0 / (width as f64).sqrt())?;
    let (is_causal, times) = (call.flag("is_causal"), heads / groups);
    let mut data = Vec::with_capacity(elements(&[batch, heads, queries, values])?);
    for (b, h, s) in (0..batch).flat_map(|b| (0..heads).flat_map(move |h| (0..queries).map(move |s| (b, h, s)))) {
        let mut row: Vec<f64> = (0..keys)
            .map(|t| {
                let score: f64 =
                    (0..width).map(|d| q.at(&[b, h, s, d]) * k.at(&[b, h / times, t, d])).sum::<f64>() * scale;
                match &mask {
                    _ if is_causal && t > s => f64::NEG_INFINITY,
                    None => score,
                    Some(mask) if mask.kind == ElementKind::Bool && mask.spread(&[b, h, s, t]) == 0.0 => {
                        f64::NEG_INFINITY
                    }
                    Some(mask) if mask.kind == ElementKind::Bool => score,
                    Some(mask) => score + mask.spread(&[b, h, s, t]),
                }
            })
            .collect();
        softmax(&mut row);
        data.extend(
            (0..values)
                .map(|c| ElementKind::Float.round((0..keys).map(|t| row[t] * v.at(&[b, h / times, t, c])).sum())),
        );
    }
    Ok(Tensor::new(ElementKind::Float, vec![batch, heads, queries, values], data))
}
