//! Low-rank adapters (Hu et al. 2021, LoRA): products of layers with parameters get a second term of low rank, which alone is
//! trained.

use crate::differentiate::add_arg;
use crate::rewrite::rewrite;
use ir::catalogue::Code;
use ir::diag::Coded;
use ir::dim_role::DimRole;
use ir::graph::{ArgKind, Block, FACTORS, Init, Model, Param, SectionKind, Span, Stmt};
use ir::ids::{BlockId, Value};
use ir::ops::{Binary, BinaryKind, Builder, Einsum, Unary, UnaryKind};
use ir::types::{Dim, DimName, Dims, Type};
use std::collections::BTreeMap;
use std::fmt;

/// Adapters of a model: `y = x W` becomes `y = x W + (scale / rank) x A B`, with A of `rank` columns.
#[derive(Clone, PartialEq, Debug)]
pub struct Lora {
    /// The number of columns of A and of rows of B.
    pub rank: u64,
    /// Factor of the added term, times the rank.
    pub scale: f64,
    /// Names of the adapted parameters, with or without a leading `w`; all products of layers if empty.
    pub targets: Vec<String>,
}

/// Error: a model cannot be adapted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdaptError {
    message: String,
    help: String,
}

impl fmt::Display for AdaptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for AdaptError {}

impl Coded for AdaptError {
    fn code(&self) -> Option<Code> {
        Some(Code::UnsupportedOption)
    }

    fn help(&self) -> Option<String> {
        Some(self.help.clone())
    }
}

/// Name of the dim between A and B.
const RANK: &str = "lora";

/// A product that gets an adapter: `y = einsum(x, w)`.
#[derive(Clone)]
struct Adapted {
    /// Name of its parameter.
    name: String,
    /// A: the dims that the product sums over, then the rank. B: the rank, then those that the parameter gives the result.
    factors: [Type; 2],
    /// The products `x A` and `(x A) B`.
    products: [Einsum; 2],
}

/// Freezes all parameters of a model, and gives products of its layers adapters. A layer is a block that has the parameters of one
/// element of an array. Products of experts and of routers get none.
///
/// # Errors
/// No product of a layer has a parameter of one of these names.
pub fn adapt(mut model: Model, lora: &Lora) -> Result<Model, AdaptError> {
    model.params.values_mut().for_each(|param| param.frozen = true);
    let rank = model.dims.push(DimName::new(RANK, lora.rank, None));
    let rank = Dim::named(&model.dims, rank);
    let layers = layers(&model);
    let mut known: Vec<String> = Vec::new();
    let mut adapted = BTreeMap::new();
    for (&block, array) in &layers {
        let found = products(&model.blocks[block], &model.dims, &rank);
        known.extend(found.iter().map(|product| short(&product.name).to_string()));
        let chosen: Vec<Adapted> = found.into_iter().filter(|product| lora.takes(&product.name)).collect();
        declare(&mut model, array, &chosen);
        add_factors(&mut model.blocks[block], &chosen)?;
        adapted.insert(model.blocks[block].name.clone(), chosen);
    }
    add_terms(&mut model, &adapted, lora)?;
    known.sort();
    known.dedup();
    let missing = lora.targets.iter().find(|target| !known.iter().any(|name| short(target) == name));
    match missing {
        Some(target) => Err(AdaptError {
            message: format!("no layer has a product with a parameter `{target}`"),
            help: format!("adapters can be of {}", known.join(", ")),
        }),
        None if known.is_empty() => Err(AdaptError {
            message: "the model has no layer with a product".to_string(),
            help: "adapters are of blocks with the parameters of an array, such as `%layer[32].wq`".to_string(),
        }),
        None => Ok(model),
    }
}

impl Lora {
    fn takes(&self, name: &str) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|target| short(target) == short(name))
    }
}

/// A parameter's name as users know it: `q` for `wq` and for `q_proj`.
fn short(name: &str) -> &str {
    let name = name.strip_suffix("_proj").unwrap_or(name);
    name.strip_prefix('w').filter(|rest| !rest.is_empty()).unwrap_or(name)
}

/// Blocks that have the parameters of one element of an array, with the array's name.
fn layers(model: &Model) -> BTreeMap<BlockId, String> {
    let mut layers = BTreeMap::new();
    for call in &model.calls {
        let [only] = &call.params[..] else { continue };
        if model.params.values().any(|param| param.name == only.name && param.count.is_some()) {
            layers.insert(call.block, only.name.clone());
        }
    }
    layers
}

/// The products of a block with a parameter that shares no dim with the result and the other operand.
fn products(block: &Block, dims: &Dims, rank: &Dim) -> Vec<Adapted> {
    let unrouted = block[SectionKind::F].stmts.iter().filter(|stmt| {
        let mut operands = block.types(&stmt.operands).into_iter();
        !operands.any(|ty| ty.has_role(DimRole::RouterLogits, dims))
    });
    unrouted.filter_map(|stmt| product(block, stmt, rank)).collect()
}

fn product(block: &Block, stmt: &Stmt, rank: &Dim) -> Option<Adapted> {
    let equation = stmt.op.extras().contraction?.equation();
    let ([_, weight], [rows, columns]) = (&stmt.operands[..], &equation.operands[..]) else { return None };
    if block.arg_kind(*weight) != Some(ArgKind::Param) {
        return None;
    }
    let result = &equation.result;
    let (given, summed): (Vec<&String>, Vec<&String>) = columns.iter().partition(|label| result.contains(label));
    if given.is_empty() || summed.is_empty() || given.iter().any(|label| rows.contains(label)) {
        return None;
    }
    let ty = block.ty(*weight);
    let (given_dims, summed_dims): (Vec<_>, Vec<_>) =
        columns.iter().zip(&ty.dims).partition(|(label, _)| result.contains(label));
    let mut a: Vec<Dim> = summed_dims.into_iter().map(|(_, dim)| dim.clone()).collect();
    a.push(rank.clone());
    let mut b = vec![rank.clone()];
    b.extend(given_dims.into_iter().map(|(_, dim)| dim.clone()));
    let kept = words(rows.iter().filter(|label| !summed.contains(label)));
    let down = format!("{}, {} {RANK} -> {kept} {RANK}", words(rows), words(summed));
    let up = format!("{kept} {RANK}, {RANK} {} -> {}", words(given), words(result));
    Some(Adapted {
        name: block.value_name(*weight).to_string(),
        factors: [Type::new(ty.dtype, a), Type::new(ty.dtype, b)],
        products: [Einsum::new(&down).ok()?, Einsum::new(&up).ok()?],
    })
}

/// Labels, separated by spaces.
fn words<'a>(labels: impl IntoIterator<Item = &'a String>) -> String {
    labels.into_iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// Names of A and B of a parameter.
fn names(parameter: &str) -> [String; 2] {
    FACTORS.map(|suffix| format!("{parameter}{suffix}"))
}

/// Declares the factors, behind the other fields of the array. A begins as PEFT has it, uniform numbers of this deviation, and B as 0.
fn declare(model: &mut Model, array: &str, chosen: &[Adapted]) {
    let count = model.params.values().find(|param| param.name == array).and_then(|param| param.count);
    for product in chosen {
        let inputs = product.factors[0].elements() / product.factors[0].dims.last().map_or(1, |dim| dim.size.max(1));
        let inits = [Init::Normal(1.0 / (3.0 * inputs as f64).sqrt()), Init::Constant(0.0)];
        for ((field, ty), init) in names(&product.name).into_iter().zip(&product.factors).zip(inits) {
            let known = model.params.values().any(|it| it.name == array && it.field.as_ref() == Some(&field));
            if !known {
                let (name, field, ty) = (array.to_string(), Some(field), ty.clone());
                let (decay, frozen, comments, span) = (true, false, Vec::new(), Span::default());
                model.params.push(Param { name, field, count, ty, init, decay, frozen, part_of: None, comments, span });
            }
        }
    }
}

/// Adds the factors to the parameters of a block.
fn add_factors(block: &mut Block, chosen: &[Adapted]) -> Result<(), AdaptError> {
    for product in chosen {
        for (name, ty) in names(&product.name).into_iter().zip(&product.factors) {
            add_arg(block, name, ArgKind::Param, ty.clone()).map_err(|why| failed(why.to_string()))?;
        }
    }
    Ok(())
}

/// Adds the terms of the factors to the products, which are by the names of their blocks.
fn add_terms(model: &mut Model, adapted: &BTreeMap<String, Vec<Adapted>>, lora: &Lora) -> Result<(), AdaptError> {
    let replaced = rewrite(model, |builder, stmt| {
        let (Some(products), Some(&weight)) = (adapted.get(&builder.block.name), stmt.operands.get(1)) else {
            return Ok(None);
        };
        let found = products.iter().find(|product| product.name == builder.block.value_name(weight));
        found.map(|product| with_term(builder, stmt, product, lora)).transpose()
    });
    replaced.map(|_| ()).map_err(|why| failed(why.to_string()))
}

fn failed(message: String) -> AdaptError {
    AdaptError { message, help: "name other products".to_string() }
}

/// The values in place of a product's result.
fn with_term(builder: &mut Builder<'_>, stmt: &Stmt, product: &Adapted, lora: &Lora) -> Result<Vec<Value>, String> {
    let [a, b] = names(&product.name).map(|name| builder.block.find(&name).ok_or_else(|| format!("no `%{name}`")));
    let (a, b) = (a?, b?);
    let [down, up] = product.products.clone();
    let whole = builder.one(stmt.op.clone(), &stmt.operands)?;
    let low = builder.one(down, &[stmt.operands[0], a])?;
    let scaled = builder.one(Unary(UnaryKind::Scale(lora.scale / lora.rank as f64)), &[low])?;
    let term = builder.one(up, &[scaled, b])?;
    Ok(vec![builder.one(Binary::of(BinaryKind::Add), &[whole, term])?])
}
