//! Ops of routers and experts: orders, counts, and products with the matrices of groups.

use super::call::Call;
use super::tensor::{ElementKind, Item, Tensor};
use crate::refusal::{Refusal, contradiction};
use std::cmp::Ordering;

type Results = Result<Vec<Item>, Refusal>;

/// The results of such an op; none for another op.
pub(super) fn evaluate(call: &Call<'_>) -> Option<Results> {
    let one = |tensor: Result<Tensor, Refusal>| Some(tensor.map(|tensor| vec![tensor.into()]));
    match call.node.family() {
        "aten.topk" => Some(top_k(call)),
        "aten.sort" => Some(sorted(call)),
        "aten.argsort" => Some(sorted(call).map(|results| results.into_iter().skip(1).collect())),
        "aten.gather" => one(gather(call)),
        "aten.scatter" | "aten.scatter_" => one(scatter(call)),
        "aten.max" if call.node.arg("dim").is_some() => Some(maximum(call)),
        "aten.histc" => one(histogram(call)),
        "aten.bincount" => one(counts(call)),
        "aten.index_put" | "aten.index_put_" => one(put(call)),
        "aten.repeat_interleave" => one(repeated(call)),
        "aten._grouped_mm" | "transformers.grouped_mm_fallback" => one(grouped_product(call)),
        _ => None,
    }
}

/// The elements of each row in order, and their places; ties by lower place.
fn ordered(x: &Tensor, is_descending: bool, length: usize) -> Results {
    let (width, rows) = x.rows();
    let (mut values, mut places) = (Vec::new(), Vec::new());
    for row in x.data.chunks(width.max(1)).take(rows) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|&a, &b| {
            let order = row[a].partial_cmp(&row[b]).unwrap_or(Ordering::Equal);
            if is_descending { order.reverse() } else { order }
        });
        order.truncate(length);
        values.extend(order.iter().map(|&at| row[at]));
        places.extend(order.iter().map(|&at| at as f64));
    }
    let mut sizes = x.sizes.clone();
    sizes.last_mut().into_iter().for_each(|last| *last = length);
    Ok(vec![Tensor::new(x.kind, sizes.clone(), values).into(), Tensor::new(ElementKind::Int, sizes, places).into()])
}

fn along_rows(call: &Call<'_>, x: &Tensor) -> Result<(), Refusal> {
    if call.dim("dim", -1, x.sizes.len())? + 1 == x.sizes.len().max(1) {
        return Ok(());
    }
    Err(format!("`{}` along another dim than the last is not supported", call.node.family()).into())
}

fn top_k(call: &Call<'_>) -> Results {
    let (x, k) = (call.tensor("self")?, call.int("k")?);
    along_rows(call, &x)?;
    let k = usize::try_from(k).ok().filter(|k| *k <= x.rows().0);
    let k = k.ok_or(contradiction("more elements are chosen than there are"))?;
    ordered(&x, call.node.arg("largest") != Some(&crate::graph::Arg::Bool(false)), k)
}

fn sorted(call: &Call<'_>) -> Results {
    let x = call.tensor("self")?;
    along_rows(call, &x)?;
    ordered(&x, call.flag("descending"), x.rows().0)
}

/// Elements at indices along a dim.
fn gather(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (x, index) = (call.tensor("self")?, call.tensor("index")?);
    let dim = call.dim("dim", 0, x.sizes.len())?;
    check_places(&x, &index, dim)?;
    let mut source = vec![0; x.sizes.len()];
    Tensor::from_fn(x.kind, &index.sizes, |at| {
        source.copy_from_slice(at);
        source[dim] = index.at(at) as usize;
        x.at(&source)
    })
}

/// Indices of a dim, and of no more elements than there are along the others.
fn check_places(x: &Tensor, index: &Tensor, dim: usize) -> Result<(), Refusal> {
    let is_alike = index.sizes.len() == x.sizes.len()
        && !x.sizes.is_empty()
        && (0..x.sizes.len()).all(|d: usize| d == dim || index.sizes[d] <= x.sizes[d]);
    if is_alike && index.data.iter().all(|&at| at >= 0.0 && at < x.sizes[dim] as f64) {
        return Ok(());
    }
    Err(contradiction("indices along a dim do not go with a tensor"))
}

/// A number at indices along a dim.
fn scatter(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (x, index, value) = (call.tensor("self")?, call.tensor("index")?, call.number("value")?);
    let dim = call.dim("dim", 0, x.sizes.len())?;
    check_places(&x, &index, dim)?;
    let mut places = vec![false; x.data.len()];
    Tensor::from_fn(index.kind, &index.sizes, |at| {
        let place =
            (0..at.len()).fold(0, |place, d| place * x.sizes[d] + if d == dim { index.at(at) as usize } else { at[d] });
        places[place] = true;
        0.0
    })?;
    let data = x.data.iter().zip(places).map(|(&own, is_set)| if is_set { x.kind.round(value) } else { own });
    Ok(Tensor::new(x.kind, x.sizes.clone(), data.collect()))
}

/// The largest elements along the last dim, and their places.
fn maximum(call: &Call<'_>) -> Results {
    let x = call.tensor("self")?;
    along_rows(call, &x)?;
    if x.data.is_empty() {
        return Err(contradiction("nothing has no maximum"));
    }
    let results = ordered(&x, true, 1)?;
    if call.flag("keepdim") {
        return Ok(results);
    }
    let dropped = results.into_iter().map(|item| match item {
        Item::Tensor(tensor) => {
            let mut sizes = tensor.sizes.clone();
            sizes.pop();
            Tensor::new(tensor.kind, sizes, tensor.data.clone()).into()
        }
        item => item,
    });
    Ok(dropped.collect())
}

/// The number of elements in each of equal parts of a range, whose end belongs to the last part.
fn histogram(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (x, parts) = (call.tensor("self")?, call.int_or("bins", 100)?);
    let (low, high) = (call.number_or("min", 0.0)?, call.number_or("max", 0.0)?);
    let parts = usize::try_from(parts).ok().filter(|parts| (1..=x.data.len().max(1 << 20)).contains(parts));
    let parts = parts.filter(|_| low < high).ok_or("a histogram needs a range and parts")?;
    let mut counts = vec![0.0; parts];
    for &x in x.data.iter().filter(|x| (low..=high).contains(*x)) {
        counts[(((x - low) / (high - low) * parts as f64) as usize).min(parts - 1)] += 1.0;
    }
    Ok(Tensor::new(x.kind, vec![parts], counts))
}

/// How often each number occurs.
fn counts(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    if call.node.arg("weights").is_some() || x.data.iter().any(|x| !(0.0..=1e6).contains(x)) {
        return Err("only the counts of small numbers are supported".into());
    }
    let most = x.data.iter().map(|x| *x as usize + 1).max().unwrap_or(0);
    let mut counts = vec![0.0; most.max(call.int_or("minlength", 0)?.clamp(0, 1 << 20) as usize)];
    x.data.iter().for_each(|x| counts[*x as usize] += 1.0);
    Ok(Tensor::new(ElementKind::Int, vec![counts.len()], counts))
}

/// A vector with other elements at some places.
fn put(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (x, values) = (call.tensor("self")?, call.tensor("values")?);
    let places = call.tensors("indices")?;
    let [Some(places)] = places.as_slice() else { return Err("elements are put at several indices".into()) };
    let fits = x.sizes.len() == 1 && (values.sizes == places.sizes || values.data.len() == 1);
    if !fits || call.flag("accumulate") || places.data.iter().any(|&at| at < 0.0 || at >= x.data.len() as f64) {
        return Err("elements are put elsewhere than at the places of a vector".into());
    }
    let mut data = x.data.clone();
    for (at, &place) in places.data.iter().enumerate() {
        data[place as usize] = x.kind.round(values.data[at.min(values.data.len() - 1)]);
    }
    Ok(Tensor::new(x.kind, x.sizes.clone(), data))
}

/// Each element along a dim several times.
fn repeated(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let (x, times) = (call.tensor("self")?, call.int("repeats")?);
    let dim = call.dim("dim", 0, x.sizes.len())?;
    let times = usize::try_from(times).ok().filter(|times| *times > 0).ok_or(contradiction("nothing is repeated"))?;
    let mut sizes = x.sizes.clone();
    let size =
        sizes.get_mut(dim).filter(|_| call.node.arg("dim").is_some()).ok_or(contradiction("a scalar is repeated"))?;
    *size = size.saturating_mul(times);
    let mut source = vec![0; sizes.len()];
    Tensor::from_fn(x.kind, &sizes, |index| {
        source.copy_from_slice(index);
        source[dim] /= times;
        x.at(&source)
    })
}

/// Rows up to each end times the matrix of their group: `[rows, input]`, `[groups, input, output]`.
fn grouped_product(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let [x, w] = if call.node.arg("input").is_some() { ["input", "weight"] } else { ["self", "mat2"] };
    let (x, w, ends) = (call.tensor(x)?, call.tensor(w)?, call.tensor("offs")?);
    let (&[rows, inner], &[groups, input, output]) = (x.sizes.as_slice(), w.sizes.as_slice()) else {
        return Err("a product of groups needs rows and a matrix for each group".into());
    };
    if inner != input || ends.data.len() != groups || call.node.arg("bias").is_some() {
        return Err(contradiction("rows and matrices of a product of groups do not go together"));
    }
    let group = |row: usize| ends.data.iter().position(|&end| (row as f64) < end);
    Tensor::from_fn(ElementKind::Float, &[rows, output], |index| match group(index[0]) {
        Some(group) => (0..inner).map(|i| x.data[index[0] * inner + i] * w.at(&[group, i, index[1]])).sum(),
        None => 0.0,
    })
}
